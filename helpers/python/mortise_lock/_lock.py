"""What locks for threads and for tasks have in common: arguments, attempts, errors. `_rules.py` has what they ask the server."""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Union

from redis.exceptions import AuthenticationError, ConnectionError, LockError, LockNotOwnedError, NoPermissionError, ResponseError, TimeoutError

from ._taken import Local, Taken
from ._values import LEAST_LEASE, PATIENCE, Failed, Hold, UnconfirmedError, code, lease_of, log, milliseconds, now, pool_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Client = TypeVar("Client")
Name = Union[str, bytes]

NO_MODULE = ("the server does not know LOCK commands: the Mortise module is not loaded. Add `loadmodule …/libmortise.so` to its "
             "configuration, or send MODULE LOAD …/libmortise.so")


class BusyError(LockError):
    """Others held the lock for as long as a `with` block was to wait."""


class DeadlockError(LockError):
    """The server found that this wait would never end. The text names the keys."""


class RefusedError(LockError):
    """The server refused: a key of another type, too many waiters, no permission. The text is its own."""


class Options(TypedDict, total=False):
    """Those of `Lock`, by their names."""

    timeout: float | None
    sleep: float | None
    blocking: bool
    blocking_timeout: float | None
    thread_local: bool
    raise_on_release_error: bool
    lease: float
    max_hold: float | None
    at_least: float | None
    holder: Name | None
    replicas: int
    cancel_on_loss: bool  # asyncio only


