"""Commands that the server refuses to a user, or to all of them."""
import asyncio

import pytest
import redis
from servers import eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, MultiLock, RefusedError, close


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


@pytest.mark.parametrize("kind, name", [(Lock, "stock"), (MultiLock, ["stock", "other"])])
def test_a_wait_fails_where_the_user_may_not_collect_letters_and_leaves_the_queue(own_server, limited, kind, name):
    client, forbid = limited
    forbid("lock.mail")
    holder = Lock(redis.Redis(port=own_server.port), "stock", timeout=600)
    holder.acquire()
    with pytest.raises(RefusedError, match="LOCK.MAIL"):
        in_thread(kind(client, name).acquire).result()
    eventually(lambda: own_server.waiters("stock") == 0)
    holder.release()
    eventually(own_server.nothing_is_left)
    with kind(client, name):
        pass


def test_a_wait_fails_where_no_more_clients_may_wait_for_letters(own_server, limited):
    client, _ = limited
    holder = Lock(redis.Redis(port=own_server.port), "stock", timeout=600)
    holder.acquire()
    own_server.admin.config_set("lock.max-waiters", 0)
    with pytest.raises(RefusedError, match="MAXWAITERS"):
        in_thread(Lock(client, "stock").acquire).result()
    eventually(lambda: own_server.waiters("stock") == 0)
    holder.release()


async def test_tasks_fail_too_where_the_user_may_not_collect_letters(own_server, limited):
    limited[1]("lock.mail")
    holder = Lock(redis.Redis(port=own_server.port), "stock", timeout=600)
    holder.acquire()
    client = redis.asyncio.Redis(port=own_server.port, username="limited", password="any")
    waiting = [mortise_lock.asyncio.Lock(client, "stock").acquire() for _ in range(3)]
    for error in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60):
        assert isinstance(error, RefusedError) and "LOCK.MAIL" in str(error)
    assert await mortise_lock.asyncio.close(client, 30)
    assert own_server.waiters("stock") == 0
    holder.release()
    await client.aclose()
