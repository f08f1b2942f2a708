"""What a client of Mortise requests, relies on and leaves. No socket, thread or loop here: `__init__.py` brings them.

One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own. If its outcome is
unknown, LOCK.LEAVE … FOR is repeated until the server replies, and late requests of that name change nothing.

All is written as coroutines. What they wait for suspends them with asyncio; with threads it blocks where it stands, so that
a coroutine runs to its end in one go. Threads wait for a lock on a connection each, tasks by mail (`_mail.py`).
"""
import contextlib
import itertools
import math
import threading
import uuid
import weakref

from redis.exceptions import AskError, LockError, MovedError, RedisClusterException

from ._values import MOST, TICK, Failed, Hold, PendingLeave, code, fields, judged, keys_of, log, now, settled
from ._worker import Worker


def being_passed():
    return Failed(LockError("The lock is being passed on: whether it is still held is not known yet"), known=True)


class Node:
    """One server: what is held there, and what has to be left there."""

    def __init__(self, session, address):
        self.session, self.address = session, address
        self.holds, self.pending_leaves, self.pause, self.answered_at = set(), set(), 20, -math.inf
        self.keeper = Worker(session, self.keep, lambda: bool(self.holds or self.pending_leaves))

    def waiting(self, ms):
        """What makes a request wait for so long."""
        return ("WAIT", 0 if ms == math.inf else max(1, math.ceil(ms))) if ms > 0 else ()

    async def keep(self):
        """Renews held locks, and leaves names of unknown outcome: many in one pipeline."""
        start, holds = now(), list(self.holds)
        for hold in holds:
            if start >= hold.until:
                self.lose(hold)
        jobs = [(self.renewed, hold, command) for hold in holds
                if hold.renew_at <= start + hold.lease / 10 and start < min(hold.last, hold.until)
                for command in hold.renewals(min(hold.lease, hold.last - start))]
        leaves = [(self.left, pending, pending.command) for pending in list(self.pending_leaves)[:MOST]]
        if not jobs and not leaves:
            return await self.session.wait(self.keeper.event, max(1, min([TICK] + [hold.due_at() - start for hold in holds])))
        if self.session.replicas:  # no LEAVE waits for them
            failed = await self.exchange(leaves, self.session.call)
            failed = await self.exchange(jobs, self.session.confirm) or failed
        else:
            failed = await self.exchange(jobs + leaves, self.session.call)
        if failed:
            await self.session.refresh(self)
            self.rehome()
            await self.session.pause(min([self.pause] + [hold.lease / 10 for hold in holds]))
        self.pause = min(self.pause * 2, 500) if failed else 20

    async def exchange(self, jobs, call):
        """Sends the command of each job, and lets it take the reply. Whether one of them has to be sent again."""
        failed = False
        while jobs:
            some, jobs, sent = jobs[:MOST], jobs[MOST:], now()
            for (take_reply, what, command), reply in zip(some, await call(self, [command for _, _, command in some])):
                if isinstance(reply, AskError) and not isinstance(reply, MovedError) and call == self.session.call:
                    reply = (await self.session.ask(*command))[1]
                failed = take_reply(what, reply, sent, command[1]) or failed
                if isinstance(reply, Failed):  # so will the rest
                    jobs = []
        return failed

    def renewed(self, hold, reply, sent, key):
        """Takes the answer to a renewal of a key. Whether it has to be asked again."""
        if reply is None or code(reply) == "WRONGTYPE":
            hold.rests_until = -math.inf  # it is gone, or was revoked: then it shall be free
            self.lose(hold)
        elif reply == hold.token and now() < hold.until:  # a belief that has run out is never taken up again
            hold.renewed(key, sent)
        return isinstance(reply, Exception)

    def left(self, pending, reply, *_):
        """Takes the reply to a pending LEAVE. Whether to send it again."""
        failed = isinstance(reply, Exception) and code(reply) not in ("NOPERM", "WRONGTYPE")
        if not failed:
            self.pending_leaves.discard(pending)
        return failed

    def rehome(self):
        """Gives what another node serves by now to that one."""
        for hold in list(self.holds):
            if (node := self.session.node(hold.key)) is not self:
                self.holds.discard(hold)
                node.hold(hold)
        for pending in list(self.pending_leaves):
            if (node := self.session.node(pending.key)) is not self:
                self.pending_leaves.discard(pending)
                node.leave(pending.hold, [pending.key])

    def hold(self, hold):
        self.holds.add(hold)
        self.keeper.wake(urgent=hold.due_at() < now() + TICK)

    def leave(self, hold, keys=None):
        """Leaves its name at these keys; without them at all of its own."""
        self.pending_leaves.update(PendingLeave(hold, key) for key in keys or hold.keys)
        self.keeper.wake()

    def lose(self, hold):
        if not hold.ended.sent:
            log.warning("lock %r was lost", hold.key)
        self.give_up(hold)

    def give_up(self, hold):
        self.holds.discard(hold)
        if not hold.ended.sent:
            hold.ended.send()
            if not hold.rests():  # then its lease ends it
                self.leave(hold)


