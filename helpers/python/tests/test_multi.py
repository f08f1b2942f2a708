"""Several locks at once: all or none."""
import asyncio
import time

import pytest
import redis
from servers import eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, LockError, LockNotOwnedError, MultiLock, RefusedError


def test_several_locks_are_acquired_at_once_by_one_token_and_released_together(r, server):
    several = MultiLock(r, ["a", "b", b"c"])
    with several:
        assert several.owned() and several.locked() and not several.lost
        tokens = {server.admin.execute_command("LOCK.INFO", name)["holds"][0]["token"] for name in "abc"}
        assert tokens == {several.fencing_token}
        assert not Lock(r, "b").acquire(blocking=False)
    assert server.nothing_is_left() and not several.locked() and not several.owned()
    with pytest.raises(LockError):
        several.release()


def test_a_waiter_for_several_locks_holds_none_and_is_granted_all_when_the_last_is_free(r, server):
    b, several = Lock(r, "b", thread_local=False), MultiLock(r, ["a", "b"], thread_local=False)
    assert b.acquire()
    assert not several.acquire(blocking_timeout=0.05)
    waiting = in_thread(several.acquire)
    eventually(lambda: server.waiters("a") == 1)
    assert not Lock(r, "a").locked()
    token = b.fencing_token
    b.release()
    assert waiting.result() and several.fencing_token > token
    several.release()
    assert server.nothing_is_left()


def test_each_of_several_locks_is_renewed_and_the_loss_of_one_is_reported(r, server):
    several = MultiLock(r, ["a", "b"], lease=3)
    assert several.acquire()
    renewals = server.commands("renew")
    eventually(lambda: server.commands("renew") >= renewals + 4)
    assert not several.lost
    server.admin.delete("b")
    assert several.wait_lost(60) and several.lost
    with pytest.raises(LockNotOwnedError):
        several.release()
    eventually(server.nothing_is_left)


def test_several_locks_with_a_timeout_can_be_extended(r, server):
    several = MultiLock(r, ["a", "b"], timeout=5)
    assert several.acquire()
    assert several.extend(60) and several.reacquire()
    assert all(server.admin.execute_command("LOCK.INFO", name)["holds"][0]["lease"] > 10_000 for name in "ab")
    several.release()


def test_an_acquire_of_several_locks_whose_reply_is_lost_leaves_no_key_taken(server, relay):
    far = redis.Redis(port=relay.port)
    with Lock(far, "warm"):
        pass
    relay.replies.clear()
    with pytest.raises(redis.RedisError):
        MultiLock(far, ["a", "b"]).acquire(blocking=False)
    eventually(lambda: server.admin.exists("a", "b") == 2)  # the request was granted, and its reply was lost
    relay.pass_all()
    eventually(lambda: server.admin.exists("a", "b", "warm") == 0)
    mortise_lock.close(far, 10)


def test_several_locks_at_a_silent_server_are_asked_for_no_longer_than_one(own_server):
    client = redis.Redis(port=own_server.port)
    several = MultiLock(client, ["a", "b", "c", "d"], timeout=60)
    assert several.acquire()
    own_server.freeze()
    for end in (lambda: pytest.raises(redis.TimeoutError, several.extend, 60), several.release):
        began = time.monotonic()
        end()
        assert time.monotonic() - began < 3.9
    own_server.thaw()
    assert mortise_lock.close(client, 30)
    assert own_server.admin.dbsize() == 0


@pytest.mark.parametrize("gone", "abc")
def test_of_several_locks_with_at_least_all_stay_taken_or_none(r, server, gone):
    several = MultiLock(r, "a b c".split(), at_least=60)
    with several:
        pass
    assert server.admin.exists("a", "b", "c") == 3
    server.admin.flushall()
    assert several.acquire()
    server.admin.delete(gone)
    with pytest.raises(LockNotOwnedError):
        several.release()
    eventually(server.nothing_is_left)


async def test_a_cancelled_task_that_waits_for_several_locks_leaves_every_queue(ar, server):
    b = mortise_lock.asyncio.Lock(ar, "b", thread_local=False)
    assert await b.acquire()
    waiting = asyncio.ensure_future(mortise_lock.asyncio.MultiLock(ar, ["a", "b"], thread_local=False).acquire())
    while server.waiters("a") != 1:
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await b.release()
    async with mortise_lock.asyncio.MultiLock(ar, ["a", "b"], lease=1.0) as several:
        assert await several.owned() and several.fencing_token
    while not server.nothing_is_left():
        await asyncio.sleep(0.01)


def test_impossible_arguments_are_refused(r):
    for names in ("ab", b"ab", [], None):
        with pytest.raises(TypeError):
            MultiLock(r, names)
    with pytest.raises(RefusedError):
        MultiLock(r, ["a", "a"]).acquire()
    with pytest.raises(TypeError):
        MultiLock(r, ["a", "b"]).pass_to("c", 5)
    for lock in Lock(r, "a"), MultiLock(r, ["a", "b"]):
        with pytest.raises(TypeError, match="permits"):
            lock.acquire(permits=3)
