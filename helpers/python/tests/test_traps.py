"""What goes wrong when lock commands meet a client library's defaults and a broken network, but not with this library."""
import contextlib
import gc
import itertools
import select
import signal
import sys
import threading
import time

import pytest
import redis
from servers import Relay, Server, eventually
from test_lock import in_thread, refused

import mortise_lock
from mortise_lock import Lock, LockNotOwnedError, close
from mortise_lock._values import Hold, now


@pytest.fixture
def far(relay):
    """A client behind the relay."""
    client = redis.Redis(port=relay.port)
    yield client
    relay.pass_all()
    close(client)


def test_a_wait_longer_than_the_socket_timeout_keeps_its_place_and_is_sent_once(r, server):
    impatient = redis.Redis(port=server.port, socket_timeout=0.3)
    holder = Lock(r, "stock")
    holder.acquire()
    first = in_thread(lambda: Lock(impatient, "stock").acquire(blocking_timeout=60))
    eventually(lambda: server.waiters("stock") == 1)
    second = in_thread(lambda: Lock(r, "stock").acquire(blocking_timeout=60))
    eventually(lambda: server.waiters("stock") == 2)
    asked, queue = server.commands("acquire"), server.queue("stock")
    time.sleep(1.2)  # four socket time-outs long
    assert server.queue("stock") == queue and server.commands("acquire") == asked
    holder.release()
    assert first.result() is True
    assert second.is_alive()
    close(impatient)
    assert second.result() is True


def test_a_hundred_waiters_do_not_starve_the_release_of_connections(server):
    small = redis.Redis(port=server.port, max_connections=1)
    holder = Lock(small, "stock")
    holder.acquire()
    threads = [in_thread(lambda: take_and_give(small)) for _ in range(100)]
    eventually(lambda: server.waiters("stock") == 100)
    said = server.commands("release"), server.commands("leave")
    holder.release()
    assert server.commands("release") > said[0] and server.commands("leave") == said[1], "it sent something else than a release"
    assert all(thread.result() for thread in threads)
    assert close(small, 30)


def take_and_give(client):
    with Lock(client, "stock"):
        return True


def test_a_pool_whose_connections_are_all_in_use_delays_no_release(server):
    small = redis.Redis(port=server.port, max_connections=1)
    lock = Lock(small, "stock")
    lock.acquire()
    taken = small.connection_pool.get_connection("PING")
    with pytest.raises(redis.RedisError):
        small.ping()
    lock.release()
    small.connection_pool.release(taken)
    assert server.admin.exists("stock") == 0
    close(small)


def test_the_rest_of_a_wait_never_becomes_a_wait_without_limit(r):
    with Lock(r, "stock", thread_local=False):
        for limit in (0.0004, 0.001, 0):
            assert in_thread(lambda: Lock(r, "stock").acquire(blocking_timeout=limit)).result() is False


def test_a_waiter_does_not_block_others_that_share_its_client(r, server):
    with Lock(r, "stock", thread_local=False):
        waiting = in_thread(lambda: Lock(r, "stock").acquire())
        eventually(lambda: server.waiters("stock") == 1)
        with Lock(r, "other"):
            assert r.ping()
        assert server.waiters("stock") == 1 and waiting.is_alive()


def test_a_lost_reply_leaves_no_lock(far, relay, server):
    assert Lock(far, "other").acquire(blocking=False)
    relay.replies.clear()
    with pytest.raises(redis.RedisError):
        Lock(far, "stock").acquire(blocking=False)
    assert server.admin.exists("stock") == 1, "the request was granted, and its reply was lost"
    relay.pass_all()
    eventually(lambda: server.admin.exists("stock") == 0)