def counted(name, value):
    """The value, if it is a count."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is an int, not {value!r}")
    if value < 0:
        raise ValueError(f"{name} must be 0 or more, not {value}")
    return value


class BaseLock(Generic[Client]):
    """What locks for threads and for tasks have in common."""

    _command = "LOCK.ACQUIRE"
    _takes = Taken

    def __init__(self, redis: Client, name: Name, timeout: float | None = None, sleep: float | None = 0.1, blocking: bool = True,
                 blocking_timeout: float | None = None, thread_local: bool = True, raise_on_release_error: bool = True, *, lease: float = 30.0,
                 max_hold: float | None = None, at_least: float | None = None, holder: Name | None = None, replicas: int = 0) -> None:
        """A lock on `name` (str or bytes) by the client `redis`. Takes nothing yet. As `redis.lock.Lock`; all times are seconds.

        timeout: after so long the lock is free again, unless extended; 0.003 at least. None: it is renewed until it is
            released, for as long as this process lives; should that die, the lock is free again after `lease`.
        sleep: changes nothing, because nobody polls: waiters stand in a queue in the server.
        blocking, blocking_timeout: whether `acquire` waits, and for how long, where it gets no such argument. None: no limit.
        thread_local: whether each thread, or task, uses only what it took itself. False: also what another one has taken.
        raise_on_release_error: whether leaving a `with` block raises where the lock was lost; if not, it is logged. An error of the
            block itself is raised in any case, with the loss at the end of its `__context__`.
        lease: what a lock without `timeout` is renewed for, at a third of it; 0.003 at least.
        max_hold: after so long a lock without `timeout` is not renewed any more; 0.003 at least. None: no limit.
        at_least: the lock stays taken for so long after its grant, however early it is released. A shorter `lease` or `timeout`
            is raised to it, so that this holds where the process dies, too. None: it is free when it is released.
        holder: a name for people to read, as in LOCK.INFO: a part of the owner (str or bytes, without ##).
        replicas: how many replicas must have the grant and each renewal before this lock relies on it. If all clients of the lock
            name the number of replicas that may ever be promoted, and each server has `lock.grace`, no failover lets two in.

        Raises TypeError for what is no number, and ValueError for one outside of its bounds.
        """
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout, sleep
        self.blocking, self.blocking_timeout, self.thread_local = blocking, blocking_timeout, bool(thread_local)
        self.raise_on_release_error, self.lease, self.max_hold = raise_on_release_error, lease, max_hold
        self.at_least, self.holder, self.replicas = at_least, holder, replicas
        self._request(), self._limit(blocking_timeout), self._check(sleep), counted("replicas", replicas)
        self._taken = self._takes(self.thread_local is False)
        self._keys, self._holder = [self._bytes(one) for one in (name if self._is_several() else [name])], self._bytes(holder)
        if self._holder is not None and (not self._holder or b"##" in self._holder):
            raise ValueError(f"holder is a name without ##, not {holder!r}")

    async def _session(self):
        """Runs its coroutines; a driver decides how."""
        raise NotImplementedError

    def _bytes(self, value):
        return pool_of(self.redis).get_encoder().encode(value) if value is not None else None

    def _is_several(self):
        return self._command == "LOCK.MACQUIRE"

    @property
    def _key(self):
        return self._keys[0]

    @property
    def local(self) -> Any:
        """redis-py's place for `token`, the name by which this thread or task holds the lock. Another process's may be set."""
        return Local(self._taken, self._bytes)

    @property
    def _hold(self):
        current = self._taken.current()
        return current and current.hold

    def _request(self):
        """The lease, for how long it is renewed, and how long the lock stays taken, in ms. Refuses what is no time for that."""
        lease = lease_of("lease", self.lease)
        if self.timeout is not None:
            lease = lease_of("timeout", self.timeout)
        longest = math.inf if self.max_hold is None else milliseconds("max_hold", self.max_hold, LEAST_LEASE)
        at_least = None if self.at_least is None else lease_of("at_least", self.at_least)
        return max(lease, at_least or 0), longest, at_least

    def _count(self, _):
        """The option for its count."""
        return "HOLDS", 1

    def _limit(self, blocking_timeout):
        """Milliseconds for which to wait. A time that has passed asks once."""
        return math.inf if blocking_timeout is None else max(0, milliseconds("blocking_timeout", blocking_timeout, -math.inf))

    def _check(self, sleep):
        if sleep is not None:
            milliseconds("sleep", sleep)

    @property
    def fencing_token(self) -> int | None:
        """An int, larger than every one granted before: for the store that the lock protects, which refuses smaller ones. None
        where nothing was taken."""
        return self._hold and self._hold.token

    @property
    def owner(self) -> bytes | None:
        """The name under which it is held (bytes), as LOCK.INFO shows it. None where nothing was taken."""
        return self._hold and self._hold.owner

    @property
    def lost(self) -> bool:
        """Whether the lock was taken, and has ended without a release. By this process's own clock; sends no command."""
        return self._hold is not None and not self._hold.held()

    def _error(self, kind, text):
        error = kind(text)  # redis-py takes the name as well, but not in each of its versions
        error.lock_name = self.name
        return error

    def _problem(self, reply):
        """The exception for an error that came as a reply."""
        if isinstance(reply, Failed):
            return reply.cause
        if str(reply).lower().startswith("unknown command"):
            return self._error(RefusedError, NO_MODULE)
        return self._error(DeadlockError if code(reply) == "DEADLOCK" else RefusedError, str(reply))

    async def _acquire(self, blocking=None, blocking_timeout=None, token=None, permits=None):
        """The acquisition, or None where others held the lock for the whole wait."""
        limit = self._limit(self.blocking_timeout if blocking_timeout is None else blocking_timeout)
        wait = limit if (self.blocking if blocking is None else blocking) else 0
        session, task, count = await self._session(), self._bytes(token), self._count(permits)
        end, failing = now() + wait, None
        for tries in itertools.count(1):
            try:
                hold = await self._attempt(session, end - now() if wait else 0, task, count)
                return hold and self._taken.add(task or hold.owner, hold)
            except Failed as failed:
                cause = ConnectionError("closed") if session.closed else failed.cause
                failing = cause and (failing or now())
                if wait == 0:
                    last_try = tries > 1 or isinstance(cause, (TimeoutError, UnconfirmedError))  # once more, but not after a silence
                else:
                    last_try = now() + 20 >= (max(failing, session.node(self._key).answered_at) + PATIENCE if failing and limit == math.inf else end)
                if session.closed or last_try or isinstance(cause, (AuthenticationError, NoPermissionError)):
                    if cause is not None:
                        raise cause
                    return None
                if not failing and tries < 4:
                    continue
                if failing:
                    await session.refresh(session.node(self._key))
            await session.pause(min(20 * 2 ** min(tries, 5), max(20, end - now())))

    def _words(self, owner, lease, count):
        """The command that asks for it, without its wait."""
        if self._is_several():
            return self._command, owner, lease, len(self._keys), *self._keys
        return self._command, self._key, owner, lease, *count

    def _new_hold(self, session, task=None):
        lease, max_hold, at_least = self._request()
        return Hold(self._keys, session.name(task, self._holder), lease, session.event, max_hold, at_least)

    async def _attempt(self, session, left, task, count):
        """One request under one name. If its outcome is unknown in the end, it is left."""
        hold = self._new_hold(session, task)
        session.asked[hold.owner] = hold  # before it is sent: a letter may overtake the reply
        sent, known = now(), session.closed
        try:
            if session.closed:
                raise Failed()
            node, reply = await session.request(hold, self._words(hold.owner, hold.lease, count), left)
            known = reply is None or getattr(reply, "known", isinstance(reply, ResponseError))
            if isinstance(reply, Failed):
                raise reply
            if isinstance(reply, Exception):
                raise self._problem(reply)
            if reply is None:
                node.answered_at = now()
                return None
            hold.granted(reply, max(sent, hold.begin))
            if session.replicas or hold.until - now() < hold.lease / 2:
                await self._confirm(session, hold)
            node.answered_at = now()
            self._hold_on(node, hold)
            if session.asked.pop(hold.owner, None) is None:  # `close` was faster
                raise Failed()
            known = True
            return hold
        finally:
            session.asked.pop(hold.owner, None)
            if not known:
                node = session.node(hold.key)
                node.holds.discard(hold)
                node.leave(hold)

    async def _confirm(self, session, hold):
        """Renews what was granted, where replicas have to have it, or where nobody knows how long ago that was: it counts from then on."""
        sent = now()
        for reply in await session.renew(hold, hold.lease):
            if isinstance(reply, Exception) and code(reply) != "WRONGTYPE":
                raise reply if isinstance(reply, Failed) else self._problem(reply)
            if reply != hold.token:
                raise Failed()
        hold.granted(hold.token, sent)

    def _hold_on(self, node, hold):
        """From here on it is the caller's."""
        if hold.at_least is not None:
            hold.rests_until = now() + hold.at_least
        if self.timeout is None:
            node.hold(hold)

    async def _holds(self, session, key):
        """Who holds, by the server. None where something else than such a lock has the key."""
        holds = await session.holds(key)
        if isinstance(holds, Exception) and code(holds) != "WRONGTYPE":
            raise self._problem(holds)
        return None if isinstance(holds, Exception) else holds

    async def _mine(self, session, one, key):
        """The hold of that acquisition by the server, also where another process made it."""
        sent = now()
        for held in await self._holds(session, key) or []:
            owner = held["owner"]
            if one.hold is None and one.token in (owner, owner.rpartition(b"##")[0]):
                hold = Hold(self._keys, owner, held["lease"], session.event)
                hold.granted(held["token"], sent)
                if session.replicas and isinstance(said := await session.extend(hold, hold.lease), Exception):
                    raise self._problem(said)
                one.hold = hold
            if one.hold is not None and one.hold.owner == owner:
                return one.hold

    async def locked(self) -> bool:
        """Whether anybody holds it now, or one of several, also one who took it with another library, by SET NX. Raises redis-py's own
        errors where the server cannot be asked, as all that follow do."""
        session = await self._session()
        return any([await self._holds(session, key) != [] for key in self._keys])

    async def owned(self) -> bool:
        """Whether it is held, by the server: as it was taken here, or by `local.token`."""
        current, session = self._taken.current(), await self._session()
        return current is not None and all([await self._mine(session, current, key) is not None for key in self._keys])

    async def release(self) -> None:
        """Gives it back; with `at_least` it stays taken until that is over. Raises LockError if it was not acquired,
        LockNotOwnedError if it was lost before, RefusedError."""
        await self._give_back(self._taken.current())

    async def _give_back(self, one):
        if one is not None and not self._taken.remove(one):
            one = None
        await self._with_hold("release", lambda session, hold: session.release(hold), one)

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """`additional_time` seconds more, 0.003 at least; with `replace_ttl` that many from now on, if that is more than what is
        left. Always True. Raises as `release`, and LockError for a lock without a timeout."""
        more, current = lease_of("additional_time", additional_time), self._taken.current()
        if current is not None and self.timeout is None:
            raise self._error(LockError, "Cannot extend a lock without a timeout: it is renewed by itself")
        return await self._with_hold("extend", lambda session, hold: session.extend(
            hold, int((0 if replace_ttl else hold.deadline - now()) + more)), current)

    async def _with_hold(self, what, work, one):
        if one is None:
            raise self._error(LockError, f"Cannot {what} a lock that was not acquired, or is released already")
        session = await self._session()
        hold = one.hold or await self._mine(session, one, self._key)
        with session.work():
            done = hold is not None and await work(session, hold)
        if isinstance(done, Exception):
            raise self._problem(done)
        if not done:
            raise self._error(LockNotOwnedError, f"The lock was lost before its {what}")
        return done

    async def pass_to(self, owner: Name, lease: float) -> int:
        """Gives the lock to another name (str or bytes) with a lease of `lease` seconds, 0.003 at least, and lets nobody in between.
        The new fencing token: who knows it and the name, in whichever process, goes on with `take_over`. What the lock had of
        `at_least` ends. Raises as `release`; after a RefusedError the lock is held as before."""
        self._check_single()
        heir, lease, current = self._bytes(owner), lease_of("lease", lease), self._taken.current()
        token = await self._with_hold("pass", lambda session, hold: session.hand_over(hold, heir, lease), current)
        current.passed = self._taken.remove(current)
        return token

    async def take_over(self, owner: Name, token: int) -> bool:
        """Whether the lock is held here from now on, which was held under the name `owner` by that fencing token: of several who try,
        one gets it. False: it is not held by that name and token, or no longer. Raises RefusedError, and redis-py's own errors."""
        self._check_single()
        session, owner = await self._session(), self._bytes(owner)
        hold = self._new_hold(session)
        with session.work():
            taken = await session.take_over(hold, owner, token)
        if isinstance(taken, Exception):
            raise self._problem(taken)
        if taken:
            self._hold_on(session.node(self._key), hold)
            self._taken.add(hold.owner, hold, taken_over=True)
        return taken

    def _check_single(self):
        if self._is_several():
            raise TypeError("only a lock of one name is passed on and taken over")

    def _guarded(self, command):
        """The command under LOCK.GUARD, by what is held here."""
        hold = self._hold
        if hold is None:
            raise self._error(LockError, "Cannot guard by a lock that was not acquired, or is released already")
        return "LOCK.GUARD", self._key, hold.owner, hold.token, *command

    def _guard_error(self, error):
        """What an error of a guarded command is raised as: the command's own errors as they are."""
        return self._error(LockNotOwnedError, "The lock was lost before its guarded command") if code(error) == "NOTHELD" else error

    async def _revoke(self, owner):
        left = await (await self._session()).revoke(self._key, self._bytes(owner))
        if isinstance(left, Exception):
            raise self._problem(left)
        return left if left is None else left / 1000

    async def reacquire(self) -> bool:
        """`timeout` seconds from now on. Always True. Raises as `extend`."""
        return await BaseLock.extend(self, self.lease if self.timeout is None else self.timeout, True)

    async def wait_lost(self, timeout: float | None = None) -> bool:
        """Returns when the lock is lost (True), released, or `timeout` seconds are over (False)."""
        end, current = math.inf if timeout is None else now() + milliseconds("timeout", timeout, -math.inf), self._taken.current()
        return current is not None and await self._lost(current, end)

    async def _lost(self, taken, end=math.inf):
        """Waits until the acquisition is over, or until `end`. Whether it was lost."""
        session, hold = await self._session(), taken.hold
        while hold is not None and hold.lasts() and now() < end:
            await session.wait(hold.ended.awaited(), max(0, min(hold.until - now() + 1, end - now(), 1_000)))
        return hold is not None and not hold.lasts() and taken in self._taken.acquisitions

    async def _enter(self) -> Self:
        taken = await self._acquire()
        if taken is None:
            raise self._error(BusyError, "Unable to acquire lock within the time specified")
        self._taken.enter(taken)
        return self

    async def _exit(self, kind: object, error: BaseException | None, trace: object) -> None:
        taken = self._taken.leave()
        if taken is None:
            return
        try:
            await self._give_back(taken)
        except LockError as loss:
            if error is not None:
                attach(error, loss)
            elif self.raise_on_release_error:
                raise
            else:
                log.warning("lock %r: %s", self.name, loss)


def attach(error, loss):
    """Puts the loss of the lock at the end of what the error of its block shows as its context."""
    seen, loss.__context__ = {id(loss)}, None
    while error.__context__ is not None and id(error) not in seen:
        seen.add(id(error))
        error = error.__context__
    if id(error) not in seen:
        error.__context__ = loss


class BaseMultiLock(BaseLock[Client]):
    """Several locks, to write: all at once, or none."""

    _command = "LOCK.MACQUIRE"

    def __init__(self, redis: Client, names: Sequence[Name], **options: Unpack[Options]) -> None:
        """The locks of 1 to 16 names (a sequence of str or bytes) by the client `redis`. Takes nothing yet. In a cluster the names are
        in one slot, as by a {hash tag}.

        options: those of `Lock`, by their names.
        """
        if isinstance(names, (str, bytes)) or not names:
            raise TypeError(f"names are several names, not {names!r}")
        super().__init__(redis, tuple(names), **options)


class BaseSemaphore(BaseLock[Client]):
    """Up to `limit` permits of a name are out at the same time."""

    _command = "LOCK.RLOCK"

    def __init__(self, redis: Client, name: Name, limit: int, permits: int = 1, **options: Unpack[Options]) -> None:
        """A semaphore of `limit` permits on `name`. Takes nothing yet. All users of a name give the same limit; the server stores none.

        permits: how many `acquire` takes at once where it gets no such argument.
        options: those of `Lock`, by their names.
        """
        super().__init__(redis, name, **options)
        self.limit, self.permits = limit, permits
        self._count(None)

    def _count(self, permits):
        permits = self.permits if permits is None else permits
        if not 1 <= counted("permits", permits) <= counted("limit", self.limit) < 2**31:
            raise ValueError(f"permits must be 1 to the limit of {self.limit}, not {permits}")
        return "HOLDS", permits, "LIMIT", self.limit

    async def available(self) -> int:
        """How many permits are free now."""
        holds = await self._holds(await self._session(), self._key)
        return 0 if holds is None else max(0, self.limit - sum(hold["read"] for hold in holds))

    async def locked(self) -> bool:
        """Whether no permit is free now."""
        return await BaseSemaphore.available(self) == 0
