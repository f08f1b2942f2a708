"""Systems that lack features of Linux: a separate process removes them before it imports the library. And Unix sockets."""
import asyncio
import subprocess
import sys

import pytest
import redis
import redis.asyncio
from servers import Server

import mortise_lock.asyncio

TAKEN = {
    "macOS": "del time.CLOCK_BOOTTIME",
    "BSD": "del time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC_RAW",
    "Windows": """
for name in [name for name in vars(time) if name.startswith("CLOCK_") or name.startswith("clock_")]:
    delattr(time, name)
del os.register_at_fork, os.fork
""",
}
USE = """
import mortise_lock, mortise_lock.asyncio
from mortise_lock import _values

def between():
    return time.monotonic() * 1000, _values.now(), time.monotonic() * 1000

one = between()
time.sleep(0.05)
two = between()
assert two[0] - one[2] - 1 < two[1] - one[1] < two[2] - one[0] + 1, (one, two)

client = redis.Redis(port=int(sys.argv[1]))
with mortise_lock.Lock(client, "stock") as lock:
    waiting = threading.Thread(target=lambda: mortise_lock.Lock(client, "stock").__enter__().release())
    waiting.start()
    assert lock.owned() and not lock.lost
waiting.join()
capped = mortise_lock.Lock(client, "stock", lease=1.5, max_hold=2)
assert capped.acquire() and not capped.wait_lost(0.01) and capped.wait_lost(30)

async def tasks():
    client = redis.asyncio.Redis(port=int(sys.argv[1]))
    async with mortise_lock.asyncio.Lock(client, "task") as lock:
        assert await lock.owned()
    await mortise_lock.asyncio.close(client)
    await client.aclose()

asyncio.run(tasks())
print("done")
"""


@pytest.mark.parametrize("system", TAKEN)
def test_locks_work_without_the_features_that_the_system_lacks(server, system):
    code = "import asyncio, os, redis, redis.asyncio, sys, threading, time\n" + TAKEN[system] + USE
    done = subprocess.run([sys.executable, "-c", code, str(server.port)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr


async def test_locks_work_over_a_unix_socket(tmp_path):
    server, place = Server("--unixsocket", str(tmp_path / "socket")), str(tmp_path / "socket")
    near, client = redis.Redis(unix_socket_path=place), redis.asyncio.Redis(unix_socket_path=place)
    with mortise_lock.Lock(near, "stock"):
        waiting = asyncio.create_task(mortise_lock.asyncio.Lock(client, "stock").acquire())
        while server.waiters("stock") == 0:
            await asyncio.sleep(0.01)
    assert await waiting and mortise_lock.close(near) and await mortise_lock.asyncio.close(client)
    await client.aclose()
    server.close()
