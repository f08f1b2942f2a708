"""What a client of Mortise asks, believes and leaves: the rules, without a socket, a thread or a loop.

Every function that needs the outside world is a generator. It yields a step, `Call`, `Wait` or `Refresh`, and is sent what came
of it; threads (`__init__.py`) and asyncio (`asyncio.py`) each bring a session that carries the steps out.

One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own, and one
of which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered; whatever still arrives of it then
changes nothing.
"""
import itertools
import logging
import math
import threading
import time
import uuid
from typing import NamedTuple

from redis.exceptions import (
    AskError, AuthenticationError, LockError, LockNotOwnedError, MovedError, ResponseError, TimeoutError,
)

log = logging.getLogger("mortise_lock")
PATIENCE = 10_000  # ms for which an acquisition without a limit bears a server that cannot be reached
LETTER_DELAY = 1_000  # ms past its limit in which a waiter's answer may still come
MAIL_WAIT = 2_000  # ms for which one LOCK.MAIL waits
LEAVE_FOR = 60_000  # ms in which what arrives late of a name that was left changes nothing
LINGER = 2_000  # ms for which a background worker stays without work


class DeadlockError(LockError):
    """The server found that this wait would never end. The text names the keys."""


class RefusedError(LockError):
    """The server refused: a key of another type, too many waiters, no permission. The text is its own."""


class Unanswered(Exception):
    """A request without a reply. `sent` is False where it surely never left."""

    def __init__(self, cause, sent=True):
        self.cause, self.sent = cause, sent


class Again(Exception):
    """This attempt came to nothing, the next one may not. `failing`: the server could not be asked."""

    def __init__(self, cause=None, failing=False):
        self.cause, self.failing = cause, failing


class Call(NamedTuple):  # -> one reply for each command, errors as values; or raises Unanswered
    node: "Node"
    commands: list
    mail: bool = False  # over the connection that waits for letters


class Wait(NamedTuple):  # -> whether the event came within `ms`
    event: object
    ms: float


class Refresh(NamedTuple):  # look again who serves what: `node` no longer does
    node: "Node"


def now():
    """Milliseconds that go on while the machine sleeps, and do not step with the wall clock."""
    return time.clock_gettime(CLOCK) * 1000


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def code(error):
    words = str(error).split(None, 1)
    kind = type(error).__name__
    return {"ReadOnlyError": "READONLY", "MovedError": "MOVED", "AskError": "ASK", "TryAgainError": "TRYAGAIN",
            "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "NoPermissionError": "NOPERM"}.get(
        kind, words[0] if words else "")


def follow_elsewhere(error):
    """An error of a server that is not, or not yet, the one to ask."""
    return code(error) in ("READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT")


class Hold:
    """A lock that was granted, and until when that may be believed."""

    def __init__(self, key, owner, lease, token, begin, over, renewed=False, max_hold=None):
        self.key, self.owner, self.lease, self.token, self.over = key, owner, lease, token, over
        self.renewed, self.last = renewed, math.inf if max_hold is None else begin + max_hold
        self.until, self.deadline, self.ended = -math.inf, -math.inf, False
        self.believe(begin, lease)
        self.renew_at = begin + lease / 3

    def believe(self, begin, lease):
        self.deadline = max(self.deadline, begin + lease)
        self.until = max(self.until, min(begin + lease - lease / 100 - 2, self.last))

    def held(self):
        return not self.ended and now() < self.until

    def end(self):
        self.ended = True
        self.over.set()

    def renewal(self, lease):
        return ("LOCK.RENEW", self.key, self.owner, max(1, int(lease)), "TOKEN", self.token)


class Ticket:
    """A request that may be answered by letter."""

    def __init__(self, key, node, event):
        self.key, self.node, self.event = key, node, event
        self.since, self.known_at, self.answer, self.begin = None, math.inf, None, -math.inf

    def settle(self, answer, begin=-math.inf):
        if not self.event.is_set():
            self.answer, self.begin = answer, begin
            self.event.set()


class Worker:
    """Work in the background, that starts when there is some and ends a while after there is none."""

    def __init__(self, session, work):
        self.session, self.work, self.event, self.running = session, work, session.event(), False

    def wake(self):
        with self.session.mutex:
            self.event.set()
            start, self.running = not self.running, True
        if start:
            self.session.spawn(self.steps())

    def steps(self):
        while True:
            self.event.clear()
            try:
                yield from self.work()
            except Exception:
                log.exception("a lock's background work failed; it goes on")
                yield Wait(self.session.event(), 1_000)
            if not (yield Wait(self.event, LINGER)):
                with self.session.mutex:
                    if not self.event.is_set():
                        self.running = False
                        return


