"""Clients that are closed, programs that end, signals, and servers that run a script."""
import concurrent.futures
import signal
import subprocess
import sys
import threading

import pytest
import redis
from servers import eventually
from test_lock import in_thread

from mortise_lock import Lock, close


@pytest.mark.parametrize("what", ["release", "pass"])
def test_close_waits_for_what_another_thread_has_sent(relay, server, what):
    client = redis.Redis(port=relay.port)
    lock = Lock(client, "k", timeout=60, thread_local=False)
    lock.acquire()
    before = server.commands(what)
    relay.replies.clear()
    ending = in_thread(lock.release if what == "release" else lambda: lock.pass_to("heir", 60))
    eventually(lambda: server.commands(what) > before)
    closing = in_thread(lambda: close(client, 30))
    with pytest.raises(concurrent.futures.TimeoutError):
        closing.result(0.1)
    relay.pass_all()
    assert closing.result(30) is True
    ending.join(30)


def test_a_waiter_stays_in_the_queue_while_the_server_runs_a_script(own_server):
    near, far = redis.Redis(port=own_server.port), redis.Redis(port=own_server.port)
    own_server.admin.config_set("busy-reply-threshold", 1)
    holder = Lock(near, "k", timeout=60)
    holder.acquire()
    waiting = in_thread(lambda: Lock(far, "k", timeout=60).acquire())
    eventually(lambda: own_server.waiters("k") == 1)
    script = in_thread(lambda: near.eval("while true do end", 0))
    eventually(lambda: not own_server.answers())
    with pytest.raises(concurrent.futures.TimeoutError):
        waiting.result(5.5)  # by then it has asked whether the server still answers
    own_server.admin.script_kill()
    script.join(30)
    holder.release()
    assert waiting.result(30)
    close(far)


SILENT = """
import contextlib, sys, threading, redis
from mortise_lock import Lock
port, what = int(sys.argv[1]), sys.argv[2]
client = redis.Redis(port=port)
lock = Lock(client, "mine", timeout=60 if what == "waits" else None, thread_local=False)
lock.acquire()
def use():
    while True:
        with contextlib.suppress(redis.RedisError):
            Lock(client, "theirs").acquire() if what == "waits" else lock.reacquire()
if what != "holds":
    threading.Thread(target=use, daemon=True).start()
print("begun", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("what", ["holds", "uses", "waits"])
def test_a_program_ends_as_usual_though_the_server_is_silent(own_server, what):
    theirs = Lock(redis.Redis(port=own_server.port), "theirs", timeout=60)
    theirs.acquire()
    command = [sys.executable, "-c", SILENT, str(own_server.port), what]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    if what == "waits":
        eventually(lambda: own_server.waiters("theirs") == 1)
    own_server.freeze()
    _, errors = child.communicate("\n", timeout=60)
    assert child.returncode == 0 and "Traceback" not in errors, errors


def test_a_signal_handler_uses_a_lock_in_the_midst_of_a_request(relay, server):
    client = redis.Redis(port=relay.port)
    with Lock(client, "warm"):
        pass
    held_back, relay.replies = relay.replies, threading.Event()  # those of the connection that is open
    relay.replies.set()
    held_back.clear()
    outer, inner, before = Lock(client, "outer", timeout=60), Lock(client, "inner", timeout=60), server.commands("acquire")

    def handle(*_):
        inner.acquire()
        held_back.set()

    def interrupt():
        eventually(lambda: server.commands("acquire") > before)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    usual = signal.signal(signal.SIGUSR1, handle)
    try:
        in_thread(interrupt)
        assert outer.acquire()
    finally:
        signal.signal(signal.SIGUSR1, usual)
    assert inner.owned() and outer.owned() and inner.fencing_token != outer.fencing_token
    inner.release()
    outer.release()


def test_a_signal_handler_uses_a_lock_while_its_thread_wakes_the_one_that_renews(server):
    # Python runs signal handlers where a function begins, which is also where it traces calls.
    program = f"""
import sys, redis
from mortise_lock import Lock
client = redis.Redis(port={server.port})
inner, outer = Lock(client, "inner", lease=1), Lock(client, "outer", lease=1)  # so short that each grant wakes it
def handle(frame, event, _):
    global handled
    if frame.f_back.f_code.co_name == "set":
        sys.settrace(None)
        handled = inner.acquire()
        inner.release()
        sys.settrace(handle)
handled = False
sys.settrace(handle)
assert outer.acquire() and outer.owned() and handled
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert server.nothing_is_left()
