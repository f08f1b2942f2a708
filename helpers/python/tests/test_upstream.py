"""redis-py's own tests of its Lock, from the source distribution of the installed version."""
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest
import redis
from servers import ROOT

HERE = pathlib.Path(__file__).parent
PLACE = ROOT / "target/helpers/python" / f"redis-{redis.__version__}"


def fetch():
    """pip does not install those tests. Returns None if they cannot be fetched, as without a network."""
    if not PLACE.exists():
        PLACE.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:",
                        f"redis=={redis.__version__}", "-d", str(PLACE.parent)], timeout=120, check=False)
        archive = PLACE.with_name(PLACE.name + ".tar.gz")
        if not archive.exists():
            return None
        with tarfile.open(archive) as tar:
            tar.extractall(PLACE.parent, filter="data")
    return PLACE / "tests"


@pytest.mark.parametrize("kind", ["test_lock.py", "test_asyncio/test_lock.py"])
def test_redis_pys_own_tests_pass_with_the_import_changed(server, tmp_path, kind):
    source = fetch()
    if source is None:
        pytest.skip("redis-py's source distribution cannot be fetched")
    package = tmp_path / "upstream" / pathlib.Path(kind).parent
    package.mkdir(parents=True)
    for folder in {package, tmp_path / "upstream"}:
        (folder / "__init__.py").touch()
    shutil.copy(source / kind, package / "test_lock.py")
    shutil.copy(HERE / "upstream_conftest.py", tmp_path / "upstream/conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rs", "upstream"], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "MORTISE_PORT": str(server.port)}, timeout=120)
    assert run.returncode == 0, run.stdout
    print(run.stdout)
