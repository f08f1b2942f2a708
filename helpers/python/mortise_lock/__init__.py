"""Locks that the server knows, for threads. The class has the methods of `redis.lock.Lock`; `mortise_lock.asyncio` has its twin."""
from __future__ import annotations

import atexit
import contextlib
import math
import os
import socket
import sys
import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, Union

from redis import ConnectionPool, Redis, RedisCluster
from redis.exceptions import RedisError, ResponseError, TimeoutError

from . import _rules as rules
from ._lock import BaseLock, BaseMultiLock, BaseSemaphore, BusyError, DeadlockError, LockError, LockNotOwnedError, Name, RefusedError
from ._values import BROKEN, LATE, Failed, UnconfirmedError, is_demoted, milliseconds, now, pool_of
from ._wire import cause_of, check_attached, confirmed, connection_like, packed, wait_for

__all__ = ["Lock", "MultiLock", "ReadLock", "Semaphore", "BusyError", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError",
           "UnconfirmedError", "close", "revoke"]

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
Client = Union[Redis, RedisCluster]
MOST_IDLE = 32  # connections to a server that stay open while nobody uses them
BEAT = 5_000  # ms after which a server has to show that it still answers one who waits


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of what the rules do. Nothing in it suspends where threads wait, so that its first step is all of it."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value


class Lock(BaseLock[Client]):
    """A lock for threads: what `redis.lock.Lock` does, in the server."""

    def acquire(self, sleep: float | None = None, blocking: bool | None = None, blocking_timeout: float | None = None,
                token: Name | None = None, *, permits: int | None = None) -> bool:
        """Whether it was taken: False where others held it for as long as this was to wait (`blocking_timeout` seconds). What is
        not given is as the lock was made. `token` (str or bytes, up to 255 with what is added to it): a name for who asks.
        `permits`: how many a `Semaphore` takes at once, or none; `release` gives all of them back.

        Raises DeadlockError, RefusedError, and redis-py's ConnectionError or TimeoutError if the server does not answer: at the limit
        of the wait, or without a limit after 10 s.
        """
        if sleep is not None:
            milliseconds("sleep", sleep)  # else `acquire(False)`, as of a threading.Lock, would wait for ever
        return run(self._acquire(blocking, blocking_timeout, token, permits)) is not None

    def release(self) -> None:
        return run(super().release())

    def locked(self) -> bool:
        return run(super().locked())

    def owned(self) -> bool:
        return run(super().owned())

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        return run(super().extend(additional_time, replace_ttl))

    def reacquire(self) -> bool:
        return run(super().reacquire())

    def wait_lost(self, timeout: float | None = None) -> bool:
        return run(super().wait_lost(timeout))

    def pass_to(self, owner: Name, lease: float) -> int:
        return run(super().pass_to(owner, lease))

    def take_over(self, owner: Name, token: int) -> bool:
        return run(super().take_over(owner, token))

    def __enter__(self) -> Self:
        run(self._enter())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run(self._exit(self._taken.leave(), error))

    def guard(self, *command: Any) -> Any:
        return run(super().guard(*command))

    async def _session(self):
        return session_of(self.redis, Session, os.getpid(), self.replicas)  # a child of fork() has neither the threads nor the names of its parent


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


class Semaphore(Lock, BaseSemaphore[Client]):
    """Permits for threads: `limit` of them are out at the same time, in all processes together."""

    def available(self) -> int:
        return run(super().available())


class MultiLock(Lock, BaseMultiLock[Client]):
    """Several locks for threads: `MultiLock(redis, ["a", "b"])` takes all in one instant, or none, and holds nothing while it waits. It
    is lost as soon as one of them is."""


def revoke(redis: Client, name: Name, owner: Name | None = None) -> float | None:
    """Makes the lock's holds, or that of `owner` (a name as LOCK.INFO shows it), end with their leases: holders learn of it at their
    next renewal, and nobody else is granted before. Returns the seconds that this takes at most; None if nobody holds it."""
    return run(Lock(redis, name)._revoke(owner))


