"""The types, and the texts that help() shows."""
import inspect
import os
import pathlib
import subprocess
import sys

import pytest
from test_guides import READER

import mortise_lock
import mortise_lock.asyncio

HERE = pathlib.Path(__file__).resolve().parents[1]


def check(*words, tmp_path):
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "MYPYPATH": str(HERE)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_the_public_items_and_the_examples(tmp_path):
    files = [HERE / "tests/typed.py", *sorted((HERE / "examples").glob("*.py"))]
    check("mypy", "--strict", "--follow-imports=silent", *map(str, files), tmp_path=tmp_path)


def test_the_installed_package_has_the_types():
    where = subprocess.check_output([READER, "-c", "import mortise_lock; print(mortise_lock.__path__[0])"], text=True).strip()
    assert pathlib.Path(where, "py.typed").exists()


@pytest.mark.parametrize("module", [mortise_lock, mortise_lock.asyncio])
def test_every_public_item_has_a_docstring(module):
    public = [module] + [getattr(module, name) for name in module.__all__]
    public += [item for name, item in inspect.getmembers(module.Lock) if not name.startswith("_")] + [module.Lock.__init__]
    assert len(public) > 15
    assert [item for item in public if not inspect.getdoc(item)] == []
