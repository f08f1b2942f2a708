"""What the README and the guides show in Python, and the examples, run as they stand there."""
import os
import pathlib
import re
import subprocess
import sys

import pytest
from servers import ROOT

HERE = pathlib.Path(__file__).resolve().parents[1]
GUIDES = [HERE / "README.md", ROOT / "docs/clients.md", ROOT / "docs/migrating.md"]
BLOCKS = [pytest.param(block, id=f"{guide.name}-{number}") for guide in GUIDES if guide.exists()
          for number, block in enumerate(re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL))]


def run(server, *arguments):
    done = subprocess.run([sys.executable, "-W", "error::DeprecationWarning", *arguments], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PORT": str(server.port)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_guide_shows_runs(server, block):
    run(server, "-c", block.replace("port=6379", f"port={server.port}"))
    assert server.nothing_is_left()


def test_the_examples_run(server):
    assert run(server, str(HERE / "examples/workers.py")) == "served: 20\n"
    assert run(server, str(HERE / "examples/tasks.py")) == "done: all of it\nstopped: LockNotOwnedError\n"