def close(redis: Client | ConnectionPool, timeout: float = 2.0) -> bool:
    """Leaves all locks that any client of this client's connection pool waits for or renews. Returns whether the server has
    acknowledged all of it within `timeout` seconds. Waiters get a ConnectionError."""
    ms = milliseconds("timeout", timeout)
    return all([run(session.close(ms)) for session in sessions_of(redis) if session.place == os.getpid()])


making, sessions = threading.RLock(), weakref.WeakSet()


def close_copies():
    """Closes a forked child's copies of the connections on which its parent waits, so that the server sees when the parent ends."""
    making.release()
    for connections in [one for session in list(sessions) if isinstance(session, Session) for one in session.opened.values()]:
        for connection in connections.waiting:
            with contextlib.suppress(AttributeError, OSError):  # it is closed already
                connection._sock.close()  # redis-py may need a mutex for it that another thread had at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=making.acquire, after_in_parent=making.release, after_in_child=close_copies)


def session_of(redis, kind, place, replicas):
    """What all locks of a pool share that as many replicas confirm, in one process or one loop: one, also where threads begin at the same
    moment."""
    pool = pool_of(redis)
    with making:
        by_replicas = vars(pool).setdefault("_mortise_sessions", {})
        session = by_replicas.get(replicas)
        if session is None or session.place != place:
            if session is not None:  # of this process's parent, or of another loop
                session.gone()
            session = by_replicas[replicas] = kind(pool, place, replicas)
            session.gone = weakref.finalize(pool, kind.hang_up, place, session.opened)
            session.gone.atexit = False
            sessions.add(session)
        return session


def sessions_of(redis):
    """Those of a client's pool, which forgets them."""
    return list(vars(pool_of(redis)).pop("_mortise_sessions", {}).values())


def is_open(connection):
    """Whether an idle connection can be used: servers close what is idle for longer than their `timeout`."""
    try:
        return not connection.can_read(0)
    except (RedisError, OSError):
        return False


