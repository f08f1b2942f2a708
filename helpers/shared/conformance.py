"""One behaviour for all languages: each scenario drives one worker of a library over its `conform` protocol (helpers/README.md).

A scenario is a function whose name says what it checks. It gets a `Place`: a server, a relay before it, and ways to start workers.
It raises AssertionError where the library does something else.
"""
import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time

from processes import Call, Relay, Server, Wire, eventually

LATE = 1.8  # seconds: the lease of holds whose renewals are late. Half of it is less than what a reply may take
PATIENCE = 10  # seconds for which an acquisition without a limit bears a server that answers nobody
ANSWER = 60  # seconds after which a worker that has not answered has failed
CONFIRMING = {"python", "node", "go", "java"}  # the libraries with `replicas`
ATTEMPTS = 6  # to let a reply be late by half a lease, but not by a whole one


class Worker:
    """A process of a library. `tell` sends a line, `hear` awaits the answer to it."""

    def __init__(self, folder, name, port, *password, replicas=0):
        self.call = Call(folder, "conform", name, str(port), *password, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                         env={**os.environ, "REPLICAS": str(replicas)})
        self.answers, self.arrived = {}, threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.call.process.stdout:
            handle, _, answer = line.strip().partition(" ")
            with self.arrived:
                self.answers.setdefault(handle, queue.SimpleQueue()).put(answer)
                self.arrived.notify_all()

    def tell(self, verb, handle, *words):
        print(verb, handle, *words, file=self.call.process.stdin, flush=True)

    def hear(self, handle, seconds=ANSWER):
        with self.arrived:
            assert self.arrived.wait_for(lambda: handle in self.answers and not self.answers[handle].empty(), seconds), \
                f"no answer to {handle} within {seconds} s"
            return self.answers[handle].get()

    def ask(self, verb, handle, *words):
        self.tell(verb, handle, *words)
        return self.hear(handle)

    def kill(self):
        self.call.signal(9)
        self.call.process.wait()

    def ends(self):
        """The code with which it ends by itself."""
        return self.call.process.wait(ANSWER)

    def close(self):
        with contextlib.suppress(OSError):
            self.call.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.call.process.wait(5)
        self.kill()


class Place:
    """What a scenario needs. All of it ends with the scenario."""

    def __init__(self, folder, name):
        self.folder, self.name, self.ending = folder, name, contextlib.ExitStack()

    def open(self, what):
        self.ending.callback(what.close)
        return what

    def server(self, *options, **more):
        return self.open(Server(*options, **more))

    def relay(self, server):
        return self.open(Relay(server.port))

    def worker(self, port, *password, **more):
        return self.open(Worker(self.folder, self.name, port, *password, **more))

    def wire(self, server):
        return self.open(Wire(server.port))


def expect(answer, pattern):
    assert re.fullmatch(pattern, answer, re.IGNORECASE | re.DOTALL), f"answered {answer!r}, which is not {pattern!r}"


def soon(condition, what, seconds=30):
    assert eventually(condition, seconds), what


def idle_after_a_kill(place):
    """The seconds for which a free lock is kept from the next in line by a waiter that is killed."""
    server = place.server()
    server.ask("LOCK.ACQUIRE", "k", "holder", 60_000)
    victim = place.worker(server.port)
    victim.tell("acquire", "v", "k", 60_000, 60_000)
    soon(lambda: server.waiters("k") == 1, "the worker does not wait")
    soon(lambda: re.search(r"flags=\w*b.* cmd=lock\.", server.ask("CLIENT", "LIST"), re.IGNORECASE), "the worker does not listen")
    behind = place.wire(server)
    behind.send("LOCK.ACQUIRE", "k", "behind", 60_000, "WAIT", 0)
    soon(lambda: server.waiters("k") == 2, "nobody waits behind the worker")
    victim.kill()
    # The waiter may be a child of the worker. It dies a moment later, and is a waiter until its connection closes.
    soon(lambda: len(server.ask("CLIENT", "LIST").splitlines()) == 2, "the killed worker's connections stay open")
    killed = time.monotonic()
    server.ask("LOCK.RELEASE", "k", "holder", "ALL")
    assert isinstance(behind.read(), int)
    return time.monotonic() - killed


def a_killed_waiter_keeps_nobody_from_the_lock(place):
    # The server closes its box after a second; after five, if it was killed between two LOCK.MAILs.
    assert any(idle_after_a_kill(place) < 3.5 for _ in range(3)), "a free lock was kept from the next in line"