def test_a_request_that_arrives_late_takes_nothing(far, relay, server):
    assert Lock(far, "other").acquire(blocking=False)
    relay.requests.clear()
    with pytest.raises(redis.RedisError):
        Lock(far, "stock").acquire(blocking=False)
    direct = Lock(redis.Redis(port=server.port), "stock")
    left = server.commands("leave")
    relay.pass_all()
    eventually(lambda: server.commands("leave") > left)
    eventually(lambda: server.admin.exists("stock") == 0)
    assert direct.acquire(blocking=False)
    close(direct.redis)


def test_a_waiter_that_gave_up_over_a_silent_connection_is_not_granted_later(far, relay, r, server):
    with Lock(r, "stock"):
        relay.replies.clear()
        with pytest.raises(redis.RedisError):
            Lock(far, "stock").acquire(blocking_timeout=0.5)
        relay.pass_all()
        eventually(lambda: server.waiters("stock") == 0)
    assert r.exists("stock") == 0


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_a_release_whose_connection_breaks_is_repeated_until_it_gets_a_reply(far, relay, server, how):
    lock = Lock(far, "stock", lease=60)
    lock.acquire()
    if how == "silent":
        relay.requests.clear()
        threading.Timer(2.5, relay.pass_all).start()
    relay.cut()
    lock.release()
    eventually(lambda: server.admin.exists("stock") == 0)


def test_a_waiter_whose_connection_breaks_asks_again(far, relay, r, server):
    holder = Lock(r, "stock")
    holder.acquire()
    waiting = in_thread(lambda: Lock(far, "stock").acquire(blocking_timeout=60))
    eventually(lambda: server.waiters("stock") == 1)
    asked = server.commands("acquire")
    relay.cut()
    eventually(lambda: server.commands("acquire") > asked and server.waiters("stock") == 1)
    holder.release()
    assert waiting.result() is True


def test_a_waiter_without_a_limit_outlasts_connections_that_break_now_and_then(far, relay, r, server, monkeypatch):
    monkeypatch.setattr(mortise_lock._lock, "PATIENCE", 200)
    holder = Lock(r, "stock")
    holder.acquire()
    waiting = in_thread(lambda: Lock(far, "stock").acquire())
    for _ in range(3):
        eventually(lambda: server.waiters("stock") == 1)
        time.sleep(0.3)  # for longer than it bears a server that answers nobody
        asked = server.commands("acquire")
        relay.cut()
        eventually(lambda: server.commands("acquire") > asked)
    eventually(lambda: server.waiters("stock") == 1)
    holder.release()
    assert waiting.result() is True


def test_a_waiter_notices_a_server_that_is_gone_without_a_word(far, relay, r, server):
    holder = Lock(r, "stock")
    holder.acquire()
    waiting = in_thread(lambda: Lock(far, "stock").acquire())
    eventually(lambda: server.waiters("stock") == 1)
    asked = server.commands("acquire")
    relay.replies.clear()  # no connection breaks
    eventually(lambda: server.waiters("stock") == 0)
    relay.pass_all()
    eventually(lambda: server.commands("acquire") > asked and server.waiters("stock") == 1)
    holder.release()
    assert waiting.result() is True


def test_a_waiter_keeps_its_place_although_the_server_has_closed_idle_connections(r, server, monkeypatch):
    def pings():
        return server.admin.info("commandstats")["cmdstat_ping"]["calls"]

    monkeypatch.setattr(mortise_lock, "BEAT", 300)
    client = redis.Redis(port=server.port)
    with Lock(client, "other"):
        server.admin.client_kill_filter(_type="normal", skipme=True)
    with Lock(r, "stock", thread_local=False):
        waiting = in_thread(lambda: Lock(client, "stock").acquire())
        eventually(lambda: server.waiters("stock") == 1)
        queue, pinged = server.queue("stock"), pings()
        eventually(lambda: pings() > pinged)
        assert server.queue("stock") == queue
    assert waiting.result() is True
    close(client)


