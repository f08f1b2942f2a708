"""Locks that the server knows, for threads. The class has the methods of `redis.lock.Lock`; `mortise_lock.asyncio` has its twin."""
import atexit
import math
import os
import threading
import weakref
from types import SimpleNamespace

from redis.backoff import NoBackoff
from redis.exceptions import LockError, LockNotOwnedError, ResponseError
from redis.retry import Retry

from . import _rules as rules
from ._node import MAIL_WAIT, Call, Hold, Unanswered, Wait, code, fields, log, now
from ._rules import DeadlockError, RefusedError

__all__ = ["Lock", "ReadLock", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError", "close"]


def own_connection(connection_class, settings, mail):
    """A connection like those of the client's pool, but not out of it, and one that never sends anything twice."""
    limit = min(settings.get("socket_timeout") or math.inf, 2)
    settings = {name: value for name, value in settings.items() if not name.startswith("maint_notifications")}
    return connection_class(**{
        **settings, "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "retry_on_error": [], "health_check_interval": 0,
        "socket_timeout": limit + MAIL_WAIT / 1000 if mail else limit,
        "socket_connect_timeout": min(settings.get("socket_connect_timeout") or math.inf, 2),
    })


class BaseLock:
    """What locks for threads and for asyncio have in common. `_run` carries the steps out."""

    _command = "LOCK.ACQUIRE"

    def __init__(self, redis, name, timeout=None, sleep=0.1, blocking=True, blocking_timeout=None, thread_local=True,
                 raise_on_release_error=True, *, lease=30.0, max_hold=None):
        """As `redis.lock.Lock`. Besides:

        timeout: seconds until the lock is free again, unless extended. None: it is renewed until it is released, for as
            long as this process lives; should that die, the lock is free again after `lease` seconds.
        sleep: waiting is in the server, without sleeping. Only a lock that another library took under this name, with
            SET NX, is looked at every so many seconds. None: that is an error.
        max_hold: seconds after which a lock without `timeout` is not renewed any more.
        """
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout, sleep
        self.blocking, self.blocking_timeout, self.thread_local = blocking, blocking_timeout, bool(thread_local)
        self.raise_on_release_error, self.lease, self.max_hold = raise_on_release_error, lease, max_hold
        self.local = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = self.local.hold = None
        self._key = self._bytes(name)

    def _bytes(self, value):
        pool = getattr(self.redis, "connection_pool", self.redis)
        return pool.get_encoder().encode(value) if value is not None else None

    @property
    def _token(self):
        return getattr(self.local, "token", None)

    @property
    def _hold(self):
        return getattr(self.local, "hold", None)

    @property
    def fencing_token(self):
        """Larger than every one granted before: for the store that the lock protects, which refuses smaller ones."""
        return self._hold and self._hold.token

    @property
    def lost(self):
        """Whether the lock was taken, and is over without having been released."""
        return self._hold is not None and not self._hold.held()

    def _acquire(self, session, blocking, blocking_timeout, token, sleep):
        blocking = self.blocking if blocking is None else blocking
        limit = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        wait = 0 if not blocking else None if limit is None else max(0, limit * 1000)
        poll = self.sleep if sleep is None else sleep
        token = self._bytes(token)
        hold = yield from rules.acquire(
            session, self._command, self._key, max(1, int((self.timeout or self.lease) * 1000)), wait,
            None if poll is None else poll * 1000, token, renewed=not self.timeout,
            max_hold=self.max_hold and self.max_hold * 1000)
        if hold is not None:
            self.local.token, self.local.hold = token or hold.owner, hold
        return hold is not None

    def _holds(self, session):
        """Who holds, by the server: (owner, token, ms left). None where something else than such a lock has the key."""
        reply = yield from session.ask("LOCK.INFO", self._key, "COUNT", 2**31 - 1)
        if isinstance(reply, ResponseError) and code(reply) == "WRONGTYPE":
            return None
        if isinstance(reply, Exception):
            raise reply
        holds = map(fields, fields(reply)["holds"] if reply else [])
        return [(hold["owner"], hold["token"], hold["lease"]) for hold in holds]

    def _locked(self, session):
        return (yield from self._holds(session)) != []

    def _mine(self, session):
        """The hold of this lock's token, also where another process took it."""
        if self._token is None:
            return None
        for owner, fence, left in (yield from self._holds(session)) or []:
            if self._hold is not None and not self._hold.ended and owner == self._hold.owner:
                return self._hold
            if self._hold is None and self._bytes(self._token) in (owner, owner.rpartition(b"##")[0]):
                self.local.hold = Hold(self._key, owner, left, fence, now(), session.event())
                return self._hold
        return None

    def _owned(self, session):
        return (yield from self._mine(session)) is not None

    def _release(self, session):
        if self._token is None:
            raise LockError("Cannot release a lock that was not acquired, or is released already", self.name)
        hold = self._hold or (yield from self._mine(session))
        self.local.token = self.local.hold = None
        if hold is None or not (yield from rules.release(session, hold)):
            raise LockNotOwnedError("The lock was lost before its release", self.name)

    def _extend(self, session, additional_time, replace_ttl):
        if self._token is None:
            raise LockError("Cannot extend a lock that was not acquired", self.name)
        if self.timeout is None:
            raise LockError("Cannot extend a lock without a timeout: it is renewed by itself", self.name)
        hold = self._hold or (yield from self._mine(session))
        left = 0 if replace_ttl or hold is None else hold.deadline - now()
        if hold is None or not (yield from rules.extend(session, hold, int(left + additional_time * 1000))):
            raise LockNotOwnedError("The lock was lost before it was extended", self.name)
        return True

    def _wait_lost(self, session, timeout):
        hold, end = self._hold, math.inf if timeout is None else now() + timeout * 1000
        while hold is not None and hold.held() and now() < end:
            yield Wait(hold.over, max(0, min(hold.until - now() + 1, end - now(), 1_000)))
        return self.lost and self._hold is hold

    def _forgive(self, error):
        if self.raise_on_release_error:
            raise error
        log.warning("lock %r: %s", self.name, error)


class Lock(BaseLock):
    """A lock for threads: what `redis.lock.Lock` does, in the server."""

    def acquire(self, sleep=None, blocking=None, blocking_timeout=None, token=None) -> bool:
        return self._run(self._acquire, blocking, blocking_timeout, token, sleep)

    def release(self) -> None:
        return self._run(self._release)

    def extend(self, additional_time, replace_ttl=False) -> bool:
        """`additional_time` seconds more; with `replace_ttl` that many from now on, if that is more than what is left."""
        return self._run(self._extend, additional_time, replace_ttl)

    def reacquire(self) -> bool:
        """`timeout` seconds from now on."""
        return self._run(self._extend, self.timeout or 0, True)

    def locked(self) -> bool:
        return self._run(self._locked)

    def owned(self) -> bool:
        return self._run(self._owned)

    def wait_lost(self, timeout=None) -> bool:
        """Returns when the lock is lost (True), released, or `timeout` seconds are over (False)."""
        return self._run(self._wait_lost, timeout)

    def _run(self, method, *arguments):
        session = session_of(self.redis)
        return session.run(method(session, *arguments))

    def __enter__(self):
        if self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified", self.name)

    def __exit__(self, *_):
        try:
            self.release()
        except LockError as error:
            self._forgive(error)


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


def close(redis, timeout=2.0) -> bool:
    """Leaves all that is waited for or renewed through this client. Whether the server has heard all of it in time."""
    session = vars(redis).pop("_mortise_session", None)
    return session is None or session.pid != os.getpid() or session.run(session.close(timeout * 1000))


def session_of(redis):
    session = vars(redis).get("_mortise_session")
    if session is None or session.pid != os.getpid():  # a child of fork() has neither the threads nor the names of its parent
        session = redis._mortise_session = Session(redis)
    return session


class Wire:
    """One connection that all threads share. Who finds it free carries all that has gathered, in one pipeline."""

    def __init__(self, connect):
        self.connect, self.connection = connect, None
        self.mutex, self.jobs, self.busy = threading.Lock(), [], False

    def call(self, commands):
        job = SimpleNamespace(commands=commands, replies=None, error=None, turn=threading.Event())
        try:
            with self.mutex:
                first, self.busy = not self.busy, True
                self.jobs.append(job)
            if not first:
                job.turn.wait()
            if job.replies is None and job.error is None:
                self.carry()
        except BaseException:  # an interrupt: whoever waits behind this one must not wait for ever
            with self.mutex:
                mine = job in self.jobs and (first or job.turn.is_set())
                self.jobs = [other for other in self.jobs if other is not job]
            if mine:
                self.pass_on([])
            raise
        if job.error is not None:
            raise job.error
        return job.replies

    def carry(self):
        with self.mutex:
            batch, self.jobs = self.jobs, []
        cause, sent = None, False
        try:
            if self.connection is None:
                self.connection = self.connect()
            self.connection.connect()
            sent = True
            commands = [command for job in batch for command in job.commands]
            self.connection.send_packed_command(self.connection.pack_commands(commands), check_health=False)
            for job in batch:
                job.replies = [self.read() for _ in job.commands]
        except BaseException as error:
            cause = error
            self.hang_up()
            if not isinstance(error, Exception):
                raise
        finally:
            for job in batch:
                if job.replies is None:
                    job.error = Unanswered(cause, sent)
            self.pass_on(batch)

    def read(self):
        try:
            return self.connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    def pass_on(self, batch):
        with self.mutex:
            self.busy = bool(self.jobs)
            following = self.jobs[:1]
        for job in batch + following:
            job.turn.set()

    def hang_up(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.disconnect()


class Session(rules.Session):
    """Carries the steps of the rules out, in the thread that asks."""

    def __init__(self, redis):
        super().__init__(redis)
        self.pid = os.getpid()
        sessions.add(self)

    event, new_wire = staticmethod(threading.Event), staticmethod(Wire)

    def spawn(self, steps):
        threading.Thread(target=self.run, args=(steps,), name="mortise-lock", daemon=True).start()

    def run(self, steps):
        act, value = steps.send, None
        while True:
            try:
                step = act(value)
            except StopIteration as end:
                return end.value
            try:
                act, value = steps.send, self.do(step)
            except BaseException as error:
                act, value = steps.throw, error

    def do(self, step):
        if isinstance(step, Wait):
            return step.event.wait(min(step.ms / 1000, threading.TIMEOUT_MAX))
        if isinstance(step, Call):
            return self.wire(step.node.address, step.mail).call(step.commands)
        if self.may_refresh(step.node):
            try:
                self.client.nodes_manager.initialize()
            except Exception as error:  # redis-py's own for this is no RedisError
                log.warning("the cluster does not say who serves what: %s", error)

    def connection(self, address, mail):
        redis = self.client
        if address is not None:
            node = redis.get_node(*address)
            redis = redis.get_redis_connection(node)
        return own_connection(redis.connection_pool.connection_class, redis.connection_pool.connection_kwargs, mail)

    def close(self, ms):
        said = yield from super().close(ms)
        for wire in list(self.wires.values()):
            wire.hang_up()
        return said


sessions = weakref.WeakSet()


@atexit.register
def close_all():
    for session in list(sessions):
        if session.pid == os.getpid():
            session.run(session.close(500))