class Connections:
    """Connections to one server: each thread uses one while it sends, and while it waits for a lock. A few stay open for the next. With
    `replicas` so many confirm what is sent."""

    def __init__(self, pool, replicas):
        """pool: what gives the pool that they are made like."""
        self.pool, self.replicas, self.idle, self.waiting = pool, replicas, [], set()
        self.prober, self.probing, self.probed = None, threading.Lock(), now()

    async def call(self, commands, wait=0, most=math.inf):
        """Their replies: the server's, errors too, or a `Failed` for each. `wait`: for so many ms the last one may be kept waiting.
        `most`: for so many ms they are awaited, if that is shorter than usual."""
        connection, known = None, True
        try:
            if wait > BEAT and self.prober is None:
                self.prober = self.open()
            connection = self.take(most)
            if wait:
                self.waiting.add(connection)
            known = False
            replies = self.exchange(connection, commands, max(wait + LATE, min(most, connection.socket_timeout * 1000)) if wait else 0)
        except BaseException as error:
            self.hang_up_idle()  # which may be as stale
            if connection is not None:
                connection.disconnect()
            if not isinstance(error, BROKEN):
                raise
            return [Failed(cause_of(error), known)] * len(commands)
        finally:
            self.waiting.discard(connection)
        if any(map(is_demoted, replies)):  # behind the same address may be the new primary by now
            self.hang_up_idle()
            connection.disconnect()
            self.end_probes()
        elif len(self.idle) < MOST_IDLE and most == math.inf:  # else it may have been made with less patience
            self.idle.append(connection)
        else:
            connection.disconnect()
        return replies

    def take(self, most=math.inf):
        """A connection that nobody else has."""
        while True:
            try:
                connection = self.idle.pop()
            except IndexError:
                return self.open(most)
            if is_open(connection):
                return connection
            connection.disconnect()

    def open(self, most=math.inf):
        connection = connection_like(self.pool(), (most + LATE) / 1000)
        connection.connect()
        if self.replicas:
            connection.send_command(*wait_for(self.replicas, connection.socket_timeout), check_health=False)
            check_attached(self.replicas, connection.read_response())
        return connection

    def exchange(self, connection, commands, longest):
        last = [wait_for(self.replicas, connection.socket_timeout)] if self.replicas else []
        connection.send_packed_command([packed([*commands, *last])], check_health=False)
        replies = [self.read(connection, longest) for _ in commands]
        return confirmed(self.replicas, replies, self.read(connection, 0)) if last else replies

    def read(self, connection, longest):
        """One reply, or the error in its place. If it may take longer than usual, the server shows now and then that it still answers."""
        end = now() + longest
        while longest and not connection.can_read(min(BEAT, max(0, end - now())) / 1000):
            if now() >= end:
                raise TimeoutError("no reply in time")
            self.probe()
        try:
            return connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def probe(self):
        """Ends all waits, this one with an error, if the server to which those who wait are connected answers no more. It is asked over a
        connection that was made before: another one may lead to another server by now. One thread does that for all."""
        if self.prober is None or now() < self.probed + BEAT or not self.probing.acquire(blocking=False):
            return
        try:
            if not is_open(self.prober):
                self.prober.disconnect()
                self.prober = self.open()
            self.exchange(self.prober, [("PING",)], 0)  # an error is an answer, too
        except BROKEN:
            self.end_waits()
            raise
        finally:
            self.probed = now()
            self.probing.release()

    def hang_up_idle(self):
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.disconnect()

    def end_probes(self):
        """The next wait begins them anew."""
        prober, self.prober = self.prober, None
        if prober is not None:
            prober.disconnect()

    def end_waits(self):
        """Those who wait get a `Failed`. Only their own threads close the connections: if another one did, redis-py would connect again to
        send."""
        for connection in list(self.waiting):
            if connection.pid == os.getpid():
                with contextlib.suppress(AttributeError, OSError):  # it is closed already
                    connection._sock.shutdown(socket.SHUT_RDWR)
        self.end_probes()

    async def hang_up(self):
        self.end_waits()
        self.hang_up_idle()


class Event:
    """As threading.Event, but `set` takes one step: a signal handler that interrupts a `set` of its own thread does not block."""

    def __init__(self):
        self.unset = threading.Lock()
        self.unset.acquire()

    def set(self):
        with contextlib.suppress(RuntimeError):  # it is set already
            self.unset.release()

    def wait(self, seconds):
        if self.unset.acquire(timeout=seconds):
            self.set()


class Session(rules.Session):
    """Carries the rules out in the thread that asks: what they wait for blocks it."""

    event, wires = Event, Connections

    def __init__(self, pool, place, replicas):
        super().__init__(pool, place, replicas)
        # A child of multiprocessing ends without atexit.
        if "multiprocessing.process" in sys.modules and sys.modules["multiprocessing.process"].parent_process() is not None:
            sys.modules["multiprocessing.util"].Finalize(None, close_child, exitpriority=-100)

    def spawn(self, work):
        try:
            threading.Thread(target=lambda: run(work()), name="mortise-lock", daemon=True).start()
        except RuntimeError:
            if threading.main_thread().is_alive():
                return False
            return None  # the interpreter ends, and starts no more of them: `close` does the work
        return True

    @staticmethod
    def hang_up(_, opened):
        for connections in list(opened.values()):
            run(connections.hang_up())

    def pool_at(self, address):
        own = self.pool()
        return own if address is None else pool_of(own.get_redis_connection(own.get_node(*address)))

    def end_waits(self):
        for connections in list(self.opened.values()):
            connections.end_waits()

    async def wait(self, event, ms):
        return event.wait(min(ms / 1000, threading.TIMEOUT_MAX))


@atexit.register
def close_all():
    for session in list(sessions):
        if session.place == os.getpid():
            run(session.close(500))


def close_child():
    for thread in threading.enumerate():  # as multiprocessing is about to do
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    close_all()
