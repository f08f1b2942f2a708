"""What a user of redis-py's Lock expects, and the additions: readers, tokens, the queue."""
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis
from servers import Server, eventually

from mortise_lock import BusyError, Lock, LockError, LockNotOwnedError, ReadLock, RefusedError, close


def in_thread(work):
    """Runs `work` in a thread; `result()` returns its result or raises its error."""
    outcome = concurrent.futures.Future()

    def run():
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.result = lambda seconds=120: outcome.result(seconds)
    return thread


def test_the_key_exists_while_the_lock_is_held_and_not_afterwards(r):
    lock = Lock(r, "stock")
    assert lock.acquire(blocking=False)
    assert r.type("stock") == b"mort-lock"
    assert lock.locked() and lock.owned()
    lock.release()
    assert r.exists("stock") == 0
    assert not lock.locked() and not lock.owned()


def test_a_second_acquire_is_refused_at_once_or_after_its_limit(r):
    with Lock(r, "stock"):
        other = Lock(r, "stock")
        assert other.acquire(blocking=False) is False
        assert other.acquire(blocking_timeout=0) is False
        started = time.monotonic()
        assert other.acquire(blocking_timeout=0.3) is False
        assert time.monotonic() - started >= 0.29
        with pytest.raises(LockError), Lock(r, "stock", blocking=False):
            pass


def test_clients_redis_lock_method_takes_this_class(r):
    with r.lock("stock", timeout=5, lock_class=Lock) as lock:
        assert lock.owned()


def test_waiters_are_granted_in_the_order_of_their_requests(r, server):
    served, first = [], Lock(r, "stock")
    first.acquire()
    threads = []
    for number in range(5):
        threads.append(in_thread(lambda number=number: serve(r, served, number)))
        eventually(lambda: server.waiters("stock") == number + 1)
    first.release()
    for thread in threads:
        thread.join(20)
    assert served == [0, 1, 2, 3, 4]


def serve(r, served, number):
    with Lock(r, "stock"):
        served.append(number)


def test_fencing_tokens_only_grow(r):
    tokens = []
    for _ in range(5):
        with Lock(r, "stock") as lock:
            tokens.append(lock.fencing_token)
    assert tokens == sorted(set(tokens)) and tokens[0] > 0
    assert Lock(r, "stock").fencing_token is None


def test_readers_share_and_keep_the_writer_out(r, server):
    first, second, writer = ReadLock(r, "page"), ReadLock(r, "page"), Lock(r, "page")
    assert first.acquire(blocking=False) and second.acquire(blocking=False)
    assert not writer.acquire(blocking=False)
    waiting = in_thread(writer.acquire)
    eventually(lambda: server.waiters("page") == 1)
    assert not ReadLock(r, "page").acquire(blocking=False), "a reader overtook a writer that waits"
    first.release()
    second.release()
    assert waiting.result() is True


def test_a_timeout_ends_the_lock_unless_it_is_extended(r, server):
    lock = Lock(r, "stock", timeout=0.2)
    assert lock.acquire()
    eventually(lambda: not lock.locked())
    assert lock.lost
    with pytest.raises(LockNotOwnedError):
        lock.release()
    longer = Lock(r, "stock", timeout=1_000)
    assert longer.acquire() and longer.extend(1_000)
    assert 1_900_000 < server.admin.execute_command("LOCK.INFO", "stock")["holds"][0]["lease"] <= 2_000_000
    assert longer.extend(2_500, replace_ttl=True)
    assert 2_400_000 < server.admin.execute_command("LOCK.INFO", "stock")["holds"][0]["lease"] <= 2_500_000
    assert longer.reacquire(), "extending never shortens a lease, and that is no error"
    longer.release()


def test_a_lock_that_is_not_held_cannot_be_released_or_extended(r):
    lock = Lock(r, "stock", timeout=10)
    for attempt in (lock.release, lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError):
            attempt()
    with Lock(r, "stock") as forever, pytest.raises(LockError):
        forever.extend(1)


