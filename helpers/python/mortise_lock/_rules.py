"""What a client of Mortise requests, relies on and leaves. No socket, thread or loop here: `__init__.py` and `asyncio.py` bring them.

One rule stands above the others: *a hold whose state is unknown is never kept*. Every attempt has a name of its own. If its outcome is
unknown, LOCK.LEAVE … FOR is repeated until the server replies, and late requests of that name change nothing.

All is written as coroutines. What they wait for suspends them with asyncio; with threads it blocks where it stands, so that
a coroutine runs to its end in one go. Threads wait for a lock on a connection each, tasks by mail (`_mail.py`).
"""
import contextlib
import functools
import itertools
import math
import threading
import uuid
import weakref

from redis.exceptions import AskError, MovedError, RedisClusterException

from ._values import BROKEN, LEAVE_FOR, MOST, TICK, Failed, UnconfirmedError, changes_nothing, code, is_gone, judged, keys_of, log, now, settled

AGAIN = 100  # ms after which background work that failed is done again


class Worker:
    """Work in the background, that starts when there is some and ends a while after there is none."""

    def __init__(self, session, work, load):
        self.session, self.work, self.load, self.event, self.running, self.until = session, work, load, session.event(), False, math.inf

    def wake(self, urgent=True):
        """Whether the work will be done."""
        start = spawned = False
        try:
            with self.session.mutex:
                start, self.running = not self.running, True
                if urgent:
                    self.event.set()
            # With the pool, which stays for as long as there is work: with it the connections would go.
            spawned = self.session.spawn(functools.partial(self.repeat, self.session.pool())) if start else True
        finally:
            if start and not spawned:  # no thread could be started, or a signal handler raised
                self.running = False
        return spawned is not False

    async def repeat(self, pool):
        while self.running:
            self.event, self.until = self.session.event(), math.inf
            busy = self.load()
            try:
                await (self.work() if busy else self.wait(TICK))
            except Exception:
                log.exception("a lock's background work failed; it goes on")
                await self.session.pause(TICK)
            with self.session.mutex:
                self.running = (busy and not self.session.closed) or self.load()

    async def wait(self, ms):
        """Waits until it is woken, or for so long. `until`: when that is over, which tells whether something is urgent."""
        self.until = now() + ms
        await self.session.wait(self.event, ms)