def test_a_grant_that_arrives_too_late_is_not_used(far, relay, r, server):
    holder, late = Lock(r, "stock"), Lock(far, "stock", timeout=3, thread_local=False)
    holder.acquire()
    waiting = in_thread(lambda: (late.acquire(blocking_timeout=60), late.lost, late.owned()))
    eventually(lambda: server.waiters("stock") == 1)
    relay.replies.clear()
    holder.release()
    eventually(lambda: server.admin.exists("stock") == 1)
    eventually(lambda: server.admin.exists("stock") == 0)
    relay.pass_all()
    assert waiting.result() == (True, False, True)


def test_a_lock_of_another_process_counts_from_before_the_server_was_asked(far, relay, r, server):
    lock = Lock(r, "stock", timeout=60)
    lock.acquire(token="order-17")
    elsewhere = Lock(far, "stock", timeout=60, thread_local=False)
    elsewhere.local.token = "order-17"
    assert not Lock(far, "other").locked()
    relay.replies.clear()
    calls = server.commands("info")
    owned = in_thread(elsewhere.owned)
    eventually(lambda: server.commands("info") > calls)
    answered = now()
    time.sleep(0.5)  # of which the lease knows nothing
    relay.pass_all()
    assert owned.result() and elsewhere._hold.until <= answered + 59_450
    lock.release()


def test_requests_are_repeated_after_a_restart_of_the_server():
    server = Server()
    one, two = redis.Redis(port=server.port), redis.Redis(port=server.port)
    held = Lock(one, "stock", lease=2, thread_local=False)
    held.acquire()
    waiting = in_thread(lambda: Lock(two, "stock").acquire(blocking_timeout=60))
    eventually(lambda: server.waiters("stock") == 1)
    server.kill()
    server.start()
    assert waiting.result() is True
    assert held.wait_lost(10) is True
    with pytest.raises(LockNotOwnedError):
        held.release()
    close(one), close(two), server.close()


def test_a_loss_is_reported_at_the_deadline_when_the_server_is_silent(far, relay):
    lock = Lock(far, "stock", lease=1.0)
    lock.acquire()
    relay.requests.clear()
    assert lock.wait_lost(10) is True
    relay.pass_all()
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_an_idle_connection_that_the_server_has_closed_is_not_used(r, server):
    lock = Lock(r, "stock", timeout=60)
    for use in (lambda: lock.extend(1), lock.owned, lambda: lock.pass_to("queue", 60)):
        assert lock.fencing_token or lock.acquire()
        server.admin.client_kill_filter(_type="normal", skipme=True)
        assert use()


def test_a_waiter_follows_to_the_primary_that_is_behind_the_address_now(own_server):
    promoted, relay = Server(), Relay(own_server.port)
    client = redis.Redis(port=relay.port)
    with Lock(client, "other"):
        pass
    own_server.admin.replicaof("127.0.0.1", 1)
    relay.target = promoted.port
    assert Lock(client, "stock").acquire(blocking_timeout=30)
    assert promoted.admin.exists("stock") == 1
    close(client), relay.close(), promoted.close()


def test_a_server_that_refuses_writes_for_now_is_asked_again(own_server):
    own_server.admin.config_set("min-replicas-to-write", 1)
    client = redis.Redis(port=own_server.port)
    with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
        Lock(client, "stock").acquire(blocking_timeout=0.3)
    waiting = in_thread(lambda: Lock(client, "stock").acquire(blocking_timeout=60))
    time.sleep(0.3)
    own_server.admin.config_set("min-replicas-to-write", 0)
    assert waiting.result() is True
    close(client)


def test_a_wait_at_a_server_that_answers_nobody_ends_at_its_limit(own_server):
    client = redis.Redis(port=own_server.port)
    own_server.freeze()
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        Lock(client, "stock").acquire(blocking_timeout=4.3)
    assert 4.2 < time.monotonic() - began < 6
    own_server.thaw()
    assert close(client, 30)