@pytest.mark.parametrize("breaking", ["DEL stock", "SET stock a", "FLUSHALL"])
def test_releasing_or_extending_a_broken_lock_reports_the_loss(r, breaking):
    for tell in (lambda lock: lock.release(), lambda lock: lock.extend(5)):
        r.flushall()
        lock = Lock(r, "stock", timeout=10)
        lock.acquire()
        r.execute_command(*breaking.split())
        assert not lock.owned()
        with pytest.raises(LockNotOwnedError):
            tell(lock)


def test_leaving_a_block_whose_lock_is_gone_raises_or_only_warns(r, caplog):
    with pytest.raises(LockNotOwnedError), Lock(r, "stock"):
        r.delete("stock")
    with Lock(r, "stock", raise_on_release_error=False):
        r.delete("stock")
    assert "stock" in caplog.text


def test_the_error_of_a_block_is_raised_with_the_loss_of_its_lock_at_the_end_of_its_context(r):
    try:
        with Lock(r, "stock"):
            r.delete("stock")
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("mine")
    except ValueError as error:
        assert isinstance(error.__context__, KeyError)
        assert isinstance(error.__context__.__context__, LockNotOwnedError)
        assert error.__context__.__context__.__context__ is None
    else:
        raise AssertionError("the block's own error was not raised")


def test_a_block_that_gets_no_lock_raises_a_busy_error(r):
    with Lock(r, "stock", thread_local=False):
        with pytest.raises(BusyError), Lock(r, "stock", blocking_timeout=0.05):
            raise AssertionError("inside")


def test_a_wait_ends_at_its_limit_although_the_server_is_silent(r, relay, server):
    far = redis.Redis(port=relay.port)
    with Lock(r, "stock", thread_local=False):
        waiting = in_thread(lambda: (refused(Lock(far, "stock", blocking_timeout=3)), time.monotonic()))
        eventually(lambda: server.waiters("stock") == 1)
        began = time.monotonic()
        relay.replies.clear()
        error, ended = waiting.result()
        assert "no reply in time" in error and ended - began < 3.9
    relay.pass_all()
    close(far, 30)


def test_a_server_without_the_module_is_named(server):
    bare = Server(module=False)
    with pytest.raises(RefusedError, match="module is not loaded.*loadmodule"):
        Lock(redis.Redis(port=bare.port), "stock").acquire()
    bare.close()


def test_a_guarded_command_runs_only_while_the_lock_is_held(r, server):
    lock = Lock(r, "{stock}")
    with pytest.raises(LockError, match="not acquired"):
        lock.guard("SET", "{stock}:count", 1)
    with lock:
        assert lock.guard("SET", "{stock}:count", 17) == b"OK"
        assert lock.guard("GET", "{stock}:count") == b"17"
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            lock.guard("LPUSH", "{stock}:count", 1)
    lock.acquire()
    r.delete("{stock}")
    with pytest.raises(LockNotOwnedError):
        lock.guard("SET", "{stock}:count", 18)
    assert r.get("{stock}:count") == b"17"


def test_a_token_of_the_caller_is_the_owner_by_which_another_process_can_release(r):
    lock = Lock(r, "stock", thread_local=False)
    assert lock.acquire(token="order-17")
    assert lock.local.token == b"order-17"
    assert not Lock(r, "stock").acquire(blocking=False, token="order-17"), "the same token was granted twice"
    elsewhere = Lock(r, "stock")
    elsewhere.local.token = "order-17"
    assert elsewhere.owned()
    elsewhere.release()
    assert not lock.locked()


def test_an_empty_token_is_nobodys(r):
    lock, elsewhere = Lock(r, "stock"), Lock(r, "stock")
    lock.acquire()
    elsewhere.local.token = ""
    assert not elsewhere.owned()
    with pytest.raises(LockNotOwnedError):
        elsewhere.release()
    assert lock.owned()