def who_waits_for_longer_than_a_lease_keeps_the_place(place):
    server = place.server()
    server.ask("LOCK.ACQUIRE", "k", "holder", 60_000)
    worker = place.worker(server.port)
    worker.tell("acquire", "a", "k", 1_500, 60_000)
    soon(lambda: server.waiters("k") == 1, "the worker does not wait")
    behind = place.wire(server)
    behind.send("LOCK.ACQUIRE", "k", "behind", 60_000, "WAIT", 0)
    soon(lambda: server.waiters("k") == 2, "nobody waits behind the worker")
    time.sleep(3)
    server.ask("LOCK.RELEASE", "k", "holder", "ALL")
    expect(worker.hear("a", 20), "granted")
    expect(worker.ask("release", "a"), "released")
    assert isinstance(behind.read(), int)


def after_a_restart_waiters_are_granted_and_holders_are_told(place):
    server = place.server()
    worker = place.worker(server.port)
    expect(worker.ask("acquire", "held", "h", 3_000, 0), "granted")
    server.ask("LOCK.ACQUIRE", "k", "holder", 60_000)
    worker.tell("acquire", "waiting", "k", 60_000, 60_000)
    soon(lambda: server.waiters("k") == 1, "the worker does not wait")
    server.kill()
    server.start()
    expect(worker.hear("waiting"), "granted")
    soon(lambda: worker.ask("held", "held") == "lost", "the loss of a lock is not noticed")
    expect(worker.ask("release", "held"), "lost")
    expect(worker.ask("release", "waiting"), "released")


def a_wrong_password_fails_at_once_and_is_named(place):
    server = place.server("--requirepass", "right")
    worker = place.worker(server.port, "wrong")
    began = time.monotonic()
    expect(worker.ask("acquire", "a", "k", 60_000, 30_000), "unreachable .*(WRONGPASS|NOAUTH|password|AUTH ).*|refused .*(WRONGPASS|NOAUTH|password|AUTH ).*")
    assert time.monotonic() - began < 15, "it went on trying"


def who_was_refused_for_a_while_is_served_again(place):
    server = place.server("--requirepass", "right")
    worker, wire = place.worker(server.port, "right"), place.wire(server)
    wire.ask("AUTH", "right")
    expect(worker.ask("acquire", "warm", "w", 60_000, 0), "granted")
    wire.ask("CONFIG", "SET", "requirepass", "another")
    wire.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    soon(lambda: re.search("WRONGPASS|password", worker.ask("acquire", "refused", "k", 60_000, 0)), "it does not tell the new connection's error")
    wire.ask("CONFIG", "SET", "requirepass", "right")
    soon(lambda: worker.ask("acquire", "again", "k", 60_000, 0) == "granted", "it is refused for ever")
    expect(worker.ask("release", "again"), "released")
    expect(worker.ask("release", "warm"), "released")


def a_server_without_the_module_is_named(place):
    worker = place.worker(place.server(module=False).port)
    expect(worker.ask("acquire", "a", "k", 60_000, 30_000), "refused .*loadmodule.*")


def the_error_of_the_body_wins_and_the_loss_is_attached(place):
    server = place.server()
    worker = place.worker(server.port)
    expect(worker.ask("block", "b", "k", 60_000), "inside")
    server.ask("DEL", "k")
    expect(worker.ask("fail", "b"), "caught body with lost")
    expect(worker.ask("block", "c", "k", 60_000), "inside")
    server.ask("DEL", "k")
    expect(worker.ask("leave", "c"), "caught lost")
    expect(worker.ask("block", "d", "k", 60_000), "inside")
    expect(worker.ask("fail", "d"), "caught body")
    assert server.lock("k") is None, "a block that failed kept its lock"


def what_a_normal_end_leaves_is_what_the_library_says(place):
    server = place.server()
    worker = place.worker(server.port)
    expect(worker.ask("acquire", "a", "k", 60_000, 0), "granted")
    answer = worker.ask("exit", "a")
    expect(answer, "leaves (nothing|the hold)")
    assert worker.ends() == 0
    if answer == "leaves nothing":
        soon(lambda: server.lock("k") is None, "the lock of a program that has ended is still held")
    else:
        assert server.lock("k"), "the lock of a program that has ended is free"


def one_object_serves_ten_tasks(place):
    server = place.server()
    worker = place.worker(server.port)
    for kind, most in ("lock", 1), ("read", 10), ("permits", 3):
        answer = worker.ask("share", kind, kind, f"k:{kind}", 10)
        expect(answer, r"done \d+ \d+")
        entered, inside = map(int, answer.split()[1:])
        assert (entered, inside <= most) == (50, True), f"{kind}: entered {entered} times of 50, at most {inside} at once"
        soon(lambda: server.lock(f"k:{kind}") is None, f"{kind}: holds stay behind")


