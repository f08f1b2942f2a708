"""Locks that the server knows, for threads. The class has the methods of `redis.lock.Lock`; `mortise_lock.asyncio` has its twin."""
import atexit
import concurrent.futures
import functools
import itertools
import math
import os
import sys
import threading
import weakref
from types import SimpleNamespace

from redis.exceptions import AuthenticationError, ConnectionError, LockError, LockNotOwnedError, ResponseError, TimeoutError

from . import _rules as rules
from ._rules import Failed, Hold, code, fields, lease_of, log, milliseconds, now, settled
from ._wire import BaseWire

__all__ = ["Lock", "ReadLock", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError", "close"]
PATIENCE = 10_000  # ms for which an acquisition without a limit bears a server that answers nobody


class DeadlockError(LockError):
    """The server found that this wait would never end. The text names the keys."""


class RefusedError(LockError):
    """The server refused: a key of another type, too many waiters, no permission. The text is its own."""


class BaseLock:
    """What locks for threads and for tasks have in common. `_session` says by whom its coroutines are carried out. Types of what is
    public are in the .pyi files."""

    _command = "LOCK.ACQUIRE"

    def __init__(self, redis, name, timeout=None, sleep=0.1, blocking=True, blocking_timeout=None, thread_local=True,
                 raise_on_release_error=True, *, lease=30.0, max_hold=None):
        """A lock on `name` (str or bytes) by the client `redis`. Takes nothing yet. As `redis.lock.Lock`; all times are seconds.

        timeout: after so long the lock is free again, unless extended; 0.003 at least. None: it is renewed until it is
            released, for as long as this process lives; should that die, the lock is free again after `lease`.
        sleep: waiting is in the server, without sleeping. Only a lock that another library took under this name, with
            SET NX, is looked at every so often; 0.001 at least. None: that is a `RefusedError`.
        blocking, blocking_timeout: what `acquire` does where it is not told: whether it waits, and for how long. None: no limit.
        thread_local: whether each thread sees only what it took itself.
        raise_on_release_error: whether leaving a `with` block raises where the lock was lost; if not, it is logged.
        lease: what a lock without `timeout` is renewed for, at a third of it; 0.003 at least.
        max_hold: after so long a lock without `timeout` is not renewed any more; 0.003 at least. None: no limit.

        Raises TypeError for what is no number, and ValueError for one outside of its bounds.
        """
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout, sleep
        self.blocking, self.blocking_timeout, self.thread_local = blocking, blocking_timeout, bool(thread_local)
        self.raise_on_release_error, self.lease, self.max_hold = raise_on_release_error, lease, max_hold
        self._request(), self._limit(blocking_timeout), self._poll(sleep)
        self.local = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = self.local.hold = None
        self._key = self._bytes(name)

    def _bytes(self, value):
        return pool_of(self.redis).get_encoder().encode(value) if value is not None else None

    _token = property(lambda self: None if self._inherited() else getattr(self.local, "token", None))
    _hold = property(lambda self: None if self._inherited() else getattr(self.local, "hold", None))

    def _request(self):
        """How long the lock is asked for, and for how long it is renewed, in ms. Refuses what is no time for that."""
        lease = lease_of("lease", self.lease)
        if self.timeout is not None:
            lease = lease_of("timeout", self.timeout)
        return lease, math.inf if self.max_hold is None else milliseconds("max_hold", self.max_hold, rules.LEAST_LEASE)

    def _limit(self, blocking_timeout):
        """Milliseconds for which to wait. A time that has passed asks once."""
        return math.inf if blocking_timeout is None else max(0, milliseconds("blocking_timeout", blocking_timeout, -math.inf))

    def _poll(self, sleep):
        return None if sleep is None else milliseconds("sleep", sleep, 0.001)

    def _inherited(self):
        """Whether this process was forked from the one that took the lock, and still holds it: here nobody took it."""
        hold = getattr(self.local, "hold", None)
        return hold is not None and hold.pid != os.getpid()

    @property
    def fencing_token(self):
        """An int, larger than every one granted before: for the store that the lock protects, which refuses smaller ones. None
        where nothing was taken."""
        return self._hold and self._hold.token

    @property
    def lost(self):
        """Whether the lock was taken, and is over without having been released. Asks nobody: by this process's own clock."""
        return self._hold is not None and not self._hold.held()

    def _error(self, kind, text):
        error = kind(text)  # redis-py takes the name as well, but not in each of its versions
        error.lock_name = self.name
        return error

    def _problem(self, reply):
        """What the caller is told of an error that came as a reply."""
        if isinstance(reply, Failed):
            return reply.cause
        return self._error(DeadlockError if code(reply) == "DEADLOCK" else RefusedError, str(reply))

    async def _acquire(self, poll, blocking=None, blocking_timeout=None, token=None):
        limit, poll = self._limit(self.blocking_timeout if blocking_timeout is None else blocking_timeout), self._poll(poll)
        wait = limit if (self.blocking if blocking is None else blocking) else 0
        session, task = await self._session(), self._bytes(token)
        end, failing, hold = now() + wait, None, None
        for tries in itertools.count(1):
            try:
                hold = await self._attempt(session, end - now() if wait else 0, task)
                break
            except Failed as failed:
                cause, failing = failed.cause, failed.cause and (failing or now())
                if wait == 0:
                    last_try = tries > 1 or isinstance(cause, TimeoutError)  # once more, but not after a silence
                else:
                    last_try = now() + 20 >= (max(failing, session.node(self._key).heard) + PATIENCE if failing and limit == math.inf else end)
                if session.closed or last_try or isinstance(cause, AuthenticationError):
                    if cause is not None:
                        raise cause
                    break
                if not failing and tries < 4:
                    continue
                if failing:
                    await session.refresh(session.node(self._key))
                pause = min(20 * 2 ** min(tries, 5), max(20, end - now()))
            except RefusedError as error:  # something that is no lock of this kind has the key
                if code(error) != "WRONGTYPE" or poll is None:
                    raise
                pause = poll
                if wait == 0 or now() + pause > end:
                    break
            await session.pause(pause)
        if hold is not None:
            self.local.token, self.local.hold = task or hold.owner, hold
        return hold is not None

    async def _attempt(self, session, left, task):
        """One request under one name. Whatever is not known of it in the end is left."""
        lease, max_hold = self._request()
        hold = Hold(self._key, session.name(task), lease, session.event, max_hold)
        session.asked[hold.owner] = hold  # before it is sent: a letter may overtake the reply
        sent, known = now(), session.closed
        try:
            if session.closed:
                raise Failed(ConnectionError("closed"))
            node, reply = await session.ask(self._command, hold.key, hold.owner, hold.lease, "HOLDS", 1, wait=left)
            if isinstance(reply, list):
                reply = await node.answer(hold, reply[1], left)
            if not isinstance(reply, Exception):
                node.heard = now()
            known = reply is None or isinstance(reply, ResponseError) or getattr(reply, "known", False)
            if isinstance(reply, Exception):
                raise reply if isinstance(reply, Failed) else self._problem(reply)
            if reply is None:
                return None
            hold.granted(reply, max(sent, hold.begin))
            if hold.until - now() < hold.lease / 2 and (said := await session.extend(hold, hold.lease)) is not True:
                raise said or Failed()
            if self.timeout is None:
                node.hold(hold)
            if session.asked.pop(hold.owner, None) is None:  # `close` was faster
                node.lose(hold)
                raise Failed(ConnectionError("closed"))
            known = True
            return hold
        finally:
            session.asked.pop(hold.owner, None)
            if not known:
                session.node(hold.key).leave(hold)

    async def _holds(self, session):
        """Who holds, by the server: (owner, token, ms left). None where something else than such a lock has the key."""
        reply = (await session.ask("LOCK.INFO", self._key, "COUNT", 2**31 - 1))[1]
        if isinstance(reply, Exception):
            if code(reply) == "WRONGTYPE":
                return None
            raise self._problem(reply)
        return [(hold["owner"], hold["token"], hold["lease"]) for hold in map(fields, fields(reply)["holds"] if reply else [])]

    async def _mine(self, session):
        """The hold of this lock's token, also where another process took it."""
        token = self._bytes(self._token)
        for owner, fence, left in await self._holds(session) or []:
            if self._hold is None and token in (owner, owner.rpartition(b"##")[0]):
                self.local.hold = Hold(self._key, owner, left, session.event)
                self.local.hold.granted(fence, now())
            if self._hold is not None and self._hold.owner == owner:
                return self._hold

    async def locked(self) -> bool:
        """Whether anybody holds it now, also one who took it with another library, by SET NX. Raises redis-py's own errors
        where the server cannot be asked, as all that follow do."""
        return await self._holds(await self._session()) != []

    async def owned(self) -> bool:
        """Whether the server says that it is held by what was taken here, or by `local.token`."""
        return self._token is not None and await self._mine(await self._session()) is not None

    async def release(self) -> None:
        """Gives it back. Raises LockError if it was not acquired, LockNotOwnedError if it was lost before, RefusedError."""
        await self._with_hold("release", lambda session, hold: session.release(hold))

    async def extend(self, additional_time, replace_ttl=False) -> bool:
        """`additional_time` seconds more, 0.003 at least; with `replace_ttl` that many from now on, if that is more than what is
        left. Always True. Raises as `release`, and LockError for a lock without a timeout."""
        more = lease_of("additional_time", additional_time)
        if self._token is not None and self.timeout is None:
            raise self._error(LockError, "Cannot extend a lock without a timeout: it is renewed by itself")
        return await self._with_hold("extend", lambda session, hold: session.extend(
            hold, int((0 if replace_ttl else hold.deadline - now()) + more)))

    async def _with_hold(self, what, work):
        if self._token is None:
            raise self._error(LockError, f"Cannot {what} a lock that was not acquired, or is released already")
        session = await self._session()
        hold = self._hold or await self._mine(session)
        if what == "release":
            self.local.token = self.local.hold = None
        done = hold is not None and await work(session, hold)
        if isinstance(done, Exception):
            raise self._problem(done)
        if not done:
            raise self._error(LockNotOwnedError, f"The lock was lost before its {what}")
        return True

    async def reacquire(self) -> bool:
        """`timeout` seconds from now on. Always True. Raises as `extend`."""
        return await BaseLock.extend(self, self.lease if self.timeout is None else self.timeout, True)

    async def wait_lost(self, timeout=None) -> bool:
        """Returns when the lock is lost (True), released, or `timeout` seconds are over (False)."""
        hold, end = self._hold, math.inf if timeout is None else now() + milliseconds("timeout", timeout, -math.inf)
        session = await self._session()
        while hold is not None and hold.held() and now() < end:
            await session.wait(hold.over, max(0, min(hold.until - now() + 1, end - now(), 1_000)))
        return self.lost and self._hold is hold

    async def _enter(self):
        if await self._acquire(self.sleep):
            return self
        raise self._error(LockError, "Unable to acquire lock within the time specified")

    async def _exit(self, *_):
        if self._inherited():
            return
        try:
            await BaseLock.release(self)
        except LockError as error:
            if self.raise_on_release_error:
                raise
            log.warning("lock %r: %s", self.name, error)


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
    __enter__, __exit__ = in_thread(BaseLock._enter), in_thread(BaseLock._exit)

    def acquire(self, sleep=None, blocking=None, blocking_timeout=None, token=None) -> bool:
        """Whether it was taken: False where others held it for as long as this was to wait (`blocking_timeout` seconds). What is
        not given is as the lock was made. `token` (str or bytes, up to 255 with what is added to it): a name for who asks.

        Raises DeadlockError, RefusedError, and redis-py's ConnectionError or TimeoutError where the server cannot be asked: at the
        limit of the wait, or without one after 10 s in which it answered nobody.
        """
        return in_thread(self._acquire)(self.sleep if sleep is None else sleep, blocking, blocking_timeout, token)

    async def _session(self):
        return session_of(self.redis, Session, os.getpid())  # a child of fork() has neither the threads nor the names of its parent


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


def close(redis, timeout=2.0) -> bool:
    """Leaves all that is waited for or renewed through this client's connection pool, by whichever of its clients. Whether the
    server has acknowledged all of it within `timeout` seconds. Those who wait get a ConnectionError."""
    ms = milliseconds("timeout", timeout)
    session = vars(pool_of(redis)).pop("_mortise_session", None)
    return session is None or session.place != os.getpid() or in_thread(session.close)(ms)


making, sessions = threading.Lock(), weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=making.release)


def pool_of(redis):
    """What locks share connections by: the pool, which may have many clients. A cluster's client has a pool for each node."""
    return getattr(redis, "connection_pool", redis)


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


class Wire(BaseWire):
    """One connection that all threads share: whose turn it is carries what all have to say."""

    in_time = staticmethod(settled)  # redis-py's own time-outs do

    async def call(self, commands):
        future = concurrent.futures.Future()
        self.jobs.append((commands, future))
        with self.mutex:
            while not future.done():
                await self.exchange()
        return future.result()


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
        except RuntimeError:  # the interpreter ends, and starts no more of them
            in_thread(work)()

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