class Node:
    """One server: who waits there, what is held there, and what has to be left there."""

    def __init__(self, session, address):
        self.session, self.address = session, address
        self.queued, self.doubted, self.holds, self.debts = set(), set(), set(), {}
        self.listener, self.keeper = Worker(session, self.listen), Worker(session, self.keep)
        self.new_box()

    def new_box(self):
        self.box, self.since, self.number = f"{uuid.uuid4()}{self.session.tag(self)}", None, 0

    def listen(self):
        """Collects the letters of all that wait at this node."""
        session = self.session
        while self.queued and not session.closed:
            sent = now()
            after = () if self.since is None else ("AFTER", self.since, self.number)
            try:
                reply = (yield Call(self, [("LOCK.MAIL", self.box, *after, "WAIT", MAIL_WAIT)], True))[0]
            except Unanswered as error:
                reply = error
            if isinstance(reply, Exception):
                yield Wait(session.event(), 50)
                yield Refresh(self)
                moved = isinstance(reply, MovedError)
                for ticket in list(self.queued):
                    if moved or session.node(ticket.key) is not self:
                        ticket.settle(Again())
                if moved:
                    self.new_box()
                continue
            since, waited, letters = reply
            if since != self.since:
                self.since, self.number = since, 0
                self.doubted |= self.queued
            for letter in map(fields, letters):
                self.number = max(self.number, letter["number"])
                ticket, result = session.asked.get(letter["owner"]), letter["result"]
                if ticket is None:
                    if result == b"granted":  # nobody wants it any more
                        self.leave(letter["key"], letter["owner"])
                elif result == b"granted":
                    ticket.settle(letter["token"], sent + waited - letter["age"])
                else:
                    ticket.settle(ResponseError(letter["error"].decode()) if result == b"refused" else None)
            for ticket in list(self.doubted):  # what was asked for with another box than this one is gone
                if ticket.since == since or ticket.known_at < sent:
                    self.doubted.discard(ticket)
                    if ticket.since != since:
                        ticket.settle(Again())

    def keep(self):
        """Renews what is held, and leaves what is not known: both in one pipeline."""
        session, pause = self.session, 20
        while self.holds or self.debts:
            sent = now()
            for hold in [hold for hold in self.holds if sent >= hold.until]:
                self.lose(hold)
            due = [hold for hold in self.holds if hold.renew_at <= sent + hold.lease / 10 and sent < hold.last]
            debts = list(self.debts)[:1000]
            if due or debts:
                failed = False
                try:
                    replies = yield Call(self, [h.renewal(min(h.lease, h.last - sent)) for h in due]
                                         + [("LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR) for key, owner in debts])
                except Unanswered:
                    replies, failed = [None] * 0, True
                for hold, reply in zip(due, replies):
                    failed |= self.renewed(hold, reply, sent)
                for debt, reply in zip(debts, replies[len(due):]):
                    failed |= self.left(debt, reply)
                if failed:
                    yield Refresh(self)
                    self.rehome()
                    yield Wait(session.event(), pause)
                pause = min(pause * 2, 500, *(hold.lease / 10 for hold in self.holds)) if failed else 20
                continue
            next_at = min((min(hold.renew_at if sent < hold.last else math.inf, hold.until) for hold in self.holds), default=sent)
            if (yield Wait(self.keeper.event, max(1, min(next_at - sent, 1_000)))):
                self.keeper.event.clear()

    def renewed(self, hold, reply, sent):
        if reply == hold.token:
            if now() < hold.until:  # a belief that has run out is never taken up again
                hold.believe(sent, min(hold.lease, hold.last - sent))
                hold.renew_at = sent + hold.lease / 3
            return False
        if reply is None or code(reply) == "WRONGTYPE":
            self.lose(hold)
        return isinstance(reply, Exception)

    def left(self, debt, reply):
        if isinstance(reply, Exception) and code(reply) != "NOPERM":
            return True
        self.debts.pop(debt, None)
        return False

    def rehome(self):
        """Gives what another node serves by now to that one."""
        for hold in list(self.holds):
            if self.session.node(hold.key) is not self:
                self.holds.discard(hold)
                self.session.node(hold.key).hold(hold)
        for key, owner in list(self.debts):
            if self.session.node(key) is not self:
                del self.debts[key, owner]
                self.session.node(key).leave(key, owner)

    def hold(self, hold):
        self.holds.add(hold)
        self.keeper.wake()

    def lose(self, hold):
        self.holds.discard(hold)
        if not hold.ended:
            hold.end()
            log.warning("lock %r was lost", hold.key)
            self.leave(hold.key, hold.owner)

    def leave(self, key, owner):
        self.debts[key, owner] = True
        self.keeper.wake()


class Session:
    """What all locks of one Redis client share. A driver adds `event`, `spawn`, `run`, `new_wire` and `connection`."""

    def __init__(self, client):
        self.client, self.uid, self.count, self.closed = client, uuid.uuid4().hex, itertools.count(), False
        self.mutex, self.asked, self.nodes, self.wires, self.refreshed = threading.Lock(), {}, {}, {}, -math.inf

    def name(self, task):
        own = f"{self.uid}:{next(self.count)}".encode()
        return own if task is None else task + b"##" + own

    def node(self, key):
        return self.node_at(self.node_address(key))

    def node_at(self, address):
        node = self.nodes.get(address)
        if node is None:
            node = self.nodes.setdefault(address, Node(self, address))
        return node

    def node_address(self, key):
        """None where there is one server only, or where Sentinel says which it is."""
        if not hasattr(self.client, "nodes_manager"):
            return None
        node = self.client.get_node_from_key(key)
        return node.host, node.port

    def wire(self, address, mail):
        wire = self.wires.get((address, mail))
        if wire is None:
            wire = self.wires.setdefault((address, mail), self.new_wire(lambda: self.connection(address, mail)))
        return wire

    def may_refresh(self, node):
        allowed = node.address is not None and now() > self.refreshed + 100
        self.refreshed = now() if allowed else self.refreshed
        return allowed

    def tag(self, node):
        """In a cluster LOCK.MAIL is routed by the box's name: a hash tag that the node serves."""
        if node.address is None:
            return ""
        return next(f"{{{n}}}" for n in range(16384 * 16) if self.node_address(str(n)) == node.address)

    def ask(self, *command):
        """One command, followed to where its key is served."""
        asking, node = [], self.node(command[1])
        for _ in range(5):
            reply = (yield Call(node, asking + [command]))[-1]
            if isinstance(reply, MovedError):
                yield Refresh(node)
                asking, node = [], self.node(command[1])
            elif isinstance(reply, AskError):
                asking, node = [("ASKING",)], self.node_at((reply.host, reply.port))
            else:
                break
        return reply

    def close(self, ms):
        """Leaves all that is waited for and all that is renewed. Whether all of it has been said."""
        end, self.closed = now() + ms, True
        for owner, ticket in list(self.asked.items()):
            ticket.settle(Again(ResponseError("closed"), failing=True))
            ticket.node.leave(ticket.key, owner)
        for node in list(self.nodes.values()):
            for hold in list(node.holds):
                node.holds.discard(hold)
                hold.end()
                node.leave(hold.key, hold.owner)
        while any(node.debts for node in list(self.nodes.values())) and now() < end:
            yield Wait(self.event(), 5)
        return not any(node.debts for node in self.nodes.values())


def fields(letter):
    pairs = letter.items() if isinstance(letter, dict) else zip(letter[::2], letter[1::2])
    return {name.decode(): value for name, value in pairs}


def acquire(session, command, key, lease, wait, poll=None, task=None, **options):
    """A Hold, or None if there was none within `wait` ms (None: no limit; 0: asked once). `poll`: how often to look where
    something that is no lock of this kind has the key: what other libraries take with SET NX is seen so."""
    end, failing, tries = math.inf if wait is None else now() + wait, None, 0
    while True:
        tries, pause = tries + 1, 20
        try:
            return (yield from attempt(session, command, key, lease, end - now() if wait != 0 else 0, task, options))
        except Again as again:
            cause, failing = again.cause, (failing or now()) if again.failing else None
            if wait == 0:
                last_try = tries > 1 or isinstance(cause, TimeoutError)  # once more over a new connection, not after a silence
            elif wait is None:
                last_try = failing and now() > failing + PATIENCE
            else:
                last_try = now() + pause >= end
            if session.closed or last_try or isinstance(cause, AuthenticationError):
                if cause is not None:
                    raise cause
                return None
            if failing:
                pause = min(20 * 2 ** min(tries, 5), max(20, end - now()))
                yield Refresh(session.node(key))
            elif cause is None:
                continue
        except RefusedError as refused:
            if code(refused) != "WRONGTYPE" or poll is None:
                raise
            if wait == 0 or now() + poll > end:
                return None
            pause = poll
        yield Wait(session.event(), pause)


def attempt(session, command, key, lease, left, task, options):
    """One request under one name. Whatever is not known of it in the end is left."""
    owner, node, asking = session.name(task), session.node(key), []
    known, ticket = True, Ticket(key, node, session.event())
    session.asked[owner] = ticket  # before it is sent: a letter may overtake the reply
    try:
        for _ in range(3):
            waiting = ("WAIT", 0 if left == math.inf else max(1, math.ceil(left)), "MAIL", node.box) if left > 0 else ()
            debts = [debt for debt in list(node.debts) if debt[0] == key]  # so that nobody waits for what he left himself
            sent, known, ticket.node = now(), False, node
            replies = yield Call(node, [("LOCK.LEAVE", *debt, "FOR", LEAVE_FOR) for debt in debts] + asking
                                 + [(command, key, owner, lease, "HOLDS", 1, *waiting)])
            for debt, reply in zip(debts, replies):
                node.left(debt, reply)
            reply = replies[-1]
            if not isinstance(reply, AskError) or isinstance(reply, MovedError):
                break
            asking, node = [("ASKING",)], session.node_at((reply.host, reply.port))
        if isinstance(reply, list):
            ticket.since, ticket.known_at = reply[1], now()
            node.queued.add(ticket)
            if ticket.since != node.since:
                node.doubted.add(ticket)
            node.listener.wake()
            ends = now() + left + LETTER_DELAY
            while not (yield Wait(ticket.event, min(ends - now(), 60_000))):
                if now() >= ends:
                    raise Again()
            reply, sent = ticket.answer, max(sent, ticket.begin)
            if isinstance(reply, Again):
                raise reply
        if reply is None:
            known = True
            return None
        if isinstance(reply, Exception):
            known = True
            if follow_elsewhere(reply):
                raise Again(reply, failing=True)
            raise (DeadlockError if code(reply) == "DEADLOCK" else RefusedError)(str(reply), key)
        hold = Hold(key, owner, lease, reply, sent, session.event(), **options)
        if hold.until - now() < lease / 2:
            sent = now()
            confirmed = yield from session.ask(*hold.renewal(lease))
            if confirmed != hold.token or not hold.held():
                raise Again()
            hold.believe(sent, lease)
        known = True
        if hold.renewed:
            node.hold(hold)
        return hold
    except Unanswered as error:
        known = known or not error.sent
        raise Again(error.cause, failing=True) from None
    finally:
        node.queued.discard(ticket)
        node.doubted.discard(ticket)
        session.asked.pop(owner, None)
        if not known:
            node.leave(key, owner)


def release(session, hold):
    """Whether it was held to the end. What is not known of it is left, without anybody waiting for that."""
    node, held, known = session.node(hold.key), hold.held(), False
    node.holds.discard(hold)
    hold.end()
    try:
        reply = yield from session.ask("LOCK.RELEASE", hold.key, hold.owner, "ALL", "TOKEN", hold.token)
        if not isinstance(reply, Exception):
            known = True
            return held and reply is not None
        known = code(reply) in ("WRONGTYPE", "NOPERM")
        if code(reply) == "NOPERM":
            raise RefusedError(str(reply), hold.key)
        return held and not known
    except Unanswered:
        return held
    finally:
        if not known:
            node.leave(hold.key, hold.owner)


def extend(session, hold, lease):
    """Whether the lock is held, for `lease` ms more from now on at least."""
    sent = now()
    if not hold.held():
        return False
    try:
        reply = yield from session.ask(*hold.renewal(lease))
    except Unanswered as error:
        raise error.cause from None
    if isinstance(reply, Exception) and code(reply) != "WRONGTYPE":
        raise RefusedError(str(reply), hold.key)
    if reply != hold.token or not hold.held():
        return False
    hold.believe(sent, lease)
    return True
