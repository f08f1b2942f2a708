"""Locks that are passed on, revoked, or kept for a while after the work, and the holders that operators see."""
import pytest
import redis
from servers import eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, LockError, LockNotOwnedError, RefusedError, close, revoke


def holds(server, name):
    info = server.admin.execute_command("LOCK.INFO", name)
    return info["holds"] if info else []


def owners(server, name):
    return [hold["owner"] for hold in holds(server, name)]


def test_a_lock_is_passed_on_and_one_of_two_runners_takes_it_over(r, server):
    enqueued = Lock(r, "import:7")
    assert enqueued.acquire()
    first = enqueued.fencing_token
    token = enqueued.pass_to("job:7", 600)
    assert token > first and enqueued.fencing_token is None and not enqueued.lost
    assert owners(server, "import:7") == ["job:7"] and holds(server, "import:7")[0]["lease"] > 500_000
    with pytest.raises(LockError, match="not acquired"):
        enqueued.release()

    runners = [Lock(r, "import:7", thread_local=False) for _ in range(2)]
    assert [runner.take_over("job:7", token) for runner in runners] == [True, False]
    assert runners[0].owned() and runners[0].fencing_token > token
    assert not Lock(r, "import:7").acquire(blocking=False)
    runners[0].release()
    assert not runners[0].locked()


def test_a_lock_that_was_taken_over_is_renewed(r, server):
    lock, runner = Lock(r, "job"), Lock(r, "job", lease=3)
    lock.acquire()
    assert runner.take_over("queue", lock.pass_to("queue", 60))
    renewals = server.commands("renew")
    eventually(lambda: server.commands("renew") >= renewals + 2)
    assert runner.owned() and not runner.lost
    runner.release()


def test_a_block_may_end_after_its_lock_was_passed_on(r, server):
    with Lock(r, "job") as lock:
        lock.pass_to("queue", 60)
    assert owners(server, "job") == ["queue"]
    r.execute_command("LOCK.LEAVE", "job", "queue")
    with pytest.raises(LockNotOwnedError), lock:
        r.delete("job")


def test_a_lost_lock_cannot_be_passed_on(r):
    lock = Lock(r, "job")
    with pytest.raises(LockError, match="not acquired"):
        lock.pass_to("queue", 60)
    lock.acquire()
    r.delete("job")
    with pytest.raises(LockNotOwnedError):
        lock.pass_to("queue", 60)


def test_a_lock_whose_pass_is_refused_stays_held_and_renewed(r, server):
    lock = Lock(r, "job", lease=3)
    lock.acquire()
    r.execute_command("LOCK.LEAVE", "job", "gone", "FOR", 60_000)
    with pytest.raises(redis.ResponseError, match="LEFT"):
        lock.pass_to("gone", 60)
    renewals = server.commands("renew")
    eventually(lambda: server.commands("renew") >= renewals + 2)
    assert lock.owned() and not lock.lost
    lock.release()


@pytest.fixture
def passing(server, relay):
    """A lock whose pass is in flight, and will be refused: what starts that, and what lets it go on and awaits its end."""
    client = redis.Redis(port=relay.port)

    def start(**options):
        lock = Lock(client, "job", thread_local=False, **options)
        lock.acquire()
        server.admin.execute_command("LOCK.LEAVE", "job", "gone", "FOR", 60_000)
        relay.requests.clear()
        passing = in_thread(lambda: lock.pass_to("gone", 60))
        eventually(lambda: lock.fencing_token is None)

        def finish():
            relay.pass_all()
            with pytest.raises(redis.ResponseError, match="LEFT"):
                passing.result()

        return lock, finish

    yield start
    assert close(client, 30)


def test_a_lock_that_is_being_passed_on_can_neither_be_extended_nor_passed_again(passing, server):
    lock, finish = passing(timeout=60)
    for attempt in (lambda: lock.pass_to("other", 60), lambda: lock.extend(5), lock.reacquire):
        with pytest.raises(LockError, match="not acquired"):
            attempt()
    finish()
    assert lock.owned() and not lock.lost and lock.extend(5)
    lock.release()
    assert server.nothing_is_left()


def test_a_lock_that_is_extended_when_its_pass_begins_and_is_refused_stays_held(server, relay):
    lock = Lock(redis.Redis(port=relay.port), "job", timeout=60, thread_local=False)
    lock.acquire()
    server.admin.execute_command("LOCK.LEAVE", "job", "gone", "FOR", 60_000)
    renewals = server.commands("renew")
    relay.replies.clear()
    extending = in_thread(lambda: lock.extend(5))
    eventually(lambda: server.commands("renew") > renewals)
    passing = in_thread(lambda: lock.pass_to("gone", 60))
    eventually(lambda: lock.fencing_token is None)
    relay.pass_all()
    assert extending.result()
    with pytest.raises(redis.ResponseError, match="LEFT"):
        passing.result()
    assert lock.owned() and not lock.lost
    lock.release()
    close(lock.redis)


def test_a_pass_whose_reply_is_lost_frees_the_lock_under_both_names(server, relay):
    client = redis.Redis(port=relay.port)
    lock = Lock(client, "job")
    lock.acquire()
    relay.replies.clear()
    with pytest.raises(redis.RedisError):
        lock.pass_to("unheard", 60)
    relay.cut()
    relay.pass_all()
    eventually(server.nothing_is_left)
    with pytest.raises(redis.ResponseError, match="LEFT"):
        server.admin.execute_command("LOCK.ACQUIRE", "job", "unheard", 1_000)
    close(client)