def renewed_late(place, verb):
    """Lets the reply to a renewal, or an extension, come late by half a lease, and nothing come after it. Whether it came in time."""
    server = place.server()
    relay = place.relay(server)
    worker, lease = place.worker(relay.port), round(LATE * 1000)
    # A program that has just started may take longer than the short lease for its first lock.
    expect(worker.ask("acquire", "warm", "w", 60_000, 0), "granted")
    expect(worker.ask("release", "warm"), "released")
    answer = worker.ask(verb, "a", "k", lease, 0)
    if answer == "none":
        return True  # the library renews all locks
    expect(answer, "granted")
    relay.hold_replies()
    if verb == "fixed":
        worker.tell("extend", "a", lease)
    soon(lambda: server.calls("lock.renew") > 0, "it is not renewed")
    seen = time.monotonic()  # it was sent before
    time.sleep(LATE / 2)
    relay.hold_requests()
    relay.replies.set()
    if verb == "fixed":
        in_time = worker.hear("a") == "extended"
    else:
        time.sleep(0.1)
        in_time = worker.ask("held", "a") == "held"
    time.sleep(max(0, seen + LATE - time.monotonic()))
    assert worker.ask("held", "a") == "lost", "it counts from the reply, not from the request"
    relay.go_on()
    return in_time


def a_renewal_counts_from_when_it_was_sent(place):
    assert any(renewed_late(place, "acquire") for _ in range(ATTEMPTS)), "no renewal's reply came before the lease was over"


def an_extension_counts_from_when_it_was_sent(place):
    assert any(renewed_late(place, "fixed") for _ in range(ATTEMPTS)), "no extension's reply came before the lease was over"


def the_first_renewal_comes_at_a_third_of_the_lease(place):
    server = place.server()
    worker, lease, least = place.worker(server.port), 9_000, 9_000
    expect(worker.ask("acquire", "a", "k", lease, 0), "granted")
    end = time.monotonic() + 20
    while server.calls("lock.renew") == 0:
        least = min(least, server.lease("k") or 0)
        assert time.monotonic() < end, "it is not renewed"
        time.sleep(0.02)
    assert 0.45 * lease < least, f"it was renewed when {least} ms of {lease} were left"


def what_may_be_held_is_left_until_the_server_answers(place):
    server = place.server()
    relay = place.relay(server)
    worker = place.worker(relay.port)
    for keys in "k", "a,b":
        warm = f"warm:{keys}"  # so that it has a connection on which no reply is outstanding
        expect(worker.ask("acquire", warm, "w", 60_000, 0), "granted")
        expect(worker.ask("release", warm), "released")
        relay.hold_replies()
        worker.tell("acquire", keys, keys, 600_000, 0)
        soon(lambda: all(server.lock(key) for key in keys.split(",")), "the request did not arrive")
        relay.refuse("LOCK.LEAVE", 3)
        expect(worker.hear(keys), "unreachable .*")
        relay.cut()
        relay.go_on()
        soon(lambda: relay.refusals == 0, f"LEAVE was not tried three times, but {3 - relay.refusals}")
        soon(lambda: not any(server.lock(key) for key in keys.split(",")), "a lock that nobody wants is still held", 60)


def a_second_release_ends_no_later_hold(place):
    server = place.server()
    worker = place.worker(server.port)
    expect(worker.ask("acquire", "a", "k", 60_000, 0), "granted")
    expect(worker.ask("release", "a"), "released")
    server.ask("LOCK.ACQUIRE", "k", "next", 60_000)
    expect(worker.ask("release", "a"), "released|not held")
    assert server.lock("k"), "a second release has ended the next holder's lock"


def a_connection_that_the_server_closed_while_idle_costs_no_reply(place):
    server = place.server("--timeout", "1")
    worker = place.worker(server.port)
    expect(worker.ask("acquire", "a", "k", 60_000, 0), "granted")
    wait_until_closed(server)
    expect(worker.ask("acquire", "b", "l", 60_000, 0), "granted")
    wait_until_closed(server)
    for handle, key in {"a": "k", "b": "l"}.items():
        expect(worker.ask("release", handle), "released")
        soon(lambda: not server.ask("EXISTS", key), f"{key} is not free")


def idle_connections(server):
    """The ids of those on which nothing is awaited now. rueidis keeps its own open: it sends PING each second."""
    return set(re.findall(r"^id=(\d+) (?!.* flags=\w*b|.* cmd=(?:client|ping))", server.ask("CLIENT", "LIST"), re.MULTILINE))


