"""Locks that the server knows, for asyncio. The class has the methods of `redis.asyncio.lock.Lock`."""
from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import functools
import math
from typing import TYPE_CHECKING, Union

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.exceptions import ResponseError, TimeoutError

from . import _rules as rules
from . import session_of, sessions_of
from ._mail import Node, in_time
from ._lock import BaseLock, BaseMultiLock, BaseSemaphore, BusyError, DeadlockError, LockError, LockNotOwnedError, Name, RefusedError
from ._taken import Taken
from ._values import MOST, Failed, UnconfirmedError, is_demoted, milliseconds, now
from ._wire import TIMEOUT, cause_of, check_attached, confirmed, connection_like, packed, wait_for

__all__ = ["Lock", "MultiLock", "ReadLock", "Semaphore", "BusyError", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError",
           "UnconfirmedError", "close", "revoke"]

if TYPE_CHECKING:
    from typing_extensions import Self

Client = Union[Redis, RedisCluster]


# What the task that runs has taken, by whatever lock object, and those that began it had taken by then.
taken_here = contextvars.ContextVar("mortise_lock_taken", default=())


class TakenByTasks(Taken):
    """The acquisitions of one lock object by tasks."""

    @staticmethod
    def place():
        try:
            return asyncio.current_task()
        except RuntimeError:  # no loop runs
            return None

    @staticmethod
    def is_over(place):
        return place is None or place.done()

    def is_shared(self, one):
        # A task uses what the tasks that began it had taken by then, as in `asyncio.shield(lock.release())`. What a task has taken that
        # is over belongs to nobody else, as after `asyncio.wait_for(lock.acquire(), 5)`.
        return self.is_common or self.is_over(one.place) or one in taken_here.get()

    def add(self, token, hold):
        added = super().add(token, hold)
        taken_here.set((*(one for one in taken_here.get() if one.hold and one.hold.held()), added))
        return added


class Watch:
    """Cancels the task that is in a block when the lock of the block is lost."""

    def __init__(self, lock, taken):
        self.lock, self.taken, self.task, self.cancelled = lock, taken, asyncio.current_task(), False
        self.before = self.task.cancelling() if hasattr(self.task, "cancelling") else 0  # from Python 3.11 on
        self.watching = asyncio.create_task(self.watch())

    async def watch(self):
        await asyncio.sleep(0)  # an eager task begins while the one that it may cancel runs
        if await self.lock._lost(self.taken):
            self.cancelled = True
            self.task.cancel()

    def stop(self, error):
        """Ends the watch. Whether `error`, by which the block has ended, is its cancelling and nobody else's."""
        self.watching.cancel()
        others = self.cancelled and hasattr(self.task, "uncancel") and self.task.uncancel() > self.before
        return self.cancelled and isinstance(error, asyncio.CancelledError) and not others


class Lock(BaseLock[Client]):
    """A lock for tasks: what `redis.asyncio.lock.Lock` does, in the server."""

    _takes = TakenByTasks

    async def __aenter__(self) -> Self:
        taken = await self._enter()
        if self.cancel_on_loss:
            taken.watch = Watch(self, taken)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        taken = self._taken.leave()
        cancelled = taken is not None and taken.watch is not None and taken.watch.stop(error)
        await self._exit(taken, None if cancelled else error)
        if cancelled:
            raise self._error(LockNotOwnedError, "The lock was lost, and its block cancelled")

    async def acquire(self, blocking: bool | None = None, blocking_timeout: float | None = None, token: Name | None = None, *,
                      permits: int | None = None) -> bool:
        """As the `acquire` of `mortise_lock.Lock`. Where it is cancelled nothing stays behind."""
        return await self._acquire(blocking, blocking_timeout, token, permits) is not None

    async def _session(self):
        # Only before its first use: later that may fail, which a release must not.
        if hasattr(self.redis, "nodes_manager") and not self.redis.nodes_manager.slots_cache:
            await self.redis.initialize()
        return session_of(self.redis, Session, asyncio.get_running_loop(), self.replicas)


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


class Semaphore(Lock, BaseSemaphore[Client]):
    """Permits for tasks: `limit` of them are out at the same time, in all processes together."""


class MultiLock(Lock, BaseMultiLock[Client]):
    """Several locks for tasks: as `mortise_lock.MultiLock`."""


async def revoke(redis: Client, name: Name, owner: Name | None = None) -> float | None:
    """As `mortise_lock.revoke`."""
    return await Lock(redis, name)._revoke(owner)


async def close(redis: Client | ConnectionPool, timeout: float = 2.0) -> bool:
    """Leaves all that is waited for or renewed through this client's connection pool, by whichever of its clients. Whether the
    server has acknowledged all of it within `timeout` seconds. Those who wait get a ConnectionError."""
    ms = milliseconds("timeout", timeout)
    return all([await session.close(ms) for session in sessions_of(redis)])


