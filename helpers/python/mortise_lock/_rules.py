"""What a client of Mortise asks, believes and leaves: the way of an acquisition, a renewal on demand and a release.

Generators, as in `_node.py`; threads (`__init__.py`) and asyncio (`asyncio.py`) each bring a session that carries their steps out.

One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own, and one
of which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered; whatever still arrives of it then
changes nothing.
"""
import itertools
import math
import threading
import uuid

from redis.exceptions import AskError, AuthenticationError, LockError, MovedError, ResponseError, TimeoutError

from ._node import LEAVE_FOR, Again, Call, Hold, Node, Refresh, Ticket, Unanswered, Wait, code, now

PATIENCE = 10_000  # ms for which an acquisition without a limit bears a server that cannot be reached
LETTER_DELAY = 1_000  # ms past its limit in which a waiter's answer may still come


class DeadlockError(LockError):
    """The server found that this wait would never end. The text names the keys."""


class RefusedError(LockError):
    """The server refused: a key of another type, too many waiters, no permission. The text is its own."""


def follow_elsewhere(error):
    """An error of a server that is not, or not yet, the one to ask."""
    return code(error) in ("READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT")


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
