"""The Python code of the README and the guides, and the examples, run unchanged."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from servers import ROOT

HERE = pathlib.Path(__file__).resolve().parents[1]
GUIDES = [HERE / "README.md", ROOT / "docs/clients.md", ROOT / "docs/migrating.md"]
FRAMEWORKS = re.compile(r"^## With frameworks.*?(?=^## )", re.DOTALL | re.MULTILINE)  # test_frameworks.py runs these
BLOCKS = [pytest.param(block, id=f"{guide.name}-{number}") for guide in GUIDES if guide.exists()
          for number, block in enumerate(re.findall(r"```python\n(.*?)```", FRAMEWORKS.sub("", guide.read_text()), re.DOTALL))]


READER = ROOT / "target/helpers/python/reader/venv/bin/python"  # where the README's own commands have installed the library


def run(server, *arguments, python=sys.executable):
    done = subprocess.run([python, "-W", "error::DeprecationWarning", *arguments], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PORT": str(server.port)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_guide_shows_runs(server, block, request):
    python = READER if "README" in request.node.callspec.id else sys.executable
    run(server, "-c", block.replace("port=6379", f"port={server.port}"), python=python)
    assert server.nothing_is_left()


def test_the_commands_on_the_page_for_clients_work(server):
    """The commands in docs/clients.md, each followed by its reply; the token differs here."""
    lines = (ROOT / "docs/clients.md").read_text().splitlines()
    commands = [line.split("  ")[0].split() for line in lines if line.startswith("LOCK.")]
    assert len(commands) >= 6
    for command in commands:
        server.admin.execute_command(*command)  # an error would be raised
    assert server.admin.execute_command("LOCK.INFO", "stock:42")["waiters"] == 0, "the last one left"


def test_the_examples_run(server):
    assert run(server, str(HERE / "examples/workers.py")) == "served: 20\n"
    assert run(server, str(HERE / "examples/tasks.py")) == "done: all of it\nstopped: LockNotOwnedError\n"