def test_a_lock_found_by_its_token_is_valid_for_as_long_as_its_holder_renews_it(r, server):
    lock, elsewhere = Lock(r, "stock", lease=1.5), Lock(r, "stock", timeout=60)
    assert lock.acquire(token="task-7")
    elsewhere.local.token = "task-7"
    assert elsewhere.owned()
    time.sleep(2)  # for longer than the lease that it found
    assert elsewhere.extend(5) and elsewhere.owned() and lock.owned() and not lock.lost
    elsewhere.release()
    assert server.admin.exists("stock") == 0


def test_a_lock_whose_token_is_taken_away_is_not_renewed_any_more(r, server):
    lock = Lock(r, "stock", lease=1.5)
    assert lock.acquire(token="task-7")
    lock.local.token = "task-7"  # which changes nothing
    time.sleep(2)
    assert lock.owned() and not lock.lost
    lock.local.token = None
    assert not lock.owned() and not lock.lost
    eventually(lambda: server.admin.exists("stock") == 0, 10)


def test_a_lock_belongs_to_its_thread_unless_thread_local_is_false(r):
    mine, ours = Lock(r, "mine"), Lock(r, "ours", thread_local=False)
    mine.acquire(), ours.acquire()
    assert in_thread(mine.owned).result() is False
    assert in_thread(ours.owned).result() is True
    in_thread(ours.release).join(10)
    assert not ours.locked() and mine.owned()


def test_a_lock_without_a_timeout_is_renewed_while_it_is_held(r, server):
    lock = Lock(r, "stock", lease=3.0)
    lock.acquire()
    before = server.info("total_renewals")
    eventually(lambda: server.info("total_renewals") >= before + 4)
    assert lock.owned() and not lock.lost
    lock.release()


def test_all_leases_of_a_server_are_renewed_in_one_pipeline(r, server):
    locks = [Lock(r, f"stock:{number}", lease=3) for number in range(50)]
    for lock in locks:
        assert lock.acquire(blocking=False)
    before = int(server.admin.info("stats")["total_reads_processed"])
    renewals = server.info("total_renewals")
    eventually(lambda: server.info("total_renewals") >= renewals + 50)
    asked = int(server.admin.info("stats")["total_reads_processed"]) - before
    polls = 100 * 3  # the commands of `eventually` itself meanwhile
    assert asked < polls + 25
    for lock in locks:
        lock.release()


def test_a_renewed_lock_ends_at_max_hold_and_reports_it(r):
    lock = Lock(r, "stock", lease=1.5, max_hold=2.5)
    lock.acquire()
    assert lock.wait_lost(5) is True
    assert lock.lost
    eventually(lambda: not lock.locked())


def test_wait_lost_returns_when_the_lock_is_broken(r):
    lock = Lock(r, "stock", lease=1.5, thread_local=False)
    lock.acquire()
    waiting = in_thread(lambda: lock.wait_lost(10))
    r.delete("stock")
    assert waiting.result() is True
    kept = Lock(r, "kept", thread_local=False)
    kept.acquire()
    assert kept.wait_lost(0.05) is False
    waiting = in_thread(lambda: kept.wait_lost(10))
    kept.release()
    assert waiting.result() is False


def test_a_key_that_holds_something_else_is_an_error(r):
    r.set("stock", "a lock of redis-py's own")
    with pytest.raises(RefusedError, match="WRONGTYPE"):
        Lock(r, "stock").acquire(blocking_timeout=60)
    assert Lock(r, "stock").locked()


def test_a_deadlock_between_two_named_tasks_is_reported(r, server):
    left, right = Lock(r, "left"), Lock(r, "right")
    assert left.acquire(token="task-a") and right.acquire(token="task-b")
    waiting = in_thread(lambda: Lock(r, "right").acquire(token="task-a", blocking_timeout=60))
    eventually(lambda: server.waiters("right") == 1)
    with pytest.raises(LockError, match="DEADLOCK"):
        Lock(r, "left").acquire(token="task-b", blocking_timeout=60)
    right.release()
    assert waiting.result() is True


