"""What a client of Mortise asks, believes and leaves. No socket, thread or loop here: `__init__.py` brings them.

One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own; one of
which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered, and changes nothing after that.

All is written as coroutines. What they wait for suspends them with asyncio; with threads it blocks where it stands, so that
a coroutine runs to its end in one go.
"""
import functools
import inspect
import itertools
import logging
import math
import numbers
import os
import threading
import time
import uuid
import weakref

from redis.exceptions import AskError, ConnectionError, MovedError, RedisClusterException, ResponseError

log = logging.getLogger("mortise_lock")
MAIL_WAIT = 2_000  # ms for which one LOCK.MAIL waits
LEAVE_FOR = 60_000  # ms in which what arrives late of a name that was left changes nothing
MOST = 1_000  # that are sent before their replies are read
LEAST_LEASE, MOST_LEASE = 0.003, 2**53 // 1000  # seconds
TICK = 1_000  # ms after which background work looks about at the latest
ELSEWHERE = ("READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT")
LETTER_DELAY = 1_000  # ms past its limit in which a waiter's answer may still come
LATE = 200  # ms after a limit in which a process that was busy, or stood still, reads first what has come
CODES = {"ReadOnlyError": "READONLY", "MovedError": "MOVED", "AskError": "ASK", "TryAgainError": "TRYAGAIN",
         "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "NoPermissionError": "NOPERM"}
# Clocks that go on while the machine sleeps, of Linux and of macOS, and what other systems have. Windows has none of them: there
# it is the performance counter, which goes on, too.
CLOCKS = [getattr(time, name) for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC") if hasattr(time, name)]


class Failed(Exception):
    """Stands for a reply that did not come, or is of no use; the next attempt's may be. `cause`: why the server could not be
    asked, if so. `known`: whether the request surely has changed nothing."""

    def __init__(self, cause=None, known=False):
        self.cause, self.known = cause, known


def now():
    """Milliseconds that go on while the machine sleeps, and do not step with the wall clock."""
    return (time.clock_gettime(CLOCKS[0]) if CLOCKS else time.perf_counter()) * 1000


def milliseconds(name, seconds, least=0.0, most=math.inf):
    """What the argument of this name is in milliseconds. Refuses what is no number of seconds, or outside of its bounds."""
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    if not least <= seconds <= most:
        raise ValueError(f"{name} has to be between {least} and {most} seconds, and is {seconds!r}")
    return float(seconds) * 1000


def lease_of(name, seconds):
    """A lease in milliseconds. From one of 2 ms nothing is left to believe in, so that no attempt would ever do."""
    return int(milliseconds(name, seconds, LEAST_LEASE, MOST_LEASE))


def code(error):
    """The first word of what the server said; redis-py takes it off the errors that it knows."""
    return CODES.get(type(error).__name__) or str(error).split(" ", 1)[0]


def fields(reply):
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {name.decode(): value for name, value in pairs}


def judged(reply):
    """The reply; where it is an error that says no more than "not here", or "not now", a `Failed`."""
    return Failed(reply, True) if isinstance(reply, Exception) and code(reply) in ELSEWHERE else reply


async def settled(answer, _=None):
    """What redis-py's clients for threads answer at once, those for asyncio have to be awaited for."""
    return await answer if inspect.isawaitable(answer) else answer


class Hold:
    """One acquisition: asked for under a name of its own, granted perhaps, and over in the end."""

    def __init__(self, key, owner, lease, event, max_hold=None):
        self.key, self.owner, self.lease, self.max_hold, self.pid = key, owner, lease, max_hold or math.inf, os.getpid()
        self.answered, self.over = event(), event()
        self.since = self.answer = self.token = None
        self.known_at, self.begin, self.until, self.deadline = math.inf, -math.inf, -math.inf, -math.inf
        self.leave = ("LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR)

    def settle(self, answer, begin=-math.inf):
        """Takes the answer that comes by letter."""
        if not self.answered.is_set():
            self.answer, self.begin = answer, begin
            self.answered.set()

    def granted(self, token, begin):
        self.token, self.last = token, begin + self.max_hold
        self.believe(begin, self.lease)

    def believe(self, begin, lease):
        self.deadline = max(self.deadline, begin + lease)
        self.until = max(self.until, min(begin + lease - lease / 100 - 2, self.last))
        self.renew_at = begin + self.lease / 3

    def held(self):
        return not self.over.is_set() and now() < self.until

    def due_at(self):
        """When there is something to do about it."""
        return min(self.until, self.renew_at if self.renew_at < self.last else math.inf)

    def renewal(self, lease):
        return ("LOCK.RENEW", self.key, self.owner, max(1, int(lease)), "TOKEN", self.token)


class Worker:
    """Work in the background, that starts when there is some and ends a while after there is none."""

    def __init__(self, session, work, load):
        self.session, self.work, self.load, self.event, self.running = session, work, load, session.event(), False

    def wake(self, urgent=True):
        with self.session.mutex:
            start, self.running = not self.running, True
            if urgent:
                self.event.set()
        if start:  # with the pool, which stays for as long as there is work: with it the connections would go
            self.session.spawn(functools.partial(self.run, self.session.pool()))

    async def run(self, _):
        while self.running:
            self.event.clear()
            busy = self.load()
            try:
                await (self.work() if busy else self.session.wait(self.event, TICK))
            except Exception:
                log.exception("a lock's background work failed; it goes on")
                await self.session.pause(TICK)
            with self.session.mutex:
                self.running = (busy and not self.session.closed) or self.event.is_set() or self.load()


class Node:
    """One server: who waits there, what is held there, and what has to be left there."""

    def __init__(self, session, address):
        self.session, self.address = session, address
        self.queued, self.holds, self.unknown, self.pause, self.heard = set(), set(), set(), 20, -math.inf
        self.listener = Worker(session, self.listen, lambda: bool(self.queued) and not session.closed)
        self.keeper = Worker(session, self.keep, lambda: bool(self.holds or self.unknown))
        self.new_box()

    def new_box(self):
        self.box, self.since, self.number, self.doubt = f"{uuid.uuid4()}{self.session.tag(self)}", None, 0, False

    async def answer(self, hold, since, left):
        """The letter to a request that was queued."""
        hold.since, hold.known_at = since, now()
        self.queued.add(hold)
        self.doubt = self.doubt or since != self.since
        self.listener.wake()
        ends = now() + left + LETTER_DELAY
        try:
            while not hold.answered.is_set() and now() < ends:
                await self.session.wait(hold.answered, min(ends - now(), 60_000))
            return hold.answer if await self.session.wait(hold.answered, LATE) else Failed()
        finally:
            self.queued.discard(hold)

    async def listen(self):
        """Collects letters of those that wait at this node."""
        sent, after = now(), () if self.since is None else ("AFTER", self.since, self.number)
        reply = (await self.session.call(self, [("LOCK.MAIL", self.box, *after, "WAIT", MAIL_WAIT)], mail=True))[0]
        if not isinstance(reply, Exception):
            return self.deliver(sent, *reply)
        await self.session.pause(50)
        await self.session.refresh(self)
        moved = isinstance(reply, MovedError)
        self.ask_again(lambda hold: moved or self.session.node(hold.key) is not self)
        if moved:
            self.new_box()

    def deliver(self, sent, since, waited, letters):
        if since != self.since:
            self.since, self.number, self.doubt = since, 0, True
        for letter in map(fields, letters):
            self.number = max(self.number, letter["number"])
            hold, result = self.session.asked.get(letter["owner"]), letter["result"]
            if hold is None:
                if result == b"granted":  # nobody wants it any more
                    self.leave(Hold(letter["key"], letter["owner"], 0, self.session.event))
            elif result == b"granted":
                hold.settle(letter["token"], sent + waited - letter["age"])
            else:
                hold.settle(judged(ResponseError(letter["error"].decode())) if result == b"refused" else None)
        if self.doubt:  # what was asked for with another box than this one is gone, or the next answer will tell
            self.doubt = False
            self.ask_again(lambda hold: hold.since != since and hold.known_at < sent)
            self.doubt = self.doubt or any(hold.since != since for hold in list(self.queued))

    def ask_again(self, which):
        for hold in list(self.queued):
            if which(hold):
                self.queued.discard(hold)
                hold.settle(Failed())

    async def keep(self):
        """Renews what is held, and leaves what is not known: many in one pipeline."""
        start, holds, failed = now(), list(self.holds), False
        for hold in holds:
            if start >= hold.until:
                self.lose(hold)
        jobs = [(self.renewed, hold, hold.renewal(min(hold.lease, hold.last - start))) for hold in holds
                if hold.renew_at <= start + hold.lease / 10 and start < min(hold.last, hold.until)]
        jobs += [(self.left, hold, hold.leave) for hold in list(self.unknown)[:MOST]]
        if not jobs:
            return await self.session.wait(self.keeper.event, max(1, min([TICK] + [hold.due_at() - start for hold in holds])))
        while jobs:
            some, jobs, sent = jobs[:MOST], jobs[MOST:], now()
            for (hear, hold, command), reply in zip(some, await self.session.call(self, [command for _, _, command in some])):
                if isinstance(reply, AskError) and not isinstance(reply, MovedError):
                    reply = (await self.session.ask(*command))[1]
                failed = hear(hold, reply, sent) or failed
                if isinstance(reply, Failed):  # so will the rest
                    jobs = []
        if failed:
            await self.session.refresh(self)
            self.rehome()
            await self.session.pause(min([self.pause] + [hold.lease / 10 for hold in holds]))
        self.pause = min(self.pause * 2, 500) if failed else 20

    def renewed(self, hold, reply, sent):
        """Takes the answer to a renewal. Whether it has to be asked again."""
        if reply is None or code(reply) == "WRONGTYPE":
            self.lose(hold)
        elif reply == hold.token and now() < hold.until:  # a belief that has run out is never taken up again
            hold.believe(sent, min(hold.lease, hold.last - sent))
        return isinstance(reply, Exception)

    def left(self, hold, reply, _=None):
        """Takes the answer to a LEAVE. Whether it has to be said again."""
        failed = isinstance(reply, Exception) and code(reply) != "NOPERM"
        if not failed:
            self.unknown.discard(hold)
        return failed

    def rehome(self):
        """Gives what another node serves by now to that one."""
        for hold in list(self.holds) + list(self.unknown):
            node = self.session.node(hold.key)
            if node is not self:
                keep = node.hold if hold in self.holds else node.leave
                self.holds.discard(hold)
                self.unknown.discard(hold)
                keep(hold)

    def hold(self, hold):
        self.holds.add(hold)
        self.keeper.wake(urgent=hold.due_at() < now() + TICK)

    def leave(self, hold):
        self.unknown.add(hold)
        self.keeper.wake()

    def lose(self, hold):
        self.holds.discard(hold)
        if not hold.over.is_set():
            hold.over.set()
            log.warning("lock %r was lost", hold.key)
            self.leave(hold)


class Session:
    """What all locks of one pool of connections share; of a cluster, of one client. A driver adds `event`, `wait`, `spawn`,
    `new_wire` and `hang_up`."""

    def __init__(self, pool, place):
        self.pool, self.place, self.uid, self.count, self.closed = weakref.ref(pool), place, uuid.uuid4().hex, itertools.count(), False
        self.mutex, self.asked, self.nodes, self.wires, self.refreshed = threading.Lock(), {}, {}, {}, -math.inf

    def name(self, task):
        own = f"{self.uid}:{next(self.count)}".encode()
        return own if task is None else task + b"##" + own

    def address(self, key):
        """None where there is one server only, or where Sentinel says which it is."""
        cluster = self.pool()
        if not hasattr(cluster, "nodes_manager"):
            return None
        try:
            node = cluster.get_node_from_key(key)
        except RedisClusterException:  # nobody serves it now: any node says so
            node = cluster.get_default_node()
        return node.host, node.port

    def node(self, key, at=None):
        address = at or self.address(key)
        return self.nodes.get(address) or self.nodes.setdefault(address, Node(self, address))

    async def call(self, node, commands, mail=False):
        """Their replies: what the server said, errors too, or a `Failed` for each."""
        place = node.address, mail
        wire = self.wires.get(place) or self.wires.setdefault(place, self.new_wire(*place))
        replies = await wire.call(commands)
        if mail and self.closed:  # in the midst of this
            await wire.hang_up()
        return replies

    def tag(self, node):
        """In a cluster LOCK.MAIL is routed by the box's name: a hash tag that the node serves."""
        if node.address is None:
            return ""
        return next((f"{{{n}}}" for n in range(16384 * 16) if self.address(str(n)) == node.address), "")

    async def pause(self, ms):
        await self.wait(self.event(), ms)

    async def refresh(self, node):
        """Looks again who serves what: `node` no longer does."""
        if node.address is not None and now() > self.refreshed + 100:
            self.refreshed = now()
            try:
                await settled(self.pool().nodes_manager.initialize())
            except Exception as error:  # redis-py's own for this is no RedisError
                log.warning("the cluster does not say who serves what: %s", error)

    async def ask(self, *command, wait=0):
        """One command about a key, followed to where that is served, with what is to be left there said first. The node and
        its reply. `wait`: for so long, by mail."""
        node, asking = self.node(command[1]), []
        for _ in range(5):
            few = list(node.unknown) if len(node.unknown) < 100 else []  # many are for the keeper to say
            unknown = [hold for hold in few if hold.key == command[1]]
            mail = ("WAIT", 0 if wait == math.inf else max(1, math.ceil(wait)), "MAIL", node.box) if wait > 0 else ()
            *replies, reply = await self.call(node, [hold.leave for hold in unknown] + asking + [(*command, *mail)])
            for hold, said in zip(unknown, replies):
                node.left(hold, said)
            if isinstance(reply, MovedError):
                await self.refresh(node)
                asking, node = [], self.node(command[1])
            elif isinstance(reply, AskError):
                asking, node = [("ASKING",)], self.node(command[1], at=(reply.host, reply.port))
            else:
                break
        return node, judged(reply)

    async def extend(self, hold, lease):
        """Whether the lock is held, for `lease` ms more from now on at least; the error where that is not known."""
        sent = now()
        reply = (await self.ask(*hold.renewal(lease)))[1] if hold.held() else None
        if isinstance(reply, Exception) and code(reply) != "WRONGTYPE":
            return reply
        if reply != hold.token or not hold.held():
            return False
        hold.believe(sent, lease)
        return True

    async def release(self, hold):
        """Whether it was held to the end; the error where it must not be released. What is not known of it is left, without
        anybody waiting for that."""
        node, held, known = self.node(hold.key), hold.held(), False
        node.holds.discard(hold)
        hold.over.set()
        try:
            node, reply = await self.ask("LOCK.RELEASE", hold.key, hold.owner, "ALL", "TOKEN", hold.token)
            gone, barred = reply is None or code(reply) == "WRONGTYPE", code(reply) == "NOPERM"
            known = gone or barred or not isinstance(reply, Exception)
            return reply if barred else held and not gone
        finally:
            if not known:
                node.leave(hold)

    async def close(self, ms):
        """Leaves all that is waited for and all that is renewed. Whether all of it has been said."""
        end, self.closed = now() + ms, True
        for owner in list(self.asked):
            if hold := self.asked.pop(owner, None):  # else its attempt has come to its end
                hold.settle(Failed(ConnectionError("closed")))
                self.node(hold.key).leave(hold)
        for node in list(self.nodes.values()):
            for hold in list(node.holds):
                node.lose(hold)
        while (owing := any(node.unknown for node in list(self.nodes.values()))) and now() < end:
            await self.pause(5)
        for wire in list(self.wires.values()):
            await wire.hang_up()
        return not owing