def test_waits_that_the_silence_of_a_server_ends_together_last_no_longer_than_their_limit(own_server, monkeypatch):
    client = redis.Redis(port=own_server.port)
    monkeypatch.setattr(mortise_lock, "BEAT", 1_000)  # so that a third second of silence ends all waits
    Lock(client, "stock", timeout=600).acquire()

    def wait():
        with pytest.raises(redis.RedisError):
            Lock(client, "stock").acquire(blocking_timeout=3.2)
        return now() - began

    began, waits = now(), [in_thread(wait) for _ in range(4)]
    eventually(lambda: own_server.waiters("stock") == 4)
    own_server.freeze()
    outcome = [one.result() for one in waits]
    own_server.thaw()
    assert max(outcome) < 4_900, outcome
    assert close(client, 30)


def test_who_does_not_wait_asks_as_patiently_again_after_an_exchange_that_broke_off_late(far, relay, monkeypatch):
    exchange = mortise_lock.Connections.exchange

    def break_off(self, *arguments):
        monkeypatch.setattr(mortise_lock.Connections, "exchange", exchange)
        time.sleep(2.1)
        relay.delay = 0.15
        raise redis.ConnectionError("it broke off")

    monkeypatch.setattr(mortise_lock.Connections, "exchange", break_off)
    lock = Lock(far, "stock", timeout=600)
    assert lock.acquire(blocking=False)
    relay.delay = 0
    lock.release()


def test_a_grant_whose_confirmation_comes_after_its_lease_is_not_used(far, relay, server):
    with Lock(far, "other"):
        pass
    lock, asked, renewed = Lock(far, "stock", timeout=1, thread_local=False), server.commands("acquire"), server.commands("renew")
    relay.replies.clear()
    waiting = in_thread(lambda: (lock.acquire(blocking_timeout=30), lock.lost))
    eventually(lambda: server.commands("acquire") > asked)
    time.sleep(0.6)  # for longer than half of the lease, so that it has to be confirmed
    relay.delay = 0.1
    relay.replies.set()
    time.sleep(0.02)
    relay.replies.clear()
    eventually(lambda: server.commands("renew") > renewed)
    time.sleep(1.2)
    relay.delay = 0
    relay.replies.set()
    assert waiting.result() == (True, False)


@pytest.fixture
def unable_to_renew(monkeypatch):
    """Has the start of the thread that renews raise an error, within a block."""
    @contextlib.contextmanager
    def raising(error):
        def start(thread, usual=threading.Thread.start):
            if thread.name == "mortise-lock":
                raise error
            usual(thread)

        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            yield

    return raising


def test_a_lock_that_no_thread_could_renew_is_given_back_at_once(r, server, unable_to_renew):
    with unable_to_renew(RuntimeError("can't start new thread")):
        with pytest.raises(RuntimeError, match="thread"):
            Lock(r, "stock", lease=600).acquire()
        assert server.admin.exists("stock") == 0
    assert close(r, 30) and server.nothing_is_left()