def test_close_releases_renewed_locks_and_ends_waits(r, server):
    held, other = Lock(r, "held"), redis.Redis(port=server.port)
    held.acquire()
    foreign = Lock(other, "foreign", timeout=30)
    foreign.acquire()
    waiting = in_thread(lambda: refused(Lock(r, "foreign")))
    eventually(lambda: server.waiters("foreign") == 1)
    assert close(r, 30) is True
    assert waiting.result() == "closed"
    assert server.waiters("foreign") == 0 and r.exists("held") == 0
    assert held.lost
    foreign.release()
    with Lock(r, "held"):
        pass  # the client can be used again
    assert close(other, 30)


def refused(lock):
    try:
        lock.acquire()
    except redis.RedisError as error:
        return str(error)


CHILD = """
import sys, redis
from mortise_lock import Lock
client = redis.Redis(port=int(sys.argv[1]))
lock = Lock(client, "stock", lease=float(sys.argv[3]))
lock.acquire()
print("in", flush=True)
while sys.argv[2] != "ends" and sys.stdin.readline():
    print("lost" if lock.lost else "held", flush=True)
"""


def child(server, how, lease=1.0):
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(server.port), how, str(lease)], stdout=subprocess.PIPE,
                               stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"in\n"
    return process


def test_the_lock_of_a_killed_process_ends_with_its_lease(r, server):
    process = child(server, "stays")
    process.send_signal(signal.SIGKILL)
    with Lock(r, "stock", blocking_timeout=60):
        pass
    process.wait()


def test_a_process_that_ends_releases_its_renewed_locks_and_reports_no_loss(server):
    process = child(server, "ends", lease=600)
    assert process.wait(60) == 0 and process.stderr.read() == b""
    eventually(lambda: server.admin.exists("stock") == 0)


ENDING = """
import contextlib, sys, threading, time, redis
from mortise_lock import Lock
client, admin = redis.Redis(port=int(sys.argv[1])), redis.Redis(port=int(sys.argv[1]), decode_responses=True, protocol=3)
def wait():
    with contextlib.suppress(redis.ConnectionError):
        Lock(client, "stock").acquire()
for _ in range(5):
    threading.Thread(target=wait, daemon=True).start()
while admin.execute_command("LOCK.INFO", "stock")["waiters"] < 5:
    time.sleep(0.01)
"""