class Node:
    """One server: what is held there, and the LEAVEs that it has not answered."""

    def __init__(self, session, address):
        self.session, self.address, self.holds, self.leaves = session, address, set(), set()
        self.keeper = Worker(session, self.keep, lambda: bool(self.holds or self.leaves))

    def waiting(self, ms):
        """What makes a request wait for so long."""
        return ("WAIT", 0 if ms >= 2**53 else max(1, math.ceil(ms))) if ms > 0 else ()

    async def keep(self):
        """Leaves names of unknown outcome, and renews held locks: many in one pipeline."""
        start = now()
        for hold in [hold for hold in list(self.holds) if not hold.held()]:
            self.lose(hold)
        holds = list(self.holds)
        due, leaves = [hold for hold in holds if hold.is_due(start)][:MOST], list(self.leaves)[:MOST]
        if not due and not leaves:
            return await self.keeper.wait(max(1, min([TICK] + [hold.due_at() - start for hold in holds])))
        failed = any([self.left(leave, reply) for leave, reply in zip(leaves, await self.session.pipeline(self, leaves))])
        failed = await self.renew(due) or failed
        if failed:
            await self.session.refresh(self)
            self.rehome()
            await self.session.pause(min([AGAIN] + [hold.lease / 10 for hold in holds]))

    def left(self, leave, reply):
        """Takes the reply to a LEAVE. Whether to send it again."""
        failed = isinstance(reply, Exception) and code(reply) not in ("NOPERM", "WRONGTYPE")
        if not failed:
            self.leaves.discard(leave)
        return failed

    async def renew(self, holds):
        """Whether one of these holds has to be renewed again."""
        sent, send = now(), self.session.confirm if self.session.replicas else self.session.pipeline
        leases = [min(hold.lease, hold.last - sent) for hold in holds]
        replies = iter(await send(self, [command for hold, lease in zip(holds, leases) for command in hold.renewals(lease)]))
        said = [self.session.renewed(hold, sent, lease, [next(replies) for _ in hold.keys]) for hold, lease in zip(holds, leases)]
        return any(isinstance(one, Exception) for one in said)

    def rehome(self):
        """Gives what another node serves by now to that one."""
        for hold in list(self.holds):
            if (node := self.session.node(hold.key)) is not self:
                self.holds.discard(hold)
                node.hold(hold)
        for leave in list(self.leaves):
            if (node := self.session.node(leave[1])) is not self:
                self.leaves.discard(leave)
                node.leave(leave[2], [leave[1]])

    def hold(self, hold):
        """Renews it from now on. Whether it could start that."""
        self.holds.add(hold)
        return self.keeper.wake(urgent=hold.due_at() < self.keeper.until)

    def leave(self, owner, keys):
        """Leaves that name at these keys."""
        self.leaves.update(("LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR) for key in keys)
        self.keeper.wake()

    def lose(self, hold):
        if not hold.ended:
            log.warning("lock %r was lost", hold.key)
        self.give_up(hold)

    def give_up(self, hold):
        self.holds.discard(hold)
        if not hold.ended:
            hold.end()
            if not hold.rests():  # then its lease ends it
                self.leave(hold.owner, hold.keys)


class Session:
    """What all locks of one pool of connections share that as many replicas confirm; of a cluster, of one client. A driver adds `event`,
    `wait`, `spawn` (whether it could; None if the program ends), `wires` (the class of connections to one server), `pool_at`, `end_waits`
    and `hang_up`."""

    node_kind, limited = Node, staticmethod(settled)  # limited: awaits an answer of the client's, with its own time limits

    def __init__(self, pool, place, replicas):
        self.replicas = replicas
        self.pool, self.place, self.uid, self.count, self.closed = weakref.ref(pool), place, uuid.uuid4().hex, itertools.count(), False
        self.in_cluster = hasattr(pool, "nodes_manager")
        self.mutex, self.nodes, self.opened, self.refreshed, self.working = threading.RLock(), {}, {}, -math.inf, []

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

    def wire(self, node, use=None):
        """The connections to a node for one use: for commands; "mail"; "confirm", where a command that waits for replicas blocks others."""
        place, replicas = (node.address, use), self.replicas if use == "confirm" else 0
        return self.opened.get(place) or self.opened.setdefault(place, self.wires(lambda: self.pool_at(node.address), replicas))

    async def confirm(self, node, renewals):
        """The replies to renewals, and a `Failed` for each one that too few replicas have."""
        replies = await self.wire(node, "confirm").call(renewals) if renewals else []
        if any(isinstance(reply, Failed) and isinstance(reply.cause, UnconfirmedError) for reply in replies):
            for (address, _), wire in list(self.opened.items()):  # a primary that has lost its replicas may have a successor
                if address == node.address:
                    wire.hang_up_idle()
        return list(map(judged, replies))

    async def pipeline(self, node, commands):
        """The replies to commands about keys that the node serves."""
        replies = await self.wire(node).call(commands) if commands else []
        return [await self.ask(*command) if type(reply) is AskError else judged(reply) for command, reply in zip(commands, replies)]

    async def pause(self, ms):
        await self.wait(self.event(), ms)

    async def refresh(self, node):
        """Finds the nodes again: `node` no longer serves the key."""
        if node.address is not None and now() > self.refreshed + 100:
            self.refreshed = now()
            try:
                await self.limited(self.pool().nodes_manager.initialize())
            except BROKEN as error:
                log.warning("the cluster does not say who serves what: %s", error)

    async def ask(self, *command):
        """The reply to a command about a key."""
        return (await self.send(command))[1]

    async def send(self, command, wait=0, most=math.inf):
        """Sends a command about a key to the node that serves it, after the LEAVEs for that key. That node and its reply. `wait`: for how
        many ms the request waits for a lock. `most`: for so many ms its reply is awaited, if that is shorter than usual."""
        keys, asking = keys_of(command), []
        node = self.node(keys[0])
        for _ in range(5):
            few = list(node.leaves) if len(node.leaves) < 100 else []  # many are left to the keeper
            first = [leave for leave in few if leave[1] in keys]
            *replies, reply = await self.wire(node).call([*first, *asking, (*command, *node.waiting(wait))], wait, most)
            for leave, left in zip(first, replies):
                node.left(leave, left)
            if isinstance(reply, MovedError):
                await self.refresh(node)
                asking, node = [], self.node(keys[0])
            elif isinstance(reply, AskError):
                host = reply.host or node.address[0]  # a server that does not know its clients' name for it gives none
                asking, node = [("ASKING",)], self.node(keys[0], at=(host, reply.port))
            else:
                break
        return node, judged(reply)

    async def request(self, hold, command, wait, most):
        """Asks for a hold. The reply within so many ms, and since when what it grants is held at least. `most`: as for `send`."""
        sent = now()
        return (await self.send(command, wait, most))[1], sent

    @contextlib.contextmanager
    def work(self):
        """`close` waits for what is done in here. It counts by a list, to which threads append without a mutex."""
        self.working.append(None)
        try:
            yield
        finally:
            self.working.pop()

    async def renew(self, hold, lease):
        """The replies to a renewal of each of its keys."""
        if self.replicas:
            return await self.confirm(self.node(hold.key), hold.renewals(lease))
        replies = []
        for command in hold.renewals(lease):
            replies.append(await self.ask(*command))
            if isinstance(replies[-1], Failed):  # nor would the server answer for the other keys
                break
        return replies

    def renewed(self, hold, sent, lease, replies):
        """Takes the replies to a renewal of each of its keys. Whether it is held now, or an error if that is unknown."""
        gone, failed = any(map(is_gone, replies)), next((reply for reply in replies if isinstance(reply, Exception)), None)
        if gone:
            hold.rests_until = -math.inf  # if it was revoked, it shall be free
        elif failed is not None:
            return failed
        if gone or not hold.held():  # a belief that has run out is never taken up again
            self.node(hold.key).lose(hold)
            return False
        hold.believe(sent, lease)
        return True

    async def extend(self, hold, lease):
        """Whether the lock is held, for `lease` ms more from now on at least; the error if that is unknown."""
        sent = now()
        return self.renewed(hold, sent, lease, await self.renew(hold, lease) if hold.held() else [])

    async def release(self, hold):
        """Whether it was held to the end; the error where it must not be released. Where that is unknown at a key, it is left there,
        without anybody waiting for that; but what has to stay taken for a while stays until its lease is over."""
        node, held, refused, unknown = self.node(hold.key), hold.held(), None, set(hold.keys)
        try:
            node.holds.discard(hold)
            hold.end()
            for key in hold.keys:
                reply = await self.end(hold, key)
                if isinstance(reply, Failed):  # nor would the server answer for the other keys
                    break
                if isinstance(reply, Exception) and code(reply) not in ("WRONGTYPE", "NOPERM"):
                    continue
                unknown.discard(key)
                held = held and not is_gone(reply)
                refused = reply if isinstance(reply, Exception) and not is_gone(reply) else refused
            return refused or held
        finally:
            if unknown and not hold.rests():
                node.leave(hold.owner, unknown)

    async def end(self, hold, key):
        """Gives one of its keys back, or what is left of `at_least` to a name that nobody uses."""
        if hold.rests():
            nobody = b"rest:" + hold.owner[-250:]
            reply = await self.ask(*hold.handover(key, nobody, hold.rests_until - now()))
            if not is_gone(reply):
                return reply
            hold.rests_until = -math.inf  # it was revoked
            if key != hold.key:  # of several keys all stay taken, or none
                self.node(key).leave(nobody, hold.keys[:hold.keys.index(key)])
        return await self.ask("LOCK.RELEASE", key, hold.owner, "ALL", "TOKEN", hold.token)

    async def hand_over(self, hold, heir, lease):
        """The token by which another name holds it from now on; False where it was lost before. An error that came as a reply has
        changed nothing; otherwise an unknown outcome is left under both names."""
        if not hold.held():
            return False
        node, reply = self.node(hold.key), Failed()
        renewed = hold in node.holds
        node.holds.discard(hold)
        try:
            reply = await self.ask(*hold.handover(hold.key, heir, lease))
            return False if is_gone(reply) else reply
        finally:
            if isinstance(reply, int):
                hold.end()
            elif is_gone(reply) or not changes_nothing(reply):
                hold.rests_until = -math.inf
                node.give_up(hold)
            elif renewed and not hold.ended:  # it may have been released meanwhile
                node.hold(hold)
            if not isinstance(reply, int) and not changes_nothing(reply):
                node.leave(heir, hold.keys)

    async def close(self, ms):
        """Leaves all locks that it waits for or renews. Whether all of it was confirmed, and what others have begun."""
        end, self.closed = now() + ms, True
        for node in list(self.nodes.values()):
            for hold in list(node.holds):
                node.give_up(hold)
        while True:
            self.end_waits()
            working = bool(self.working)  # looked at first: what ends may have to leave something
            owing = [node for node in list(self.nodes.values()) if node.leaves]
            if not (owing or working) or now() >= end:
                break
            for node in owing:
                if not node.keeper.running:  # the interpreter ends, and starts no more threads
                    await node.keep()
            await self.pause(5)
        for wire in list(self.opened.values()):
            await wire.hang_up()
        return not owing and not working