class Wire:
    """One connection that all tasks share, made anew after any trouble. A task of its own, which no cancelling ends, sends what has gathered
    in one pipeline, a thousand at most; with `replicas` it ends with what waits for so many to confirm it."""

    def __init__(self, pool, replicas):
        """pool: what gives the pool that it is made like."""
        self.pool, self.replicas, self.connection, self.carrier, self.jobs = pool, replicas, None, None, collections.deque()
        self.is_doubtful = False  # whether the pool may lead to another server by now

    async def call(self, commands, wait=0, most=math.inf):
        return await self.submit(commands)  # which no lock keeps waiting: the server answers by mail

    async def submit(self, commands, wait=0):
        """Their replies. `wait`: for so many ms the server may keep them waiting."""
        future = asyncio.get_running_loop().create_future()
        self.jobs.append((commands, wait, future))
        self.begin()
        return await future

    def begin(self, _=None):
        """Has the jobs sent, also those that a cancelled carrier has left."""
        if (self.carrier is None or self.carrier.done()) and any(not future.done() for _, _, future in self.jobs):
            self.carrier = asyncio.create_task(self.carry())
            self.carrier.add_done_callback(self.begin)

    async def carry(self):
        while self.jobs:
            await self.exchange()

    async def exchange(self):
        batch, known, cause = [], True, None
        try:
            while self.jobs and len(batch) < MOST:
                batch.append(self.jobs.popleft())
            if self.is_doubtful or self.connection is not None and self.connection._reader.at_eof():
                await self.hang_up()
            if self.connection is None:
                await self.open()
            known = False
            await in_time(self.talk(self.connection, batch), self.limit * 1000 + max(wait for _, wait, _ in batch))
        except BaseException as error:
            cause = cause_of(error)
            await self.hang_up()
            if not isinstance(error, Exception):
                raise
        finally:
            for commands, _, future in batch:
                if not future.done():
                    future.set_result([Failed(cause, known)] * len(commands))

    async def open(self):
        self.is_doubtful, self.connection = False, connection_like(self.pool())
        self.limit, limit = self.connection.socket_timeout, self.connection.socket_connect_timeout
        self.connection.socket_timeout = self.connection.socket_connect_timeout = None  # these have no mercy on a loop that was busy
        await in_time(self.connection.connect(), limit * 1000)
        if self.replicas:
            await self.connection.send_command(*wait_for(self.replicas, self.limit), check_health=False)
            check_attached(self.replicas, await in_time(self.connection.read_response(), self.limit * 1000))

    async def talk(self, connection, batch):
        words = [command for commands, _, _ in batch for command in commands]
        if self.replicas:
            words.append(wait_for(self.replicas, self.limit))
        await connection.send_packed_command([packed(words)], check_health=False)
        answers = []
        for commands, _, future in batch:
            answers.append((future, [await self.read(connection) for _ in commands]))
            if not self.replicas:
                self.settle(*answers.pop())
        had = await self.read(connection) if self.replicas else None
        for future, replies in answers:
            self.settle(future, confirmed(self.replicas, replies, had))

    def settle(self, future, replies):
        self.is_doubtful = self.is_doubtful or any(map(is_demoted, replies))
        if not future.done():
            future.set_result(replies)

    async def read(self, connection):
        try:
            return await connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def hang_up_idle(self):
        """Does so before its next use."""
        self.is_doubtful = True

    async def hang_up(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.disconnect(True)  # and not awaited


class Session(rules.Session):
    """Carries the rules out in the task that asks. Each node has two connections: one for commands, one for mail."""

    event, wires, node_kind = staticmethod(asyncio.Event), Wire, Node

    def __init__(self, pool, place, replicas):
        super().__init__(pool, place, replicas)
        self.tasks, self.awaited = set(), {}

    @staticmethod
    def hang_up(loop, opened):
        async def hang_up():
            for wire in list(opened.values()):
                await wire.hang_up()
        with contextlib.suppress(RuntimeError):  # where the loop is closed, nothing of it is open
            loop.call_soon_threadsafe(lambda: loop.create_task(hang_up()))

    def spawn(self, work):
        task = self.place.create_task(work())
        self.tasks.add(task)
        task.add_done_callback(functools.partial(self.ended, work))
        return True

    def ended(self, work, task):
        """Begins work again soon that the program has cancelled, with all tasks of its loop, if the loop goes on."""
        self.tasks.discard(task)
        if not self.closed and (task.cancelled() or task.exception()):
            self.place.call_later(rules.AGAIN / 1000, self.spawn, work)

    async def limited(self, work):
        return await in_time(work, TIMEOUT * 1000)

    async def request(self, hold, command, wait, most):
        answer, sent = self.place.create_future(), now()
        self.awaited[hold.owner] = answer  # before it is sent: a letter may overtake the reply
        try:
            sending = self.send(command, wait)
            node, reply = await (sending if most == math.inf else in_time(sending, most))
            reply, begin = await node.letter(answer, hold.key, reply[1], wait) if isinstance(reply, list) else (reply, sent)
            return reply, max(sent, begin)
        except TimeoutError as error:
            return Failed(error), 0
        finally:
            del self.awaited[hold.owner]

    def pool_at(self, address):
        return self.pool() if address is None else self.pool().get_node(*address)

    def end_waits(self):
        for answer in list(self.awaited.values()):
            if not answer.done():
                answer.set_result((Failed(), 0))

    async def wait(self, event, ms):
        # Not by asyncio.wait_for: before Python 3.12 that swallows a cancelling that comes together with the event.
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting}, timeout=None if ms == math.inf else ms / 1000)
        finally:
            waiting.cancel()

    async def close(self, ms):
        if self.place.is_closed():  # with the loop its tasks have ended, and its locks end with their leases
            return not self.working and not any(node.holds or node.leaves for node in self.nodes.values())
        said = await super().close(ms)
        for task in list(self.tasks):
            task.cancel()
        return said
