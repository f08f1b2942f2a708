"""What locks for threads and for tasks have in common: arguments, attempts, errors. `_rules.py` has what they ask the server."""
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, Union

from redis.exceptions import AuthenticationError, ConnectionError, LockError, LockNotOwnedError, NoPermissionError, ResponseError, TimeoutError

from ._taken import Taken
from ._values import (LEAST_LEASE, PATIENCE, Failed, Hold, UnconfirmedError, changes_nothing, code, fields, is_gone, lease_of, log, milliseconds,
                      now, pool_of, settled)

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


class BaseLock(Generic[Client]):
    """What locks for threads and for tasks have in common."""

    _command = "LOCK.ACQUIRE"
    _takes = Taken

    def __init__(self, redis: Client, name: Name, timeout: float | None = None, sleep: float | None = 0.1, blocking: bool = True,
                 blocking_timeout: float | None = None, thread_local: bool = True, raise_on_release_error: bool = True, *, lease: float = 30.0,
                 max_hold: float | None = None, at_least: float | None = None, holder: Name | None = None, replicas: int = 0,
                 cancel_on_loss: bool = False) -> None:
        """A lock on `name` (str or bytes) by the client `redis`. Takes nothing yet. As `redis.lock.Lock`; all times are seconds.

        timeout: after so long the lock is free again, unless extended; 0.003 at least. None: it is renewed until it is
            released, for as long as this process lives; should that die, the lock is free again after `lease`.
        sleep: changes nothing, because nobody polls: waiters stand in a queue in the server.
        blocking, blocking_timeout: whether `acquire` waits, and for how long, where it gets no such argument. None: no limit.
        thread_local: whether each thread, or task, uses only what it took itself. False: also what another one has taken.
        raise_on_release_error: whether leaving a `with` block raises where the lock was lost; if not, it is logged. An error of the
            block itself is raised in any case, with the loss at the end of its `__context__`.
        lease: what a lock without `timeout` is renewed for, at a third of it; 0.003 at least.
        max_hold: after so long the lock is lost: without `timeout` it is not renewed any more, with one it ends here, however
            long it was extended; 0.003 at least. None: no limit.
        at_least: the lock stays taken for so long after its grant, however early it is released. A shorter `lease` or `timeout`
            is raised to it, so that this holds where the process dies, too. Several locks are free, too, when one of them is gone
            at the release. None: it is free when it is released.
        holder: a name for people to read, as in LOCK.INFO: a part of the owner (str or bytes, without ##).
        replicas: how many replicas must have the grant and each renewal before this lock relies on it. If all clients of the lock
            name the number of replicas that may ever be promoted, and each server has `lock.grace`, no failover lets two in.
        cancel_on_loss: with asyncio, the body of an `async with` block is cancelled when the lock is lost; then the block raises
            LockNotOwnedError.

        Raises TypeError for what is no number, ValueError for one outside of its bounds, redis-py's DataError for what is no name.
        """
        if hasattr(redis, "__aenter__") != hasattr(self, "__aenter__"):
            raise TypeError(f"threads lock by a client like redis.Redis, tasks by one like redis.asyncio.Redis: not by {redis!r}")
        self.redis, self.name, self.timeout, self.sleep = redis, name, timeout, sleep
        self.blocking, self.blocking_timeout, self.thread_local = blocking, blocking_timeout, bool(thread_local)
        self.raise_on_release_error, self.lease, self.max_hold = raise_on_release_error, lease, max_hold
        self.at_least, self.holder, self.replicas, self.cancel_on_loss = at_least, holder, replicas, cancel_on_loss
        self._times(), self._limit(blocking_timeout)
        if isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
            raise ValueError(f"replicas is a count, not {replicas!r}")
        if cancel_on_loss and not hasattr(self, "__aenter__"):
            raise ValueError("cancel_on_loss is for tasks: a thread cannot be cancelled")
        self._encode = pool_of(redis).get_encoder().encode
        self._taken = self._takes(not thread_local, self._encode)
        self._keys, self._holder = [self._encode(one) for one in (name if isinstance(self, BaseMultiLock) else (name,))], self._bytes(holder)
        self._key = self._keys[0]
        if self._holder is not None and (not self._holder or b"##" in self._holder):
            raise ValueError(f"holder is a name without ##, not {holder!r}")

    async def _session(self):
        """Runs its coroutines; a driver decides how."""
        raise NotImplementedError

    def _bytes(self, value):
        return self._encode(value) if value is not None else None

    @property
    def local(self) -> Any:
        """redis-py's place for `token`, the name by which this thread or task holds the lock. Another process's may be set."""
        return self._taken

    @property
    def _hold(self):
        current = self._taken.current()
        return current and current.hold

    def _times(self):
        """The lease, for how long it is renewed, and how long the lock stays taken, in ms. Refuses what is no time for that."""
        lease = lease_of("lease", self.lease) if self.timeout is None else lease_of("timeout", self.timeout)
        longest = math.inf if self.max_hold is None else milliseconds("max_hold", self.max_hold, LEAST_LEASE)
        at_least = -math.inf if self.at_least is None else lease_of("at_least", self.at_least)
        return max(lease, at_least), longest, at_least

    def _limit(self, blocking_timeout):
        """Milliseconds for which to wait. A time that has passed asks once."""
        return math.inf if blocking_timeout is None else max(0, milliseconds("blocking_timeout", blocking_timeout, -math.inf))

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

    def _told(self, reply):
        """The reply. Raises where it is an error."""
        if isinstance(reply, Failed):
            raise reply.cause
        if isinstance(reply, Exception):
            if str(reply).lower().startswith("unknown command"):
                raise self._error(RefusedError, NO_MODULE)
            raise self._error(DeadlockError if code(reply) == "DEADLOCK" else RefusedError, str(reply))
        return reply

    async def _acquire(self, blocking=None, blocking_timeout=None, token=None, permits=None):
        """The acquisition, or None where others held the lock for the whole wait."""
        if permits is not None and not isinstance(self, BaseSemaphore):
            raise TypeError("only a Semaphore has permits")
        limit = self._limit(self.blocking_timeout if blocking_timeout is None else blocking_timeout)
        wait = limit if (self.blocking if blocking is None else blocking) else 0
        session, task, answered = await self._session(), self._bytes(token), now()
        end, most = answered + wait, math.inf
        for tries in itertools.count(1):
            began = now()
            try:
                hold = self._new_hold(session, task)
                granted = await self._attempt(session, hold, self._request(hold, permits), end - began if wait else 0, most)
                return self._taken.add(task or hold.owner, hold) if granted else None
            except Failed as failed:
                cause = ConnectionError("closed") if session.closed else failed.cause
            if cause is None or isinstance(cause, UnconfirmedError) or now() > began + PATIENCE:
                answered = now()  # nobody waits for so long at a server that answers nobody
            if wait == 0:
                is_over = tries > 1 or isinstance(cause, (TimeoutError, UnconfirmedError))  # once more, but not after a silence
            else:
                is_over = now() + 20 >= (answered + PATIENCE if wait == math.inf else end)
            if is_over or session.closed or isinstance(cause, (AuthenticationError, NoPermissionError)):
                if cause is None:
                    return None
                raise cause
            if cause is not None:
                await session.refresh(session.node(self._key))
            await session.pause(min(20 * 2 ** min(tries, 5), max(20, end - now())))
            # A server that may have been silent for so long gets no more time than the wait has left.
            had_time = isinstance(cause, TimeoutError) or now() > began + 2_000
            most = max(0, end - now()) if wait and had_time else math.inf

    def _request(self, hold, permits):
        """The command that asks for it, without its wait."""
        return self._command, self._key, hold.owner, hold.lease, "HOLDS", 1

    def _new_hold(self, session, task=None):
        lease, max_hold, at_least = self._times()
        return Hold(self._keys, session.name(task, self._holder), lease, max_hold, at_least)

    async def _attempt(self, session, hold, command, left, most=math.inf):
        """Whether this request, under a name of its own, was granted within `left` ms. If its outcome is unknown in the end, it is left.
        `most`: for so many ms replies are awaited, if that is shorter than usual."""
        with session.work():
            if session.closed:
                raise Failed(ConnectionError("closed"))
            unknown = True
            try:
                reply, begin = await session.request(hold, command, left, most)
                unknown = not changes_nothing(reply)
                if isinstance(reply, Failed):
                    raise reply
                if self._told(reply) is None:
                    return False
                hold.granted(reply, begin)
                if session.replicas or hold.until - now() < hold.lease / 2:
                    await self._confirm(session, hold)
                if not hold.held():  # the reply came too late
                    raise Failed()
                if self.timeout is None and not session.node(hold.key).hold(hold):
                    await session.release(hold)
                    raise RuntimeError("the lock was given back: no thread could be started to renew it")
                if session.closed:
                    raise Failed(ConnectionError("closed"))
                hold.rests_until = now() + hold.at_least
                unknown = False
                return True
            finally:
                if unknown:
                    session.node(hold.key).give_up(hold)

    async def _confirm(self, session, hold):
        """Renews what was granted, where replicas have to have it, or where nobody knows how long ago that was: it counts from then on."""
        sent = now()
        for reply in await session.renew(hold, hold.lease):
            if isinstance(reply, Failed) or is_gone(reply):
                raise reply if isinstance(reply, Failed) else Failed()
            self._told(reply)
        hold.granted(hold.token, sent)

    async def _holds(self, session, key, *which):
        """Who holds, by the server; `which`: only some, as LOCK.INFO shows them. None where something else than such a lock has the key."""
        info = await session.ask("LOCK.INFO", key, *(which or ("COUNT", 2**31 - 1)))
        if isinstance(info, Exception) and is_gone(info):
            return None
        shown = fields(info) if self._told(info) else {"holds": []}
        return [fields(hold) for hold in shown["holds"]] if "holds" in shown else [shown]

    async def _mine(self, session, one, key):
        """The hold of that acquisition by the server, also where another process made it."""
        sent = now()
        which = () if one.is_found else ("OWNER", one.hold.owner)
        for held in await self._holds(session, key, *which) or []:
            owner = held["owner"]
            named = one.is_found and one.token and one.token in (owner, owner.rpartition(b"##")[0])
            if named and not (one.hold and one.hold.held() and one.hold.owner != owner):
                hold = Hold(self._keys, owner, held["lease"])
                hold.granted(held["token"], sent)
                if session.replicas:
                    self._told(await session.extend(hold, hold.lease))
                one.hold = hold
            if one.hold is not None and one.hold.owner == owner:
                return one.hold

    async def locked(self) -> bool:
        """Whether anybody holds it now, or one of several, also one who took it with another library, by SET NX. Raises redis-py's own
        errors where the server cannot be asked, as all that follow do."""
        session = await self._session()
        return any([await self._holds(session, key, "COUNT", 1) != [] for key in self._keys])

    async def owned(self) -> bool:
        """Whether it is held, by the server: as it was taken here, or by `local.token`."""
        current, session = self._taken.current(), await self._session()
        return current is not None and all([await self._mine(session, current, key) is not None for key in self._keys])

    async def release(self) -> None:
        """Gives it back; with `at_least` it stays taken until that is over. Raises LockError if it was not acquired,
        LockNotOwnedError if it was lost before, RefusedError."""
        await self._give_back(self._taken.current())

    async def _give_back(self, one):
        try:
            if one is not None and not self._taken.remove(one):
                one = None
            await self._with_hold("release", lambda session, hold: session.release(hold), one)
        except BaseException:  # as of a signal handler: what nobody can release any more is not renewed
            if one is not None and one.hold is not None:
                (await self._session()).node(self._key).give_up(one.hold)
            raise

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
        hold = await self._mine(session, one, self._key) if one.is_found else one.hold  # one that was found may have been renewed
        with session.work():
            done = hold is not None and self._told(await work(session, hold))
        if not done:
            raise self._error(LockNotOwnedError, f"The lock was lost before its {what}")
        return done

    async def pass_to(self, owner: Name, lease: float) -> int:
        """Gives the lock to another name (str or bytes) with a lease of `lease` seconds, 0.003 at least, and lets nobody in between.
        The new fencing token: who knows it and the name, in whichever process, goes on with `take_over`. What the lock had of
        `at_least` ends. Raises as `release`; after a RefusedError the lock is held as before."""
        self._check_single()
        heir, lease, current = self._encode(owner), lease_of("lease", lease), self._taken.current()
        try:
            if current is not None and not self._taken.remove(current):
                current = None  # another thread was faster
            token = await self._with_hold("pass", lambda session, hold: session.hand_over(hold, heir, lease), current)
        except BaseException:
            if current is not None and current not in self._taken.acquisitions:
                self._taken.acquisitions.append(current)
            raise
        current.is_passed = True
        return token

    async def take_over(self, owner: Name, token: int) -> bool:
        """Whether the lock is held here from now on, which was held under the name `owner` by that fencing token: of several who try,
        one gets it. False: it is not held by that name and token, or no longer. Raises RefusedError, and redis-py's own errors."""
        self._check_single()
        session = await self._session()
        hold = self._new_hold(session)
        command = "LOCK.PASS", self._key, self._encode(owner), hold.owner, hold.lease, "TOKEN", token
        try:
            taken = await self._attempt(session, hold, command, 0)
        except Failed as failed:
            taken = False if failed.cause is None else self._told(failed)
        if taken:
            self._taken.add(hold.owner, hold).is_taken_over = True
        return taken

    def _check_single(self):
        if len(self._keys) > 1:
            raise TypeError("only a lock of one name is passed on and taken over")

    async def guard(self, *command: Any) -> Any:
        """Runs a command by this lock's client, if the lock is held when the server runs it: `lock.guard("SET", "stock:42", 17)`. Its
        reply, and its errors. Raises LockNotOwnedError if the lock is not held any more: then the command was not run."""
        hold = self._hold
        if hold is None:
            raise self._error(LockError, "Cannot guard by a lock that was not acquired, or is released already")
        try:
            return await settled(self.redis.execute_command("LOCK.GUARD", self._key, hold.owner, hold.token, *command))
        except ResponseError as error:
            raise self._error(LockNotOwnedError, "The lock was lost before its guarded command") if code(error) == "NOTHELD" else error

    async def _revoke(self, owner):
        session, owners = await self._session(), [self._bytes(owner)]
        if owner is None:
            holds = await self._holds(session, self._key)
            if holds is None:
                raise self._error(RefusedError, "WRONGTYPE the key has something else than a lock")
            owners = [hold["owner"] for hold in holds]
        left = [self._told(await session.ask("LOCK.REVOKE", self._key, one)) for one in owners]
        return max((ms / 1000 for ms in left if ms is not None), default=None)

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
        if hold is None:
            return False
        awaited = vars(hold).setdefault("awaited", session.event())  # one, also where two threads make it
        while hold.held() and now() < end:
            await session.wait(awaited, max(0, min(hold.until - now() + 1, end - now(), 1_000)))
        return not hold.held() and taken in self._taken.acquisitions

    async def _enter(self):
        taken = await self._acquire()
        if taken is None:
            raise self._error(BusyError, "Unable to acquire lock within the time specified")
        self._taken.blocks.append(taken)
        return taken

    async def _exit(self, taken, error):
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
    loss.__context__ = None
    while error.__context__ is not None:
        error = error.__context__
    error.__context__ = loss


