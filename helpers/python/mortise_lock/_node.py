"""One server as its locks see it: what is believed of holds, who waits for letters, what is renewed and what is left.

No socket, no thread and no loop here. What needs the outside world is a generator: it yields a step, `Call`, `Wait` or
`Refresh`, and is sent what came of it. `_rules.py` lies above this file, and has the way of an acquisition.
"""
import logging
import math
import time
import uuid
from typing import NamedTuple

from redis.exceptions import MovedError, ResponseError

log = logging.getLogger("mortise_lock")
MAIL_WAIT = 2_000  # ms for which one LOCK.MAIL waits
LEAVE_FOR = 60_000  # ms in which what arrives late of a name that was left changes nothing
LINGER = 2_000  # ms for which a background worker stays without work


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


def fields(letter):
    pairs = letter.items() if isinstance(letter, dict) else zip(letter[::2], letter[1::2])
    return {name.decode(): value for name, value in pairs}