def test_a_takeover_whose_reply_is_lost_leaves_no_hold(r, server, relay):
    lock, client = Lock(r, "job"), redis.Redis(port=relay.port)
    runner = Lock(client, "job")
    assert not runner.locked()
    lock.acquire()
    token, passes = lock.pass_to("queue", 60), server.commands("pass")
    relay.replies.clear()

    def break_off():
        eventually(lambda: server.commands("pass") > passes)
        relay.cut()
        relay.pass_all()

    breaking = in_thread(break_off)
    with pytest.raises(redis.ConnectionError):
        runner.take_over("queue", token)
    breaking.result()
    eventually(server.nothing_is_left)
    close(client)


def test_a_lock_released_early_stays_taken_until_its_least_time_is_over(r, server):
    with Lock(r, "report", at_least=3):
        assert 29_000 < holds(server, "report")[0]["lease"] <= 30_000
    [rest] = holds(server, "report")
    assert rest["owner"].startswith("rest:") and 1 <= rest["lease"] <= 3_000
    assert not Lock(r, "report").acquire(blocking=False)
    with Lock(r, "report", at_least=0.003):
        pass


def test_a_longer_at_least_is_the_lease_so_that_it_outlives_the_process(r, server):
    lock = Lock(r, "report", timeout=1, at_least=60)
    lock.acquire()
    assert 59_000 < holds(server, "report")[0]["lease"] <= 60_000
    lock.release()
    assert 59_000 < holds(server, "report")[0]["lease"] <= 60_000
    assert close(r)
    assert owners(server, "report")[0].startswith("rest:")


def test_a_lock_held_when_the_program_ends_stays_taken_for_its_least_time(server):
    client = redis.Redis(port=server.port)
    Lock(client, "report", at_least=60).acquire()
    assert close(client)
    [held] = holds(server, "report")
    assert 59_000 < held["lease"] <= 60_000


def test_a_revoked_lock_is_free_at_its_release_despite_at_least(r, server):
    lock = Lock(r, "report", at_least=60)
    lock.acquire()
    assert 50 < revoke(r, "report") <= 60
    lock.release()
    assert server.nothing_is_left()


@pytest.mark.parametrize("at_least", [None, 60])
def test_a_revoked_holder_notices_at_its_next_renewal_and_leaves(r, server, at_least):
    lock = Lock(r, "stock", lease=60 if at_least else 3, at_least=at_least)
    lock.acquire()
    [owner] = owners(server, "stock")
    assert revoke(r, "stock", "nobody") is None and revoke(r, "other") is None
    assert 0 < revoke(r, "stock", owner) <= 60
    lock._hold.renew_at = 0  # with a lease of a minute nobody waits for a third of that
    assert lock.wait_lost(50)
    eventually(server.nothing_is_left)
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_extending_a_revoked_lock_reports_the_loss(r, server):
    lock = Lock(r, "stock", timeout=60)
    lock.acquire()
    revoke(r, "stock")
    with pytest.raises(LockNotOwnedError):
        lock.extend(60)
    assert lock.lost
    eventually(server.nothing_is_left)


def test_a_server_error_at_a_pass_or_a_revocation_is_reported_as_such(r):
    r.set("job", "text")
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        revoke(r, "job")
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        Lock(r, "job").take_over("queue", 1)


def test_in_the_grace_in_which_nothing_is_passed_on_a_lock_stays_taken_until_its_lease_is_over(own_server):
    client = redis.Redis(port=own_server.port)
    lock = Lock(client, "report", at_least=10, lease=1)
    lock.acquire()
    [owner] = owners(own_server, "report")
    own_server.admin.save()
    own_server.kill()
    own_server.arguments += ["--lock.grace", "3000"]
    own_server.start()
    lock.release()
    assert owners(own_server, "report") == [owner]
    assert close(client) and holds(own_server, "report")[0]["lease"] > 1_000
    eventually(own_server.nothing_is_left)


def test_operators_see_who_holds(r, server):
    with Lock(r, "stock", holder="billing-7") as lock:
        [owner] = owners(server, "stock")
        assert owner.startswith("billing-7:") and lock.owned()
    with Lock(r, "stock", holder="billing-7", at_least=60) as lock:
        pass
    assert owners(server, "stock")[0].startswith("rest:billing-7:")
    named = Lock(r, "order", holder=b"billing-7")
    named.acquire(token="order-17")
    assert owners(server, "order")[0].startswith("order-17##billing-7:")
    named.release()
    for wrong in ("", "a##b"):
        with pytest.raises(ValueError, match="holder"):
            Lock(r, "stock", holder=wrong)


async def test_tasks_pass_on_take_over_and_revoke_too(ar, server):
    aio = mortise_lock.asyncio
    async with aio.Lock(ar, "job", holder="web") as lock:
        token = await lock.pass_to("queue", 60)
    runner = aio.Lock(ar, "job", at_least=60)
    assert await runner.take_over("queue", token) and not await lock.take_over("queue", token)
    await runner.release()
    assert owners(server, "job")[0].startswith("rest:")
    assert 50 < await aio.revoke(ar, "job") <= 60 and await aio.revoke(ar, "other") is None
