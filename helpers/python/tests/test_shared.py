"""One lock object that several threads or tasks use: each acquisition belongs to the one that made it."""
import asyncio
import threading
import time

import pytest
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, LockError, LockNotOwnedError, ReadLock, Semaphore

aio = mortise_lock.asyncio


def reads(server, key):
    info = server.admin.execute_command("LOCK.INFO", key)
    return sum(hold["read"] for hold in info["holds"]) if info else 0


@pytest.mark.parametrize("thread_local", [True, False])
def test_ten_threads_that_share_a_semaphore_leave_no_permit_behind(r, server, thread_local):
    pool, inside, most, mutex = Semaphore(r, "pool", 3, thread_local=thread_local), [0], [0], threading.Lock()

    def work():
        for _ in range(5):
            with pool:
                with mutex:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with mutex:
                    inside[0] -= 1

    for thread in [in_thread(work) for _ in range(10)]:
        thread.result()
    assert most[0] <= 3 and server.nothing_is_left()


async def test_ten_tasks_that_share_an_object_leave_nothing_behind(ar, server):
    for shared in aio.Semaphore(ar, "pool", 3), aio.ReadLock(ar, "page"), aio.Lock(ar, "stock"):
        async def work():
            for _ in range(5):
                async with shared as lock:
                    assert not lock.lost and await lock.owned()
                    await asyncio.sleep(0.001)

        await asyncio.gather(*(work() for _ in range(10)))
        assert server.nothing_is_left()


def test_nested_blocks_of_one_object_give_back_what_each_has_taken(r, server):
    pool = Semaphore(r, "pool", 3)
    with pool:
        outer = pool.fencing_token
        with pool:
            assert reads(server, "pool") == 2 and pool.fencing_token > outer
        assert reads(server, "pool") == 1 and pool.fencing_token == outer and pool.owned()
    assert server.nothing_is_left()


async def test_a_task_that_has_lost_its_lock_does_not_release_that_of_the_next_task(ar, server):
    lock, lost, next_inside = aio.Lock(ar, "stock"), asyncio.Event(), asyncio.Event()

    async def first():
        async with lock:
            await ar.delete("stock")
            lost.set()
            await next_inside.wait()

    async def second():
        await lost.wait()
        async with lock:
            next_inside.set()
            with pytest.raises(LockNotOwnedError):
                await losing
            assert await lock.owned() and not lock.lost
            assert server.admin.exists("stock")

    losing = asyncio.create_task(first())
    await second()
    assert server.nothing_is_left()


async def test_an_explicit_release_gives_back_what_the_same_task_has_taken(ar, server):
    pool, tokens = aio.Semaphore(ar, "pool", 5), {}

    async def work(number):
        assert await pool.acquire()
        tokens[number] = pool.fencing_token
        await asyncio.sleep(0.001 * (5 - number))
        assert pool.fencing_token == tokens[number]
        await pool.release()

    await asyncio.gather(*(work(number) for number in range(5)))
    assert len(set(tokens.values())) == 5 and server.nothing_is_left()


async def test_what_a_task_that_is_over_has_taken_can_be_released_by_another(ar, server):
    lock = aio.Lock(ar, "stock")
    assert await asyncio.create_task(lock.acquire())
    assert lock.fencing_token and await lock.owned()
    await lock.release()
    with pytest.raises(LockError, match="not acquired"):
        await lock.release()
    assert server.nothing_is_left()


async def test_a_task_can_release_what_the_task_that_began_it_had_taken(ar, server):
    lock = aio.Lock(ar, "stock")
    for how in asyncio.create_task, asyncio.shield, lambda work: asyncio.wait_for(work, 60):
        assert await lock.acquire()
        await how(lock.release())
        assert server.nothing_is_left()


@pytest.mark.parametrize("false", [False, 0, None])
def test_a_thread_sees_only_what_it_took_itself_unless_thread_local_is_false(r, false):
    mine, ours = ReadLock(r, "mine"), ReadLock(r, "ours", thread_local=false)
    mine.acquire(), ours.acquire()

    def look():
        with pytest.raises(LockError, match="not acquired"):
            mine.release()
        ours.release()
        return mine.fencing_token, ours.fencing_token

    assert in_thread(look).result() == (None, None)
    mine.release()


def test_losses_that_nobody_released_do_not_pile_up(r):
    lock = Lock(r, "stock", timeout=0.05)
    for _ in range(5):
        assert lock.acquire()
        assert lock.wait_lost(60)
    assert len(lock._taken.acquisitions) == 1


async def test_losses_of_threads_and_tasks_that_are_over_do_not_pile_up(r, ar, monkeypatch):
    monkeypatch.setattr(mortise_lock._taken, "FORGET", 0)
    threads, tasks = ReadLock(r, "stock", timeout=0.05), aio.ReadLock(ar, "stock", timeout=0.05)
    for _ in range(5):
        thread = in_thread(lambda: threads.acquire() and threads.wait_lost(60))
        await asyncio.to_thread(thread.join)
        assert thread.result()
        assert await asyncio.create_task(tasks.acquire()) and await tasks.wait_lost(60)
    assert len(threads._taken.acquisitions) == 1 and len(tasks._taken.acquisitions) == 1


async def test_a_block_is_cancelled_when_its_lock_is_lost_if_that_is_wanted(ar, server):
    for shared in aio.Lock(ar, "stock", lease=1.5, cancel_on_loss=True), aio.Semaphore(ar, "stock", 3, lease=1.5, cancel_on_loss=True):
        with pytest.raises(LockNotOwnedError):
            async with shared:
                await ar.delete("stock")
                await asyncio.sleep(600)
        async with shared:  # which is not lost
            await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0 if hasattr(asyncio.Task, "cancelling") else True
    assert server.nothing_is_left()


async def test_a_block_that_somebody_else_cancels_is_cancelled(ar, server):
    async def work():
        async with aio.Lock(ar, "stock", cancel_on_loss=True):
            inside.set()
            await asyncio.sleep(600)

    inside, working = asyncio.Event(), asyncio.create_task(work())
    await inside.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert server.nothing_is_left()


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="from Python 3.12 on")
async def test_a_block_whose_lock_was_lost_before_it_began_shows_the_loss_with_eager_tasks(ar, monkeypatch):
    async def enter_late():
        taken = await enter()
        time.sleep(0.1)
        return taken

    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    lock = aio.Lock(ar, "stock", timeout=0.05, cancel_on_loss=True)
    enter = lock._enter
    monkeypatch.setattr(lock, "_enter", enter_late)
    with pytest.raises(LockNotOwnedError):
        async with lock:
            pass


async def test_tasks_guard_their_commands(ar):
    lock = aio.Lock(ar, "{stock}")
    assert await lock.acquire()
    assert await lock.guard("INCR", "{stock}:count") == 1
    await ar.delete("{stock}")
    with pytest.raises(LockNotOwnedError):
        await lock.guard("INCR", "{stock}:count")
    async with aio.MultiLock(ar, ["{stock}", "{stock}:2"]) as both:
        assert await both.guard("INCR", "{stock}:count") == 2
