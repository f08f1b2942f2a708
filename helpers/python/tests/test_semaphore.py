"""Permits: up to a limit of them are held at the same time."""
import asyncio
import threading
import time

import pytest
from servers import eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, RefusedError, Semaphore


def test_as_many_are_inside_as_there_are_permits_and_the_next_one_waits_in_the_queue(r, server):
    first, second, third = [Semaphore(r, "pool", 3, thread_local=False) for _ in range(3)]
    assert first.acquire() and second.acquire(permits=2)
    assert first.available() == 0 and first.locked()
    assert not third.acquire(blocking=False) and not third.acquire(blocking_timeout=0.05)
    waiting = in_thread(lambda: third.acquire(permits=2))
    eventually(lambda: server.waiters("pool") == 1)
    first.release()
    assert third.available() == 1
    assert not first.acquire(blocking=False), "a request overtook a waiter"
    second.release()
    assert waiting.result() is True
    assert third.available() == 1 and not third.locked()
    third.release()
    assert third.available() == 3 and server.nothing_is_left()


def test_never_more_are_inside_than_there_are_permits_whatever_each_takes(r):
    inside, most, mutex = 0, 0, threading.Lock()

    def work(permits):
        nonlocal inside, most
        for _ in range(5):
            with Semaphore(r, "pool", 5, permits):
                with mutex:
                    inside += permits
                    most = max(most, inside)
                time.sleep(0.001)
                with mutex:
                    inside -= permits

    for thread in [in_thread(lambda permits=1 + n % 3: work(permits)) for n in range(12)]:
        thread.result()
    assert most in (4, 5)


def test_permits_are_renewed_and_a_writer_of_the_name_drains_the_pool(r, server):
    permit, writer = Semaphore(r, "pool", 2, lease=3), Lock(r, "pool", thread_local=False)
    with permit:
        renewals = server.commands("renew")
        eventually(lambda: server.commands("renew") >= renewals + 2)
        waiting = in_thread(writer.acquire)
        eventually(lambda: server.waiters("pool") == 1)
        assert not Semaphore(r, "pool", 2).acquire(blocking=False)
    assert waiting.result()
    assert permit.available() == 0 and permit.locked()
    writer.release()
    assert permit.available() == 2


def test_the_server_refuses_impossible_permits_by_name(r):
    for limit, permits in [(0, 1), (2**31, 1), (1.5, 1), ("three", 1), (3, 0), (3, 4)]:
        with pytest.raises(RefusedError, match="LIMIT|HOLDS"):
            Semaphore(r, "pool", limit).acquire(permits=permits)


async def test_permits_for_tasks(ar, server):
    inside, most = 0, 0

    async def work(permits):
        nonlocal inside, most
        async with mortise_lock.asyncio.Semaphore(ar, "pool", 5, permits) as held:
            inside += permits
            most = max(most, inside)
            assert held.fencing_token and not held.lost
            await asyncio.sleep(0.001)
            inside -= permits

    await asyncio.gather(*(work(1 + n % 3) for n in range(40)))
    pool = mortise_lock.asyncio.Semaphore(ar, "pool", 5)
    assert most in (4, 5) and await pool.available() == 5 and not await pool.locked()
    assert await pool.acquire(permits=5) and await pool.locked()
    await pool.release()