def test_a_process_that_ends_while_daemon_threads_wait_leaves_the_queue(r, server):
    with Lock(r, "stock"):
        left = server.commands("leave")
        done = subprocess.run([sys.executable, "-c", ENDING, str(server.port)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, "")
        assert server.commands("leave") >= left + 5 and server.waiters("stock") == 0


WAITING = """
import sys, redis
from mortise_lock import Lock
Lock(redis.Redis(port=int(sys.argv[1])), "stock").acquire()
"""


def test_a_thread_waits_without_a_box_and_leaves_the_queue_when_its_process_is_killed(r, server):
    eventually(lambda: server.info("boxes") == 0)
    with Lock(r, "stock"):
        process = subprocess.Popen([sys.executable, "-c", WAITING, str(server.port)])
        eventually(lambda: server.waiters("stock") == 1)
        assert server.info("boxes") == 0
        process.kill()
        eventually(lambda: server.waiters("stock") == 0)
        process.wait()


def test_a_process_that_was_frozen_for_longer_than_its_lease_does_not_believe_in_it(r, server):
    process = child(server, "stays")
    process.send_signal(signal.SIGSTOP)
    with Lock(r, "stock", blocking_timeout=60) as lock:
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
        assert process.stdout.readline() == b"lost\n"
        assert lock.wait_lost(1.5) is False, "it renewed or left a lock that was no longer its own"
    process.kill()
    process.wait()


def test_a_forked_child_acquires_locks_under_its_own_names(r, server):
    with Lock(r, "stock") as lock:
        child = os.fork()
        if child == 0:
            try:
                taken = Lock(r, "other").acquire() and not Lock(r, "stock").acquire(blocking=False)
                os._exit(0 if taken else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        child_owner = server.admin.execute_command("LOCK.INFO", "other")["holds"][0]["owner"]
        assert child_owner.split(":")[0] != lock.local.token.decode().split(":")[0]
        assert lock.owned() and not lock.lost


FORKING = """
import os, sys, threading, redis
from mortise_lock import Lock
client = redis.Redis(port=int(sys.argv[1]))
def use(number):
    while True:
        with Lock(client, f"busy:{number}"):
            pass
lock = Lock(client, "stock", lease=600)
lock.acquire()
for number in range(4):
    threading.Thread(target=use, args=(number,), daemon=True).start()
for number in range(20):
    if os.fork() == 0:
        with Lock(client, f"child:{number}", blocking_timeout=30):
            sys.exit(0)
    assert os.wait()[1] == 0
print(lock.owned() and not lock.lost, flush=True)
"""


def test_children_forked_while_locks_are_in_use_work_and_release_nothing_of_their_parent(server):
    done = subprocess.run([sys.executable, "-c", FORKING, str(server.port)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr
    eventually(server.nothing_is_left)


WAITING = """
import os, sys, threading, time, redis
from mortise_lock import Lock
client = redis.Redis(port=int(sys.argv[1]))
threading.Thread(target=Lock(client, "stock").acquire, daemon=True).start()
sys.stdin.readline()
if os.fork() == 0:
    if sys.argv[2] == "True":
        Lock(client, "other").locked()
    print("child", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("uses_locks", [True, False])
def test_a_waiter_that_is_killed_leaves_the_queue_although_a_forked_child_lives(r, server, uses_locks):
    with Lock(r, "stock"):
        command = [sys.executable, "-c", WAITING, str(server.port), str(uses_locks)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as waiter:
            try:
                eventually(lambda: server.waiters("stock") == 1)
                waiter.stdin.write(b"\n")
                waiter.stdin.flush()
                assert waiter.stdout.readline() == b"child\n"
                waiter.kill()
                eventually(lambda: server.waiters("stock") == 0, 10)
            finally:
                os.killpg(waiter.pid, signal.SIGKILL)


LEAVING = """
import os, sys, redis
from mortise_lock import Lock, LockError
client = redis.Redis(port=int(sys.argv[1]))
with Lock(client, "stock") as lock:
    child = os.fork()
    if child == 0:
        assert not lock.owned() and not lock.lost and lock.fencing_token is None
        try:
            lock.release()
        except LockError as error:
            sys.exit(0)  # out of the block, and with what is to be done at the end of a process
    assert os.waitpid(child, 0)[1] == 0
    print(lock.owned() and not lock.lost, flush=True)
print(client.exists("stock") == 0, flush=True)
"""


def test_a_forked_child_that_leaves_its_parents_block_releases_nothing(server):
    done = subprocess.run([sys.executable, "-c", LEAVING, str(server.port)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\nTrue\n", done.stderr


MULTIPROCESSING = """
import multiprocessing, sys, threading, redis
from mortise_lock import Lock
def late():
    event.wait()
    with Lock(client, "later", lease=600) as lock:
        print(lock.owned() and not lock.lost and kept.owned(), flush=True)
def work():
    global client, event, kept
    client, event = redis.Redis(port=int(sys.argv[1])), threading.Event()
    kept = Lock(client, "stock", lease=600, thread_local=False)
    assert kept.acquire()
    threading.Thread(target=late).start()
    event.set()
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode, flush=True)
"""


def test_a_child_of_multiprocessing_releases_its_renewed_locks_when_its_threads_have_ended(server):
    done = subprocess.run([sys.executable, "-c", MULTIPROCESSING, str(server.port)], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n0\n", done.stderr
    assert server.admin.dbsize() == 0
