"""Locks that the server knows, for threads. The class has the methods of `redis.lock.Lock`; `mortise_lock.asyncio` has its twin."""
import atexit
import functools
import os
import sys
import threading
import weakref

from redis.exceptions import ResponseError

from . import _rules as rules
from ._lock import BaseLock, BaseSemaphore, BusyError, DeadlockError, LockError, LockNotOwnedError, RefusedError
from ._multi import BaseMultiLock
from ._values import milliseconds, pool_of, settled
from ._wire import BaseWire

__all__ = ["Lock", "MultiLock", "ReadLock", "Semaphore", "BusyError", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError", "close",
           "revoke"]


def in_thread(method):
    """The method without its `async`: nothing in it suspends where threads wait, so that its first step is all of it."""

    @functools.wraps(method)
    def run(*arguments, **options):
        try:
            method(*arguments, **options).send(None)
        except StopIteration as end:
            return end.value

    return run


class Lock(BaseLock):
    """A lock for threads: what `redis.lock.Lock` does, in the server."""

    release, locked, owned = in_thread(BaseLock.release), in_thread(BaseLock.locked), in_thread(BaseLock.owned)
    extend, reacquire, wait_lost = map(in_thread, (BaseLock.extend, BaseLock.reacquire, BaseLock.wait_lost))
    pass_to, take_over = in_thread(BaseLock.pass_to), in_thread(BaseLock.take_over)
    _acquire_here, __enter__, __exit__ = in_thread(BaseLock._acquire), in_thread(BaseLock._enter), in_thread(BaseLock._exit)

    def acquire(self, sleep=None, blocking=None, blocking_timeout=None, token=None) -> bool:
        """Whether it was taken: False where others held it for as long as this was to wait (`blocking_timeout` seconds). What is
        not given is as the lock was made. `token` (str or bytes, up to 255 with what is added to it): a name for who asks.

        Raises DeadlockError, RefusedError, and redis-py's ConnectionError or TimeoutError if the server does not answer: at the limit
        of the wait, or without a limit after 10 s.
        """
        self._check(sleep)
        return self._acquire_here(blocking, blocking_timeout, token) is not None

    def guard(self, *command):
        """Runs a command by this lock's client, if the lock is held when the server runs it: `lock.guard("SET", "stock:42", 17)`. Its
        reply, and its errors. Raises LockNotOwnedError if the lock is not held any more: then the command was not run."""
        try:
            return self.redis.execute_command(*self._guarded(command))
        except ResponseError as error:
            raise self._guard_error(error)

    async def _session(self):
        return session_of(self.redis, Session, os.getpid())  # a child of fork() has neither the threads nor the names of its parent


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


class Semaphore(BaseSemaphore, Lock):
    """Permits for threads: `limit` of them are out at the same time, in all processes together."""

    locked, available = in_thread(BaseSemaphore.locked), in_thread(BaseSemaphore.available)

    def acquire(self, sleep=None, blocking=None, blocking_timeout=None, token=None, *, permits=None) -> bool:
        """Takes `permits` at once, or none: as the `acquire` of `Lock` otherwise. `release` gives all of them back."""
        self._check(sleep)
        return self._acquire_here(blocking, blocking_timeout, token, permits) is not None


class MultiLock(BaseMultiLock, Lock):
    """Several locks for threads: `MultiLock(redis, ["a", "b"])` takes all in one instant, or none, and holds nothing while it waits. It
    is lost as soon as one of them is."""

    locked, owned, pass_to = in_thread(BaseMultiLock.locked), in_thread(BaseMultiLock.owned), in_thread(BaseMultiLock.pass_to)
    take_over = pass_to


def revoke(redis, name, owner=None):
    """Makes the lock's holds, or that of `owner` (a name as LOCK.INFO shows it), end with their leases: holders learn of it at their
    next renewal, and nobody else is granted before. Returns the seconds that this takes at most; None if nobody holds it."""
    return in_thread(Lock(redis, name)._revoke)(owner)


def close(redis, timeout=2.0) -> bool:
    """Leaves all locks that any client of this client's connection pool waits for or renews. Returns whether the server has
    acknowledged all of it within `timeout` seconds. Waiters get a ConnectionError."""
    ms = milliseconds("timeout", timeout)
    session = vars(pool_of(redis)).pop("_mortise_session", None)
    return session is None or session.place != os.getpid() or in_thread(session.close)(ms)


making, sessions = threading.RLock(), weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)


def session_of(redis, kind, place):
    """What all locks of a pool share, in one process or one loop: one, also where threads begin at the same moment."""
    pool = pool_of(redis)
    with making:
        session = vars(pool).get("_mortise_session")
        if session is None or session.place != place:
            if session is not None:  # of this process's parent, or of another loop
                session.gone()
            session = pool._mortise_session = kind(pool, place)
            session.gone = weakref.finalize(pool, kind.hang_up, place, session.wires)
            session.gone.atexit = False
            sessions.add(session)
        return session


class Answers:
    """What a future is to tasks: here nobody reads it before the mutex is free."""

    replies = None

    def done(self):
        return self.replies is not None

    def set_result(self, replies):
        self.replies = replies


class Wire(BaseWire):
    """One connection that all threads share: the thread whose turn it is sends the requests of all."""

    in_time = staticmethod(settled)  # redis-py's own time-outs do
    exchanging = None  # the thread that does

    async def call(self, commands):
        if self.exchanging == threading.get_ident():
            return await self.call_beside(commands)
        answers = Answers()
        self.jobs.append((commands, answers))
        with self.mutex:
            self.exchanging = threading.get_ident()
            try:
                while answers.replies is None:
                    await self.exchange()
            finally:
                self.exchanging = None
        return answers.replies

    async def call_beside(self, commands):
        """For a signal handler that runs in the midst of this thread's exchange: its replies are the next that come here."""
        beside = Wire(self.pool, self.mail)
        try:
            return await beside.call(commands)
        finally:
            await beside.hang_up()


class Session(rules.Session):
    """Carries the rules out in the thread that asks: what they wait for blocks it."""

    event = staticmethod(threading.Event)

    def __init__(self, pool, place):
        super().__init__(pool, place)
        # A child of multiprocessing ends without atexit.
        if "multiprocessing.process" in sys.modules and sys.modules["multiprocessing.process"].parent_process() is not None:
            sys.modules["multiprocessing.util"].Finalize(None, close_child, exitpriority=-100)

    def spawn(self, work):
        try:
            threading.Thread(target=in_thread(work), name="mortise-lock", daemon=True).start()
        except RuntimeError:  # the interpreter ends, and starts no more of them: `close` does the work
            return False
        return True

    @staticmethod
    def hang_up(_, wires):
        for wire in list(wires.values()):
            in_thread(wire.hang_up)()

    def new_wire(self, address, mail):
        def pool():
            own = self.pool()
            return own if address is None else pool_of(own.get_redis_connection(own.get_node(*address)))
        return Wire(pool, mail)

    async def wait(self, event, ms):
        return event.wait(min(ms / 1000, threading.TIMEOUT_MAX))


@atexit.register
def close_all():
    for session in list(sessions):
        if session.place == os.getpid():
            in_thread(session.close)(500)


def close_child():
    for thread in threading.enumerate():  # as multiprocessing is about to do
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    close_all()