class BaseMultiLock(BaseLock[Client]):
    """Several locks, to write: all at once, or none."""

    _command = "LOCK.MACQUIRE"

    def __init__(self, redis: Client, names: Sequence[Name], **options: Any) -> None:
        """The locks of 1 to 16 names (a sequence of str or bytes) by the client `redis`. Takes nothing yet. In a cluster the names are
        in one slot, as by a {hash tag}.

        options: those of `Lock`, by their names.
        """
        if isinstance(names, (str, bytes)) or not names:
            raise TypeError(f"names are several names, not {names!r}")
        super().__init__(redis, tuple(names), **options)

    def _request(self, hold, permits):
        return self._command, hold.owner, hold.lease, len(self._keys), *self._keys


class BaseSemaphore(BaseLock[Client]):
    """Up to `limit` permits of a name are out at the same time."""

    _command = "LOCK.RLOCK"

    def __init__(self, redis: Client, name: Name, limit: int, permits: int = 1, **options: Any) -> None:
        """A semaphore of `limit` permits on `name`. Takes nothing yet. All users of a name give the same limit; the server stores none.

        permits: how many `acquire` takes at once where it gets no such argument.
        options: those of `Lock`, by their names.
        """
        super().__init__(redis, name, **options)
        self.limit, self.permits = limit, permits

    def _request(self, hold, permits):
        return self._command, self._key, hold.owner, hold.lease, "HOLDS", self.permits if permits is None else permits, "LIMIT", self.limit

    async def available(self) -> int:
        """How many permits are free now."""
        holds = await self._holds(await self._session(), self._key, "COUNT", self.limit)  # so many take all permits
        if holds is None or any(hold["write"] for hold in holds):
            return 0
        return max(0, self.limit - sum(hold["read"] for hold in holds))

    async def locked(self) -> bool:
        """Whether no permit is free now."""
        return await BaseSemaphore.available(self) == 0
