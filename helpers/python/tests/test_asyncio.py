"""The same for tasks: what can go wrong, and that cancelling leaves nothing."""
import asyncio
import gc
import random
import subprocess
import sys
import time

import pytest
import redis.asyncio
from servers import Relay, Server, eventually

import mortise_lock
from mortise_lock import _rules as rules
from mortise_lock._mail import Node
from mortise_lock._values import Hold
from mortise_lock.asyncio import Lock, LockError, LockNotOwnedError, ReadLock, Semaphore, close, taken_here


async def soon(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        await asyncio.sleep(0.01)


async def test_the_key_exists_while_the_lock_is_held_and_not_afterwards(ar):
    async with Lock(ar, "stock") as lock:
        assert await lock.locked() and await lock.owned() and lock.fencing_token > 0
        assert not await Lock(ar, "stock").acquire(blocking=False)
        with pytest.raises(LockError):
            async with Lock(ar, "stock", blocking_timeout=0.1):
                pass
    assert await ar.exists("stock") == 0


async def test_a_thousand_tasks_wait_over_two_connections_and_are_granted_in_order(ar, server):
    holder, served = Lock(ar, "stock", thread_local=False), []
    await holder.acquire()
    connected = server.admin.info("clients")["connected_clients"]

    async def serve(number):
        async with Lock(ar, "stock", thread_local=False):
            served.append(number)

    tasks = [asyncio.create_task(serve(number)) for number in range(1000)]
    await soon(lambda: server.waiters("stock") == 1000)
    assert server.admin.info("clients")["connected_clients"] <= connected + 1
    await holder.release()
    await asyncio.gather(*tasks)
    assert served == list(range(1000))


async def test_a_long_queue_is_not_sent_to_those_who_ask_about_the_lock(ar, server):
    def sent():
        return server.admin.info("stats")["total_net_output_bytes"]

    pool = Semaphore(ar, "pool", 2)
    async with pool, pool:
        tasks = [asyncio.create_task(Semaphore(ar, "pool", 2).acquire()) for _ in range(1000)]
        await soon(lambda: server.waiters("pool") == 1000)
        before = sent()
        assert await pool.owned() and await pool.locked() and await pool.available() == 0
        assert sent() - before < 50_000
        for task in tasks:
            task.cancel()
    await soon(server.nothing_is_left)


async def test_readers_share_and_keep_the_writer_out(ar):
    async with ReadLock(ar, "page"), ReadLock(ar, "page", thread_local=False):
        assert not await Lock(ar, "page").acquire(blocking=False)
    async with Lock(ar, "page"):
        assert not await ReadLock(ar, "page").acquire(blocking=False)


async def test_a_cancelled_wait_leaves_the_queue(ar, server):
    async with Lock(ar, "stock"):
        task = asyncio.create_task(Lock(ar, "stock").acquire())
        await soon(lambda: server.waiters("stock") == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await soon(lambda: server.waiters("stock") == 0)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(Lock(ar, "stock").acquire(), 0.05)
        await soon(lambda: server.waiters("stock") == 0)


async def test_many_tasks_that_give_up_at_once_each_send_leave_while_the_others_are_granted(ar, server):
    async def use(lock):
        assert await lock.acquire(blocking_timeout=600)
        await lock.release()

    async with Lock(ar, "stock", lease=600):
        tasks = [asyncio.create_task(use(Lock(ar, "stock", lease=600))) for _ in range(20_000)]
        await soon(lambda: server.waiters("stock") == 20_000, 240)
        left = server.commands("leave")
        for task in tasks[::2]:
            task.cancel()
    await asyncio.gather(*tasks[1::2])
    await soon(server.nothing_is_left, 240)
    assert 10_000 <= server.commands("leave") - left < 100_000  # some are repeated on a busy machine, but not all with each request


async def test_cancelling_at_any_moment_leaves_nothing(ar, server):
    dice = random.Random(7)

    async def use():
        async with Lock(ar, "stock", thread_local=False):
            await asyncio.sleep(dice.random() / 500)

    for _ in range(40):
        tasks = [asyncio.create_task(use()) for _ in range(5)]
        await asyncio.sleep(dice.random() / 100)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError)
    await soon(server.nothing_is_left)


async def test_a_task_cancelled_at_the_moment_of_its_grant_does_not_enter(ar, server, monkeypatch):
    deliver, waiting = Node.deliver, []

    def deliver_and_cancel(node, *mail):
        deliver(node, *mail)
        asyncio.get_running_loop().call_soon(waiting[0].cancel)  # after the first step of the waiting task

    for how in (deliver_and_cancel, lambda node, *mail: (deliver(node, *mail), waiting[0].cancel())):
        holder = Lock(ar, "stock", thread_local=False)
        await holder.acquire()
        waiting[:] = [asyncio.create_task(Lock(ar, "stock").acquire())]
        await soon(lambda: server.waiters("stock") == 1 and server.mail_readers() == 1)
        monkeypatch.setattr(Node, "deliver", how)
        await holder.release()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        monkeypatch.setattr(Node, "deliver", deliver)
        await soon(server.nothing_is_left)


async def test_a_cancelled_release_still_releases(ar, server):
    lock = Lock(ar, "stock")
    await lock.acquire()
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await soon(lambda: server.admin.exists("stock") == 0)


async def test_a_client_with_one_connection_waits_and_releases(server):
    small = redis.asyncio.Redis(port=server.port, max_connections=1, socket_timeout=0.3)
    holder = Lock(small, "stock", thread_local=False)
    await holder.acquire()
    taken = await small.connection_pool.get_connection("PING")
    waiting = [asyncio.create_task(Lock(small, "stock").acquire()) for _ in range(2)]
    await soon(lambda: server.waiters("stock") == 2 and server.mail_readers() == 1)
    await asyncio.sleep(1)  # three socket time-outs
    await soon(lambda: server.waiters("stock") == 2)
    await holder.release()
    assert await waiting[0]
    await small.connection_pool.release(taken)
    waiting[1].cancel()
    assert await close(small, 30)
    await small.aclose()


async def test_clients_made_for_each_request_share_the_connections_of_their_pool_which_close_with_it(server):
    pool = redis.asyncio.ConnectionPool(port=server.port, client_name="request", protocol=2)

    async def serve():
        async with Lock(redis.asyncio.Redis(connection_pool=pool), "stock"):
            pass

    await asyncio.gather(*(serve() for _ in range(50)))
    assert server.connections("request") == 2
    del pool, serve
    await soon(lambda: gc.collect() >= 0 and server.connections("request") == 0)


async def test_broken_and_silent_connections_leave_nothing_and_keep_the_place_in_the_queue(server, relay, ar):
    far = redis.asyncio.Redis(port=relay.port)
    holder = Lock(ar, "stock")
    await holder.acquire()
    waiting = asyncio.create_task(Lock(far, "stock", thread_local=False).acquire())
    await soon(lambda: server.waiters("stock") == 1 and server.mail_readers() == 1)
    asked = server.commands("acquire")
    relay.cut()
    await holder.release()
    assert await waiting
    assert server.commands("acquire") == asked
    assert await Lock(far, "other").acquire()
    relay.replies.clear()
    with pytest.raises(redis.RedisError):
        await Lock(far, "lost reply").acquire(blocking=False)
    assert server.admin.exists("lost reply") == 1
    relay.pass_all()
    await soon(lambda: server.admin.exists("lost reply") == 0)
    await close(far)
    await far.aclose()
    await soon(server.nothing_is_left)


async def test_a_waiter_whose_box_was_closed_asks_again(ar, relay, server):
    far, holder = redis.asyncio.Redis(port=relay.port), Lock(ar, "stock")
    await holder.acquire()
    waiting = asyncio.create_task(Lock(far, "stock").acquire(blocking_timeout=60))
    await soon(lambda: server.waiters("stock") == 1)
    server.admin.config_set("lock.mail-timeout", 100)
    relay.requests.clear()
    await soon(lambda: server.waiters("stock") == 0)
    server.admin.config_set("lock.mail-timeout", 5000)
    relay.pass_all()
    await soon(lambda: server.waiters("stock") == 1)
    await holder.release()
    assert await waiting
    await close(far)
    await far.aclose()


async def test_a_wait_ends_at_its_limit_although_no_letter_can_come(ar, relay, server):
    far = redis.asyncio.Redis(port=relay.port)
    async with Lock(ar, "stock"):
        waiting = asyncio.create_task(Lock(far, "stock").acquire(blocking_timeout=1))
        await soon(lambda: server.waiters("stock") == 1 and server.mail_readers() == 1)
        began = time.monotonic()
        relay.replies.clear()
        assert await waiting is False and time.monotonic() - began < 1.9
    relay.pass_all()
    assert await close(far, 30)
    await far.aclose()


async def test_a_waiter_stays_in_the_queue_while_the_server_runs_a_script(own_server):
    near, relay = redis.asyncio.Redis(port=own_server.port), Relay(own_server.port)
    far = redis.asyncio.Redis(port=relay.port)
    own_server.admin.config_set("busy-reply-threshold", 1)
    holder = Lock(near, "k", timeout=60)
    await holder.acquire()
    waiting = asyncio.create_task(Lock(far, "k", timeout=60).acquire())
    await soon(lambda: own_server.mail_readers() == 1)
    script = asyncio.create_task(near.eval("while true do end", 0))
    await soon(lambda: not own_server.answers())
    relay.cut()  # so that it asks for letters again
    assert not (await asyncio.wait({waiting}, timeout=0.5))[0]
    own_server.admin.script_kill()
    await asyncio.gather(script, return_exceptions=True)
    await holder.release()
    assert await asyncio.wait_for(waiting, 30)
    for client in near, far:
        await close(client)
        await client.aclose()
    relay.close()


async def test_a_busy_loop_reads_replies_that_have_come_before_it_gives_up(relay, server):
    far = redis.asyncio.Redis(port=relay.port)
    async with Lock(far, "other"):
        relay.replies.clear()
        asked = server.commands("acquire")
        asking = asyncio.create_task(Lock(far, "stock").acquire(blocking=False))
        await soon(lambda: server.commands("acquire") == asked + 1)
        await asyncio.sleep(0.1)  # it reads
        relay.pass_all()
        time.sleep(2.5)  # longer than a reply may take
        assert await asking is True
        assert server.commands("acquire") == asked + 1
    assert await close(far, 30)
    await far.aclose()


async def test_a_busy_loop_reads_a_letter_that_has_come_before_its_wait_times_out(ar, server):
    holder = Lock(ar, "stock")
    await holder.acquire()
    waiting = asyncio.create_task(Lock(ar, "stock").acquire(blocking_timeout=5))
    await soon(lambda: server.waiters("stock") == 1 and server.mail_readers() == 1)
    server.admin.delete("stock")
    time.sleep(6.5)  # longer than its wait and the time limit for a late reply
    assert await waiting is True


async def test_a_loss_is_reported_at_the_deadline_when_the_server_is_silent(relay, server):
    far = redis.asyncio.Redis(port=relay.port)
    lock = Lock(far, "stock", lease=1.0)
    await lock.acquire()
    relay.requests.clear()
    assert await lock.wait_lost(10) is True
    relay.pass_all()
    with pytest.raises(LockNotOwnedError):
        await lock.release()
    await close(far)
    await far.aclose()


async def test_a_lock_without_a_timeout_is_renewed_and_close_leaves_it(ar, server):
    lock = Lock(ar, "stock", lease=3.0)
    await lock.acquire()
    before = server.info("total_renewals")
    await soon(lambda: server.info("total_renewals") >= before + 4)
    assert not lock.lost
    assert await close(ar, 30)
    assert lock.lost and server.admin.exists("stock") == 0


async def test_locks_work_after_a_program_has_cancelled_all_tasks(ar, server):
    held, mine = Lock(ar, "held", lease=3.0), Lock(ar, "mine", thread_local=False)
    assert await held.acquire() and await mine.acquire()
    asyncio.create_task(Lock(ar, "mine").acquire())
    await soon(lambda: server.waiters("mine") == 1)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    before = server.commands("renew")
    await soon(lambda: server.commands("renew") >= before + 4, 10)
    await soon(lambda: server.waiters("mine") == 0)
    waiting = asyncio.create_task(Lock(ar, "mine").acquire(blocking_timeout=30))
    await soon(lambda: server.waiters("mine") == 1)
    await mine.release()
    assert await waiting and await held.owned() and not held.lost
    assert await close(ar, 30)
    await soon(server.nothing_is_left)


async def test_requests_are_sent_after_a_program_has_cancelled_all_tasks_as_one_began(ar, server):
    async with Lock(ar, "warm", timeout=60):
        pass
    await soon(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    asking = asyncio.create_task(Lock(ar, "stock", timeout=60).acquire())
    await asyncio.sleep(0)  # now the task that sends exists, and has not begun
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await asyncio.wait_for(Lock(ar, "stock", timeout=60).acquire(blocking_timeout=30), 60)
    await ar.delete("stock")
    await soon(server.nothing_is_left)


@pytest.mark.parametrize("begun", [False, True])
async def test_who_cancels_all_tasks_in_the_midst_of_a_request_is_served_in_the_same_turn(relay, begun):
    far = redis.asyncio.Redis(port=relay.port)
    async with Lock(far, "warm", timeout=60):
        pass
    await soon(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    relay.replies.clear()
    asyncio.create_task(Lock(far, "stock").locked())
    await asyncio.sleep(0.2 if begun else 0)  # now the task that sends exists, and has sent, or has not begun
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    relay.pass_all()
    late = asyncio.get_running_loop().call_later(60, asyncio.current_task().cancel)
    assert not await Lock(far, "stock").locked()
    late.cancel()
    await close(far)
    await far.aclose()


def test_a_loop_that_ends_with_a_lock_leaves_no_task(server):
    program = f"""
import asyncio, redis.asyncio
from mortise_lock.asyncio import Lock
async def main():
    await Lock(redis.asyncio.Redis(port={server.port}), "stock").acquire()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "pending" not in done.stderr, done.stderr


async def test_an_idle_connection_that_the_server_has_closed_is_not_used(ar, server):
    lock = Lock(ar, "stock", timeout=60)
    assert await lock.acquire()
    server.admin.client_kill_filter(_type="normal", skipme=True)
    await asyncio.sleep(0.1)  # for the loop to read that
    assert await lock.pass_to("queue", 60)


async def test_a_waiter_follows_to_the_primary_that_is_behind_the_address_now(own_server):
    promoted, relay = Server(), Relay(own_server.port)
    client = redis.asyncio.Redis(port=relay.port)
    holder = Lock(client, "stock", thread_local=False)
    assert await holder.acquire()
    waiting = asyncio.create_task(Lock(client, "stock").acquire(blocking_timeout=30))
    await soon(lambda: own_server.mail_readers() == 1)
    own_server.admin.replicaof("127.0.0.1", 1)
    relay.target = promoted.port
    assert await waiting and promoted.admin.exists("stock") == 1
    await close(client)
    await client.aclose()
    relay.close(), promoted.close()


async def test_a_wait_at_a_server_that_answers_nobody_ends_at_its_limit(own_server):
    client = redis.asyncio.Redis(port=own_server.port)
    own_server.freeze()
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        await Lock(client, "stock").acquire(blocking_timeout=4.3)
    assert 4.2 < time.monotonic() - began < 6
    own_server.thaw()
    assert await close(client, 30)
    await client.aclose()


@pytest.mark.parametrize("limit", [None, 5])
async def test_a_queued_wait_at_a_server_that_is_gone_ends_with_its_error(own_server, monkeypatch, limit):
    if limit is None:
        for module in mortise_lock._lock, mortise_lock._mail:
            monkeypatch.setattr(module, "PATIENCE", 500)
    client = redis.asyncio.Redis(port=own_server.port)
    await Lock(client, "stock", timeout=600).acquire()
    waiting = asyncio.create_task(Lock(client, "stock").acquire(blocking_timeout=limit))
    await soon(lambda: own_server.waiters("stock") == 1 and own_server.mail_readers() == 1)
    own_server.kill()
    with pytest.raises(redis.ConnectionError, match="connect"):
        await asyncio.wait_for(waiting, 60)
    assert not await close(client, 0)
    await client.aclose()


async def test_expired_locks_that_nobody_released_do_not_pile_up(ar):
    for number in range(5):
        lock = Lock(ar, f"stock:{number}", timeout=0.05)
        assert await lock.acquire()
        assert await lock.wait_lost(60)
    assert len(taken_here.get()) == 1


async def test_a_cancelled_takeover_leaves_the_name(r, ar, relay, server):
    job = Lock(ar, "job")
    await job.acquire()
    token = await job.pass_to("queue", 60)
    far = redis.asyncio.Redis(port=relay.port)
    assert not await Lock(far, "other").locked()
    relay.replies.clear()
    passes = server.commands("pass")
    taking = asyncio.create_task(Lock(far, "job").take_over("queue", token))
    await soon(lambda: server.commands("pass") > passes)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    relay.pass_all()
    await soon(lambda: server.admin.exists("job") == 0)
    await close(far)
    await far.aclose()


def test_a_second_event_loop_gets_new_connections(server):
    client = redis.asyncio.Redis(port=server.port, single_connection_client=False)

    async def use():
        async with Lock(client, "stock"):
            pass
        await close(client)
        await client.connection_pool.disconnect()

    asyncio.run(use())
    asyncio.run(use())
    eventually(server.nothing_is_left)


def test_close_after_the_loop_of_a_lock_was_closed_says_that_the_lock_was_not_left(server):
    async def take(timeout):
        client = redis.asyncio.Redis(port=server.port)
        assert await Lock(client, "stock", timeout=timeout).acquire()
        return client

    assert asyncio.run(close(asyncio.run(take(1)))) is True, "a lock with a timeout is not renewed, and not left"
    assert asyncio.run(close(asyncio.run(take(None)))) is False


def test_after_a_loop_ends_without_close_its_lock_lasts_for_its_lease_and_the_next_loop_works(server):
    async def take(client):
        lock = Lock(client, "stock", lease=1.0, thread_local=False)
        await lock.acquire(blocking_timeout=60)
        return lock

    async def first():
        return await take(redis.asyncio.Redis(port=server.port))

    async def next_one(before):
        lock = await take(before.redis)
        assert await lock.owned() and before.lost and before.fencing_token < lock.fencing_token
        with pytest.raises(LockError):
            await before.release()
        await close(before.redis)
        await before.redis.connection_pool.disconnect()

    asyncio.run(next_one(asyncio.run(first())))
    eventually(server.nothing_is_left)


async def test_closing_in_the_turn_of_a_grant_grants_nothing_and_leaves_nothing(ar, server, monkeypatch):
    own, granted = redis.asyncio.Redis(port=server.port), Hold.granted

    def close_meanwhile(hold, token, begin):
        granted(hold, token, begin)
        if hold.lease == 600_000:
            with pytest.raises(StopIteration):
                rules.Session.close(own.connection_pool._mortise_sessions[0], 0).send(None)  # all of it, in this turn

    monkeypatch.setattr(Hold, "granted", close_meanwhile)
    for timeout in (None, 600):
        holder = Lock(ar, "stock")
        await holder.acquire()
        waiting = asyncio.create_task(Lock(own, "stock", timeout, lease=600).acquire())
        await soon(lambda: server.waiters("stock") == 1)
        await holder.release()
        with pytest.raises(redis.ConnectionError, match="closed"):
            await waiting
        assert await close(own, 30)
        await soon(lambda: server.admin.exists("stock") == 0)
    await own.aclose()
