"""Locks that the server knows, for asyncio. The class has the methods of `redis.asyncio.lock.Lock`."""
import asyncio
import contextlib
import contextvars
import math

from redis.exceptions import ResponseError, TimeoutError

from . import _rules as rules
from . import session_of
from ._lock import BaseLock, BaseSemaphore, BusyError, DeadlockError, LockError, LockNotOwnedError, RefusedError
from ._multi import BaseMultiLock
from ._taken import Taken
from ._values import LATE, milliseconds, pool_of
from ._wire import BaseWire

__all__ = ["Lock", "MultiLock", "ReadLock", "Semaphore", "BusyError", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError", "close",
           "revoke"]


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

    def is_shared(self, one):
        # A task uses what the tasks that began it had taken by then, as in `asyncio.shield(lock.release())`. What a task has taken that
        # is over belongs to nobody else, as after `asyncio.wait_for(lock.acquire(), 5)`.
        return self.is_common or one.place is None or one.place.done() or one in taken_here.get()

    def add(self, *arguments, **options):
        added = super().add(*arguments, **options)
        before = taken_here.get()
        taken_here.set((*(other for other in before if other.here), added) if before else (added,))
        return added


class Watch:
    """Cancels the task that is in a block when the lock of the block is lost."""

    def __init__(self, lock, taken):
        self.lock, self.taken, self.task, self.cancelled = lock, taken, asyncio.current_task(), False
        self.before = self.task.cancelling() if hasattr(self.task, "cancelling") else 0  # from Python 3.11 on
        self.watching = asyncio.create_task(self.watch())

    async def watch(self):
        if await self.lock._lost(self.taken):
            self.cancelled = True
            self.task.cancel()

    async def stop(self, error):
        """Ends the watch. Whether `error`, by which the block has ended, is its cancelling and nobody else's."""
        self.watching.cancel()
        if not self.cancelled:
            return False
        others = hasattr(self.task, "uncancel") and self.task.uncancel() > self.before
        if isinstance(error, asyncio.CancelledError):
            return not others
        with contextlib.suppress(asyncio.CancelledError):  # the block ended before the cancelling came
            await asyncio.sleep(0)
        return False


class Lock(BaseLock):
    """A lock for tasks: what `redis.asyncio.lock.Lock` does, in the server."""

    _takes = TakenByTasks

    def __init__(self, *arguments, cancel_on_loss=False, **options):
        """As `mortise_lock.Lock`.

        cancel_on_loss: the body of an `async with` block is cancelled when the lock is lost; then the block raises LockNotOwnedError.
        """
        super().__init__(*arguments, **options)
        self.cancel_on_loss, self._watches = cancel_on_loss, {}

    async def __aenter__(self):
        await self._enter()
        if self.cancel_on_loss:
            self._watches.setdefault(asyncio.current_task(), []).append(Watch(self, self._taken.current()))
        return self

    async def __aexit__(self, kind, error, trace):
        here = asyncio.current_task()
        cancelled = here in self._watches and await self._watches[here].pop().stop(error)
        if not self._watches.get(here):
            self._watches.pop(here, None)
        await self._exit(kind, None if cancelled else error, trace)
        if cancelled:
            raise self._error(LockNotOwnedError, "The lock was lost, and its block cancelled")

    async def acquire(self, blocking=None, blocking_timeout=None, token=None) -> bool:
        """As the `acquire` of `mortise_lock.Lock`. Where it is cancelled nothing stays behind."""
        return await self._acquire(blocking, blocking_timeout, token) is not None

    async def guard(self, *command):
        """As the `guard` of `mortise_lock.Lock`."""
        try:
            return await self.redis.execute_command(*self._guarded(command))
        except ResponseError as error:
            raise self._guard_error(error)

    async def _session(self):
        if hasattr(self.redis, "nodes_manager"):
            await self.redis.initialize()
        return session_of(self.redis, Session, asyncio.get_running_loop())


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


class Semaphore(BaseSemaphore, Lock):
    """Permits for tasks: `limit` of them are out at the same time, in all processes together."""

    async def acquire(self, blocking=None, blocking_timeout=None, token=None, *, permits=None) -> bool:
        """As the `acquire` of `mortise_lock.Semaphore`. Where it is cancelled nothing stays behind."""
        return await self._acquire(blocking, blocking_timeout, token, permits) is not None


class MultiLock(BaseMultiLock, Lock):
    """Several locks for tasks: as `mortise_lock.MultiLock`."""


async def revoke(redis, name, owner=None):
    """As `mortise_lock.revoke`."""
    return await Lock(redis, name)._revoke(owner)


async def close(redis, timeout=2.0) -> bool:
    """Leaves all that is waited for or renewed through this client's connection pool, by whichever of its clients. Whether the
    server has acknowledged all of it within `timeout` seconds. Those who wait get a ConnectionError."""
    ms = milliseconds("timeout", timeout)
    session = vars(pool_of(redis)).pop("_mortise_session", None)
    if session is not None and session.place.is_closed():  # with the loop its tasks have ended, and its locks end with their leases
        session.gone()
        return not session.asked and not session.owes() and not any(node.holds for node in session.nodes.values())
    return session is None or await session.close(ms)


class Wire(BaseWire):
    """One connection that all tasks share. A task of its own carries, which no cancelling ends."""

    carrier = None

    def connect(self):
        connection = super().connect()
        connection.socket_timeout = connection.socket_connect_timeout = None  # these have no mercy on a loop that was busy
        return connection

    async def in_time(self, work, seconds):
        working = asyncio.ensure_future(work)
        try:
            for part in (seconds, LATE / 1000):
                if (await asyncio.wait({working}, timeout=part))[0]:
                    return working.result()
            raise TimeoutError("no reply in time")
        finally:
            working.cancel()

    async def call(self, commands):
        future = asyncio.get_running_loop().create_future()
        self.jobs.append((commands, future))
        if self.carrier is None:
            self.carrier = asyncio.create_task(self.carry())
        return await future

    async def carry(self):
        try:
            while self.jobs:
                await self.exchange()
        finally:
            self.carrier = None


class Session(rules.Session):
    """Carries the rules out in the task that asks."""

    event = staticmethod(asyncio.Event)

    def __init__(self, pool, place):
        super().__init__(pool, place)
        self.tasks = set()

    @staticmethod
    def hang_up(loop, wires):
        async def hang_up():
            for wire in list(wires.values()):
                await wire.hang_up()
        with contextlib.suppress(RuntimeError):  # where the loop is closed, nothing of it is open
            loop.call_soon_threadsafe(lambda: loop.create_task(hang_up()))

    def spawn(self, work):
        task = self.place.create_task(work())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return True

    def new_wire(self, address, mail):
        return Wire(lambda: self.pool() if address is None else self.pool().get_node(*address), mail)

    async def wait(self, event, ms):
        # Not by asyncio.wait_for: before Python 3.12 that swallows a cancelling that comes together with the event.
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting}, timeout=None if ms == math.inf else ms / 1000)
        finally:
            waiting.cancel()
        return event.is_set()

    async def close(self, ms):
        said = await super().close(ms)
        for task in list(self.tasks):
            task.cancel()
        return said
