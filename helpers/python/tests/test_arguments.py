"""Arguments that are no times, or impossible ones, are refused before anything is sent, and the error names them."""
import math
import pickle

import pytest
import redis
import redis.asyncio
from servers import eventually

import mortise_lock
import mortise_lock.asyncio
from mortise_lock import Lock
from test_lock import in_thread

KINDS = [pytest.param(mortise_lock.Lock, redis.Redis, id="threads"),
         pytest.param(mortise_lock.asyncio.Lock, redis.asyncio.Redis, id="asyncio")]
NO_NUMBERS = ["10", True, [1], 1j]


@pytest.mark.parametrize("kind, client", KINDS)
@pytest.mark.parametrize("name", ["timeout", "lease", "max_hold", "blocking_timeout"])
def test_a_value_that_is_no_number_of_seconds_is_refused_by_the_name_of_its_argument(kind, client, name):
    for value in NO_NUMBERS:
        with pytest.raises(TypeError) as refused:
            kind(client(), "stock", **{name: value})
        assert str(refused.value) == f"{name} is a number of seconds, not {value!r}"
    with pytest.raises(ValueError, match=f"{name}.*nan"):
        kind(client(), "stock", **{name: math.nan})


@pytest.mark.parametrize("kind, client", KINDS)
@pytest.mark.parametrize("name", ["timeout", "lease", "max_hold"])
def test_a_lease_too_short_to_hold_a_lock_is_refused_with_its_bound_and_its_value(kind, client, name):
    for value in (0.002, 0.001, 0, -5, -math.inf):
        with pytest.raises(ValueError, match=rf"{name} .*0\.003 .*{value}"):
            kind(client(), "stock", **{name: value})
    if name != "max_hold":
        with pytest.raises(ValueError, match=f"{name} .*, not inf"):
            kind(client(), "stock", **{name: math.inf})
    kind(client(), "stock", **{name: 0.003})


def test_an_invalid_time_set_later_or_passed_to_a_method_is_refused_too(r, server):
    lock = Lock(r, "stock", timeout=10)
    lock.timeout = -1
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire()
    lock.timeout = 10
    assert lock.acquire()
    for value in (0, -1, 0.002, math.nan, math.inf):
        for replace in (False, True):
            with pytest.raises(ValueError, match="additional_time"):
                lock.extend(value, replace)
    with pytest.raises(TypeError, match="additional_time"):
        lock.extend("10")
    with pytest.raises(TypeError, match="sleep"):
        lock.acquire(False)  # as of a threading.Lock
    with pytest.raises(TypeError, match="blocking_timeout"):
        lock.acquire(blocking_timeout="1")
    with pytest.raises(TypeError, match="timeout"):
        lock.wait_lost("1")
    with pytest.raises(TypeError, match="timeout"):
        mortise_lock.close(r, "1")
    assert lock.owned()
    lock.release()
    assert server.admin.dbsize() == 0


async def test_a_client_whose_commands_are_wrapped_by_a_plain_function_locks(ar, monkeypatch):
    execute = ar.execute_command
    monkeypatch.setattr(ar, "execute_command", lambda *words, **options: execute(*words, **options))
    async with mortise_lock.asyncio.Lock(ar, "{stock}") as lock:
        assert await lock.guard("INCR", "{stock}:count") == 1


@pytest.mark.parametrize("kind, client", [(mortise_lock.Lock, redis.asyncio.Redis), (mortise_lock.asyncio.Lock, redis.Redis)])
def test_a_client_of_the_other_kind_is_refused(kind, client):
    with pytest.raises(TypeError, match="redis.asyncio.Redis"):
        kind(client(), "stock")


def test_what_is_no_name_is_refused(r):
    for name in (None, ("a", "b"), ["a"]):
        with pytest.raises(redis.DataError):
            Lock(r, name)
    with pytest.raises(redis.DataError):
        mortise_lock.MultiLock(r, ["a", None])
    with Lock(r, "stock") as lock:
        with pytest.raises(redis.DataError):
            lock.pass_to(None, 1)
        with pytest.raises(redis.DataError):
            Lock(r, "stock").take_over(None, lock.fencing_token)
        assert lock.owned()


def test_a_wait_longer_than_the_server_takes_is_without_limit(r, server):
    with Lock(r, "stock", thread_local=False):
        waiting = in_thread(lambda: Lock(r, "stock").acquire(blocking_timeout=2**63 - 1))
        eventually(lambda: server.waiters("stock") == 1 or not waiting.is_alive())
    assert waiting.result() is True


async def test_tasks_are_refused_in_the_same_way(ar):
    lock = mortise_lock.asyncio.Lock(ar, "stock", timeout=10)
    with pytest.raises(TypeError, match="blocking_timeout"):
        await lock.acquire(blocking_timeout="1")
    assert await lock.acquire()
    with pytest.raises(ValueError, match="additional_time"):
        await lock.extend(-1)
    with pytest.raises(TypeError, match="timeout"):
        await mortise_lock.asyncio.close(ar, "1")
    await lock.release()


def test_a_negative_wait_sends_one_request(r):
    with Lock(r, "stock", blocking_timeout=-1):
        assert Lock(r, "stock").acquire(blocking_timeout=-1) is False


def test_a_lease_shorter_than_a_round_trip_is_requested_with_pauses(relay, server):
    far = redis.Redis(port=relay.port)
    with Lock(far, "other"):
        relay.delay = 0.01
        asked = server.commands("acquire")
        in_vain = in_thread(lambda: Lock(far, "stock", timeout=0.003).acquire(blocking_timeout=2))
        assert in_vain.result() is False
        assert server.commands("acquire") - asked < 15
        relay.delay = 0
    assert mortise_lock.close(far, 30)
    eventually(lambda: server.admin.dbsize() == 0)


def test_the_error_of_too_few_replicas_reaches_another_process_whole():
    error = pickle.loads(pickle.dumps(mortise_lock.UnconfirmedError(2, 1)))
    assert (error.needed, error.had, str(error)) == (2, 1, str(mortise_lock.UnconfirmedError(2, 1)))