def test_locks_are_renewed_after_a_signal_handler_has_raised_while_that_was_to_begin(r, server, unable_to_renew):
    with unable_to_renew(KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        Lock(r, "stock", lease=600).acquire()
    with Lock(r, "other", lease=2):
        renewed = server.commands("renew")
        eventually(lambda: server.commands("renew") > renewed, 10)
    eventually(server.nothing_is_left)


def test_an_unreachable_server_is_reported_as_such(server):
    nowhere = redis.Redis(port=1)
    with pytest.raises(redis.ConnectionError):
        Lock(nowhere, "stock").acquire(blocking=False)
    with pytest.raises(redis.ConnectionError):
        Lock(nowhere, "stock").acquire(blocking_timeout=0.3)
    assert close(nowhere)


def test_inspecting_a_lock_of_an_unreachable_server_raises_redis_pys_own_error(server):
    nowhere = redis.Redis(port=1)
    with pytest.raises(redis.ConnectionError):
        Lock(nowhere, "stock").locked()
    elsewhere = Lock(nowhere, "stock", timeout=10)
    elsewhere.local.token = "order-17"
    for look in (elsewhere.owned, elsewhere.release):
        with pytest.raises(redis.ConnectionError):
            look()


def test_threads_that_first_use_a_client_at_the_same_time_share_its_connections(server):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(20):
            fresh, together = redis.Redis(port=server.port, client_name=f"fresh-{number}"), threading.Barrier(8)
            threads = [in_thread(lambda: together.wait() < 8 and take_and_give(fresh)) for _ in range(8)]
            assert all(thread.result() for thread in threads)
            assert server.connections(f"fresh-{number}") <= 10  # one for each thread, and two more
            assert close(fresh, 30)
    finally:
        sys.setswitchinterval(interval)


@pytest.fixture
def no_collection():
    """Turns off garbage collection, so that reference cycles stay."""
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def test_clients_made_for_each_request_share_the_connections_of_their_pool_which_close_with_it(server, no_collection):
    # With RESP2, because with RESP3 some versions of redis-py put the pool itself into a reference cycle.
    pool = redis.ConnectionPool(port=server.port, client_name="request", protocol=2)
    for number in range(50):
        with Lock(redis.Redis(connection_pool=pool), f"stock:{number}"):
            pass
    assert server.connections("request") <= 3  # for requests, renewals, and to see whether the server answers those who wait
    holder, waiting = Lock(redis.Redis(connection_pool=pool), "stock", thread_local=False), []
    holder.acquire()
    for number in range(20):
        waiting.append(in_thread(lambda: take_and_give(redis.Redis(connection_pool=pool))))
    eventually(lambda: server.waiters("stock") == 20)
    assert server.connections("request") <= 23  # one for each that waits, and two more
    holder.release()
    assert all(thread.result() for thread in waiting)
    del pool, holder
    eventually(lambda: server.connections("request") == 0)


def test_a_pool_that_only_a_lock_refers_to_stays_and_the_lock_is_renewed(server, no_collection):
    def take():
        assert Lock(redis.Redis(port=server.port, client_name="dropped", protocol=2), "stock", lease=3).acquire()

    take()
    before = server.info("total_renewals")
    eventually(lambda: server.info("total_renewals") >= before + 4)
    server.admin.delete("stock")
    eventually(lambda: server.connections("dropped") == 0)


def test_a_server_that_accepts_connections_and_never_replies_blocks_nobody(own_server):
    silent = redis.Redis(port=own_server.port)
    own_server.freeze()
    with pytest.raises(redis.RedisError):
        Lock(silent, "stock").acquire(blocking_timeout=0.3)
    own_server.thaw()
    assert close(silent, 30)


def test_closing_at_the_moment_of_a_grant_grants_nothing_and_leaves_nothing(r, server, monkeypatch):
    own, granted = redis.Redis(port=server.port), Hold.granted

    def close_meanwhile(hold, token, begin):
        granted(hold, token, begin)
        close(own, 0)  # which does not wait for the thread that it is in

    monkeypatch.setattr(Hold, "granted", close_meanwhile)
    for timeout in (None, 600):
        with pytest.raises(redis.ConnectionError, match="closed"):
            Lock(own, "stock", timeout, lease=600).acquire()
        eventually(lambda: server.admin.exists("stock") == 0)


def test_closing_during_a_release_leaves_nothing(r, server):
    for _ in range(20):
        own, holder = redis.Redis(port=server.port), Lock(r, "stock", thread_local=False)
        holder.acquire()
        late = Lock(own, "stock", lease=600, thread_local=False)
        waiting = in_thread(lambda: refused(late))
        eventually(lambda: server.waiters("stock") == 1)
        releasing = in_thread(holder.release)
        close(own, 30)
        waiting.result(), releasing.result()
        assert late.fencing_token is None or late.lost
        eventually(lambda: server.admin.exists("stock") == 0)


def is_closed(sock):
    """Whether this end of it is: redis-py would connect again when something is sent."""
    return sock is None or select.select([sock], [], [], 0)[0]


def test_close_ends_a_wait_that_is_just_being_sent(r, server, monkeypatch):
    own, exchange, closing = redis.Redis(port=server.port), mortise_lock.Connections.exchange, []

    def close_first(self, connection, commands, longest):
        if longest and not closing:
            closing.append(in_thread(lambda: close(own, 30)))
            eventually(lambda: is_closed(connection._sock))
        return exchange(self, connection, commands, longest)

    monkeypatch.setattr(mortise_lock.Connections, "exchange", close_first)
    monkeypatch.setattr(mortise_lock, "BEAT", 600_000)  # ms after which a wait looks after itself
    Lock(r, "stock", lease=600).acquire(blocking=False)
    with pytest.raises(redis.ConnectionError, match="closed"):
        Lock(own, "stock").acquire(blocking_timeout=300)
    assert closing[0].result()
    eventually(lambda: server.waiters("stock") == 0)


@pytest.fixture
def interrupt():
    """Interrupts the main thread, even if these tests run in the background, where SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_thread_leaves_the_queue_and_blocks_nobody(r, server, interrupt):
    with Lock(r, "stock", thread_local=False):
        interrupting = in_thread(lambda: eventually(lambda: server.waiters("stock") == 1) and interrupt())
        with pytest.raises(KeyboardInterrupt):
            Lock(r, "stock").acquire()
        interrupting.result()
        eventually(lambda: server.waiters("stock") == 0)


class TimeIsUp(Exception):
    """As Celery's SoftTimeLimitExceeded and RQ's JobTimeoutException."""


@pytest.fixture
def time_is_up(interrupt):
    """Has a signal handler raise `TimeIsUp` in the main thread."""
    def stop(*_):
        raise TimeIsUp

    signal.signal(signal.SIGINT, stop)
    return interrupt


def test_a_wait_ends_with_the_exception_of_a_signal_handler(r, server, time_is_up):
    with Lock(r, "stock", thread_local=False):
        interrupting = in_thread(lambda: eventually(lambda: server.waiters("stock") == 1) and time_is_up())
        with pytest.raises(TimeIsUp):
            Lock(r, "stock").acquire(blocking_timeout=60)
        interrupting.result()
        eventually(lambda: server.waiters("stock") == 0)


def test_a_release_ends_with_the_exception_of_a_signal_handler_and_still_releases(far, relay, server, time_is_up):
    lock, asked = Lock(far, "stock", lease=600), server.commands("release")
    lock.acquire()
    relay.replies.clear()
    interrupting = in_thread(lambda: eventually(lambda: server.commands("release") > asked) and time_is_up())
    with pytest.raises(TimeIsUp):
        lock.release()
    interrupting.result()
    relay.pass_all()
    eventually(lambda: server.admin.exists("stock") == 0)


def test_a_release_that_is_interrupted_at_any_call_leaves_no_lock_that_is_renewed(r):
    # Python runs signal handlers where a function begins, which is also where it traces calls.
    def interrupt(frame, event, _):
        nonlocal calls
        if "mortise_lock" in frame.f_code.co_filename and event == "call":
            calls += 1
            if calls == last:
                raise TimeIsUp

    interrupted = True
    for last in itertools.count(1):
        if not interrupted:
            break
        lock, calls, interrupted = Lock(r, f"stock:{last}", lease=600), 0, False
        lock.acquire()
        hold, node = lock._hold, r.connection_pool._mortise_sessions[0].node(lock._key)
        sys.settrace(interrupt)
        try:
            lock.release()
        except TimeIsUp:
            interrupted = True
        finally:
            sys.settrace(None)
        assert lock._hold is hold or hold not in node.holds or hold.ended
    assert last > 20