def wait_until_closed(server):
    """Until the server has closed the connections that are idle now."""
    idle = idle_connections(server)
    soon(lambda: not idle & idle_connections(server), "idle connections stay open")


def a_server_that_answers_nobody_is_borne_for_ten_seconds(place):
    server = place.server()
    server.kill()
    worker, began = place.worker(server.port), time.monotonic()
    expect(worker.ask("acquire", "a", "k", 60_000, "ever"), "unreachable .*")
    borne = time.monotonic() - began
    assert PATIENCE * 0.8 < borne < PATIENCE * 2.5, f"it gave up after {borne:.1f} s"


def a_reply_may_take_two_seconds(place):
    server = place.server()
    relay = place.relay(server)
    worker = place.worker(relay.port)
    expect(worker.ask("acquire", "warm", "w", 60_000, 0), "granted")
    relay.hold_replies()
    began = time.monotonic()
    expect(worker.ask("acquire", "a", "k", 60_000, 0), "unreachable .*")
    waited = time.monotonic() - began
    relay.go_on()
    assert 1.8 < waited < 8, f"it gave a reply {waited:.1f} s"


def a_lock_counts_once_a_replica_has_it(place):
    if place.folder.name not in CONFIRMING:
        return
    server = place.server()
    replica = place.server("--replicaof", "127.0.0.1", str(server.port))
    soon(lambda: "master_link_status:up" in replica.ask("INFO", "replication"), "the replica is not in sync")
    worker = place.worker(server.port, replicas=1)
    expect(worker.ask("acquire", "a", "k", 3_000, 30_000), "granted")
    assert replica.lock("k"), "a lock was handed out that no replica has"
    time.sleep(4)
    expect(worker.ask("held", "a"), "held")
    replica.process.send_signal(signal.SIGSTOP)
    expect(worker.ask("acquire", "b", "l", 60_000, 0), "(refused|unreachable) .*0 replicas have the lock, and 1 have to.*")
    soon(lambda: server.lock("l") is None, "a lock that no replica has is still held")
    soon(lambda: worker.ask("held", "a") == "lost", "renewals count that no replica has")


def a_primary_that_has_lost_its_replicas_is_left_for_its_successor(place):
    if place.folder.name not in CONFIRMING:
        return
    primary, heir = place.server(), place.server()
    replica = place.server("--replicaof", "127.0.0.1", str(primary.port))
    soon(lambda: "master_link_status:up" in replica.ask("INFO", "replication"), "the replica is not in sync")
    relay = place.relay(primary)
    worker = place.worker(relay.port, replicas=1)
    expect(worker.ask("acquire", "a", "k", 3_000, 30_000), "granted")
    expect(worker.ask("release", "a"), "released")
    replica.ask("REPLICAOF", "NO", "ONE")
    heir.ask("REPLICAOF", "127.0.0.1", str(replica.port))
    soon(lambda: "master_link_status:up" in heir.ask("INFO", "replication"), "the new replica is not in sync")
    relay.target = replica.port  # but the worker's connections lead to the old primary still
    expect(worker.ask("acquire", "b", "k", 3_000, 30_000), "granted")
    assert replica.lock("k") and heir.lock("k"), "it is not the new primary's grant"


SCENARIOS = [
    a_killed_waiter_keeps_nobody_from_the_lock,
    who_waits_for_longer_than_a_lease_keeps_the_place,
    after_a_restart_waiters_are_granted_and_holders_are_told,
    a_wrong_password_fails_at_once_and_is_named,
    who_was_refused_for_a_while_is_served_again,
    a_server_without_the_module_is_named,
    the_error_of_the_body_wins_and_the_loss_is_attached,
    what_a_normal_end_leaves_is_what_the_library_says,
    one_object_serves_ten_tasks,
    a_renewal_counts_from_when_it_was_sent,
    an_extension_counts_from_when_it_was_sent,
    the_first_renewal_comes_at_a_third_of_the_lease,
    what_may_be_held_is_left_until_the_server_answers,
    a_second_release_ends_no_later_hold,
    a_connection_that_the_server_closed_while_idle_costs_no_reply,
    a_server_that_answers_nobody_is_borne_for_ten_seconds,
    a_reply_may_take_two_seconds,
    a_lock_counts_once_a_replica_has_it,
    a_primary_that_has_lost_its_replicas_is_left_for_its_successor,
]


def problem(folder, name, scenario):
    """What the library of this worker does otherwise than the scenario says; None if nothing."""
    place = Place(folder, name)
    with place.ending:
        try:
            scenario(place)
        except (AssertionError, OSError, RuntimeError) as wrong:
            return f"{name}: {scenario.__name__.replace('_', ' ')}: {wrong}"
