"""Commands that the server refuses to a user, or to all of them."""
import asyncio

import pytest
import redis
from servers import eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, RefusedError, close


@pytest.fixture
def limited(own_server):
    """A user's client to a server that keeps abandoned requests for a minute, and what takes a command from that user."""
    own_server.admin.config_set("lock.mail-timeout", 60_000)
    own_server.admin.acl_setuser("limited", enabled=True, nopass=True, keys=["*"], categories=["+@all"])
    client = redis.Redis(port=own_server.port, username="limited", password="any")

    def forbid(command):
        own_server.admin.execute_command("ACL", "SETUSER", "limited", "-" + command)

    yield client, forbid
    close(client)


def test_threads_wait_without_the_right_to_collect_letters(own_server, limited):
    client, forbid = limited
    forbid("lock.mail")
    with Lock(redis.Redis(port=own_server.port), "stock", timeout=600):
        waiting = in_thread(lambda: Lock(client, "stock").acquire())
        eventually(lambda: own_server.waiters("stock") == 1)
    assert waiting.result() is True


@pytest.mark.parametrize("kind, name", [("Lock", "stock"), ("MultiLock", ["stock", "other"])])
async def test_a_wait_fails_where_the_user_may_not_collect_letters_and_leaves_the_queue(own_server, limited, kind, name):
    limited[1]("lock.mail")
    holder = Lock(redis.Redis(port=own_server.port), "stock", timeout=600)
    holder.acquire()
    client = redis.asyncio.Redis(port=own_server.port, username="limited", password="any")
    lock = getattr(mortise_lock.asyncio, kind)
    for error in await asyncio.wait_for(asyncio.gather(*(lock(client, name).acquire() for _ in range(3)), return_exceptions=True), 60):
        assert isinstance(error, RefusedError) and "LOCK.MAIL" in str(error)
    await asyncio.to_thread(eventually, lambda: own_server.waiters("stock") == 0)
    holder.release()
    await asyncio.to_thread(eventually, own_server.nothing_is_left)
    async with lock(client, name):
        pass
    assert await mortise_lock.asyncio.close(client, 30)
    await client.aclose()


def test_a_wait_fails_where_no_more_clients_may_wait_for_letters(own_server, limited):
    client, _ = limited
    holder = Lock(redis.Redis(port=own_server.port), "stock", timeout=600)
    holder.acquire()
    own_server.admin.config_set("lock.max-waiters", 0)
    with pytest.raises(RefusedError, match="MAXWAITERS"):
        in_thread(Lock(client, "stock").acquire).result()
    eventually(lambda: own_server.waiters("stock") == 0)
    holder.release()