class Session:
    """What all locks of one pool of connections share that as many replicas confirm; of a cluster, of one client. A driver adds `event`,
    `wait`, `spawn` (whether it could), `call`, `confirm` and `hang_up`."""

    node_kind = Node

    def __init__(self, pool, place, replicas):
        self.replicas = replicas
        self.pool, self.place, self.uid, self.count, self.closed = weakref.ref(pool), place, uuid.uuid4().hex, itertools.count(), False
        self.in_cluster = hasattr(pool, "nodes_manager")
        self.mutex, self.asked, self.nodes, self.wires, self.refreshed = threading.RLock(), {}, {}, {}, -math.inf
        self.working = 0

    def name(self, task=None, holder=None):
        """A name that nobody has had. `holder` is for people; by `task` the server finds deadlocks."""
        own = f"{self.uid}:{next(self.count)}".encode()
        own = own if holder is None else holder + b":" + own
        return own if task is None else task + b"##" + own

    def address(self, key):
        """None if there is one server only, or if Sentinel names it."""
        if not self.in_cluster:
            return None
        cluster = self.pool()
        try:
            node = cluster.get_node_from_key(key)
        except RedisClusterException:  # nobody serves it now: any node says so
            node = cluster.get_default_node()
        return node.host, node.port

    def node(self, key, at=None):
        address = at or self.address(key)
        return self.nodes.get(address) or self.nodes.setdefault(address, self.node_kind(self, address))

    async def call(self, node, commands, wait=0):
        """Their replies: the server's, errors too, or a `Failed` for each. `wait`: for so many ms the last one may be kept waiting."""
        raise NotImplementedError

    async def confirm(self, node, renewals):
        """The replies to renewals, and a `Failed` for each one that too few replicas have. They go with WAIT in one write, on a connection
        of their own, because WAIT is about what that connection has written, and blocks it."""
        raise NotImplementedError

    async def request(self, hold, words, left):
        """The node that was asked for this hold, and what came of it within `left` ms."""
        return await self.ask(*words, wait=left)

    def end_waits(self):
        """Ends requests that wait on connections."""

    async def pause(self, ms):
        await self.wait(self.event(), ms)

    async def refresh(self, node):
        """Finds the nodes again: `node` no longer serves the key."""
        if node.address is not None and now() > self.refreshed + 100:
            self.refreshed = now()
            try:
                await settled(self.pool().nodes_manager.initialize())
            except Exception as error:  # redis-py's own for this is no RedisError
                log.warning("the cluster does not say who serves what: %s", error)

    async def ask(self, *command, wait=0):
        """One command about a key, sent to the node that serves it, after the LEAVEs for that node. The node and
        its reply. `wait`: for how long the request waits."""
        keys, asking = keys_of(command), []
        node = self.node(keys[0])
        for _ in range(5):
            few = list(node.pending_leaves) if len(node.pending_leaves) < 100 else []  # many are left to the keeper
            first = [pending for pending in few if pending.key in keys]
            commands = [pending.command for pending in first] + asking + [(*command, *node.waiting(wait))]
            *replies, reply = await self.call(node, commands, wait)
            for pending, left in zip(first, replies):
                node.left(pending, left)
            if isinstance(reply, MovedError):
                await self.refresh(node)
                asking, node = [], self.node(keys[0])
            elif isinstance(reply, AskError):
                host = reply.host or node.address[0]  # a server that does not know its clients' name for it gives none
                asking, node = [("ASKING",)], self.node(keys[0], at=(host, reply.port))
            else:
                break
        return node, judged(reply)

    @contextlib.contextmanager
    def work(self):
        """`close` waits for what is done in here."""
        with self.mutex:
            self.working += 1
        try:
            yield
        finally:
            with self.mutex:
                self.working -= 1

    async def extend(self, hold, lease):
        """Whether the lock is held, for `lease` ms more from now on at least; the error if that is unknown."""
        sent = now()
        if hold.passing:
            return being_passed()
        for reply in await self.renew(hold, lease) if hold.held() else [None]:
            if isinstance(reply, Exception) and code(reply) != "WRONGTYPE":
                return reply
            if reply != hold.token or not hold.lasts():  # a pass that began meanwhile may be refused
                hold.rests_until = -math.inf
                self.node(hold.key).lose(hold)
                return False
        hold.believe(sent, lease)
        return True

    async def renew(self, hold, lease):
        """The replies to a renewal of each of its keys."""
        if self.replicas:
            return map(judged, await self.confirm(self.node(hold.key), [hold.renewal(key, lease) for key in hold.keys]))
        return [(await self.ask(*hold.renewal(key, lease)))[1] for key in hold.keys]

    async def release(self, hold):
        """Whether it was held to the end; the error where it must not be released. Where that is unknown at a key, it is left there,
        without anybody waiting for that; but what has to stay taken for a while stays until its lease is over."""
        node, held, barred, unknown = self.node(hold.key), hold.held(), None, set(hold.keys)
        node.holds.discard(hold)
        hold.ended.send()
        try:
            for key in hold.keys:
                node, reply = await self.end(hold, key)
                if reply is None or code(reply) == "WRONGTYPE":
                    held = False
                elif code(reply) == "NOPERM":
                    barred = reply
                elif isinstance(reply, Exception):
                    continue
                unknown.discard(key)
            return barred or held
        finally:
            if unknown and not hold.rests():
                node.leave(hold, unknown)

    async def end(self, hold, key):
        """Gives one of its keys back, or what is left of `at_least` to a name that nobody uses. The node and its reply."""
        if hold.rests():
            node, reply = await self.ask(*hold.handover(key, b"rest:" + hold.owner[-250:], hold.rests_until - now()))
            if reply is not None:
                return node, reply
            hold.rests_until = -math.inf  # it was revoked
        return await self.ask("LOCK.RELEASE", key, hold.owner, "ALL", "TOKEN", hold.token)

    async def hand_over(self, hold, heir, lease):
        """The token by which another name holds it from now on; False where it was lost before. An error that came as a reply has
        changed nothing; otherwise an unknown outcome is left under both names."""
        node, known, unchanged = self.node(hold.key), False, False
        with self.mutex:
            if hold.passing:
                return being_passed()
            renewed, held, hold.passing = hold in node.holds, hold.held(), True  # nobody relies on it once this is sent
        node.holds.discard(hold)
        try:
            node, reply = await self.ask(*hold.handover(hold.key, heir, lease)) if held else (node, None)
            known = not isinstance(reply, Failed) or reply.known
            unchanged = known and isinstance(reply, Exception) and code(reply) != "WRONGTYPE"
            return reply if isinstance(reply, int) or unchanged or not known else False
        finally:
            hold.passing = False
            if not unchanged:
                hold.rests_until = -math.inf
                hold.ended.send()
            elif renewed and not hold.ended.sent:  # it may have been released meanwhile
                node.hold(hold)
            if not known:
                node.leave(hold)
                node.leave(Hold(hold.keys, heir, 0, self.event))

    async def take_over(self, hold, owner, token):
        """Whether what another name held is held by this one now; the error where it was not given. Where that is unknown, it is left."""
        sent, known, node = now(), False, self.node(hold.key)
        try:
            node, reply = await self.ask("LOCK.PASS", hold.key, owner, hold.owner, hold.lease, "TOKEN", token)
            known = not isinstance(reply, int) and getattr(reply, "known", True)
            if not isinstance(reply, int):
                return reply or False
            hold.granted(reply, sent)
            taken = await self.extend(hold, hold.lease) if self.replicas else hold.held()
            known = taken is True
            return taken
        finally:
            if not known:
                node.leave(hold)

    async def holds(self, key):
        """The holders, by the server, or the error."""
        reply = (await self.ask("LOCK.INFO", key, "COUNT", 2**31 - 1))[1]
        return reply if isinstance(reply, Exception) else [fields(hold) for hold in fields(reply)["holds"]] if reply else []

    async def revoke(self, key, owner=None):
        """In how many ms the last of the revoked holds is over; None if there is none, or the error."""
        owners, latest = [owner], None
        if owner is None:
            holds = await self.holds(key)
            if isinstance(holds, Exception):
                return holds
            owners = [hold["owner"] for hold in holds]
        for one in owners:
            left = (await self.ask("LOCK.REVOKE", key, one))[1]
            if isinstance(left, Exception):
                return left
            latest = left if latest is None else max(latest, left or 0)
        return latest

    def owes(self):
        """Whether something is under way, or has to be left."""
        return self.working > 0 or any(node.pending_leaves for node in list(self.nodes.values()))

    async def close(self, ms):
        """Leaves all locks that it waits for or renews. Whether all of it was confirmed, and what others have begun."""
        end, self.closed = now() + ms, True
        for owner in list(self.asked):
            if hold := self.asked.pop(owner, None):  # else its attempt has come to its end
                hold.settle(Failed())
                self.node(hold.key).leave(hold)
        for node in list(self.nodes.values()):
            for hold in list(node.holds):
                node.give_up(hold)
        while (owing := self.owes()) and now() < end:
            for node in list(self.nodes.values()):
                if node.pending_leaves and not node.keeper.running:  # the interpreter ends, and starts no more threads
                    await node.keep()
            self.end_waits()
            await self.pause(5)
        for wire in list(self.wires.values()):
            await wire.hang_up()
        return not owing
