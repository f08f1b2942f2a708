"""Times, replies and holds, for the rules. Sends no command."""
import inspect
import logging
import math
import numbers
import time

from redis.exceptions import LockError, RedisClusterException, RedisError

log = logging.getLogger("mortise_lock")
LEAVE_FOR = 60_000  # ms in which what arrives late of a name that was left changes nothing
MOST = 1_000  # that are sent before their replies are read
LEAST_LEASE, MOST_LEASE = 0.003, 2**53 // 1000  # seconds
TICK = 1_000  # ms after which background work checks at the latest
ELSEWHERE = ("READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT",
             "NOREPLICAS", "MISCONF", "BUSY")
PATIENCE = 10_000  # ms for which a request without a limit goes on trying a server that answers nobody
LATE = 200  # ms after a limit in which a process that was busy, or stood still, reads first what has come
CODES = {"ReadOnlyError": "READONLY", "MovedError": "MOVED", "AskError": "ASK", "TryAgainError": "TRYAGAIN",
         "ClusterDownError": "CLUSTERDOWN", "MasterDownError": "MASTERDOWN", "NoPermissionError": "NOPERM"}
# The errors of an exchange that broke: redis-py's, the socket's, and those of a connection that another thread has closed meanwhile. No
# others are swallowed: they are those of a signal handler, like Celery's SoftTimeLimitExceeded.
BROKEN = RedisError, RedisClusterException, OSError, AttributeError, ValueError
# Clocks that go on while the machine sleeps, of Linux and of macOS, and what other systems have. Windows has none of them: there
# it is the performance counter, which goes on, too.
CLOCKS = [getattr(time, name) for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW", "CLOCK_MONOTONIC") if hasattr(time, name)]


class Failed(Exception):
    """Stands for a reply that did not come, or is of no use; the next attempt's may be. `cause`: why the server could not be
    asked, if so. `known`: whether the request surely has changed nothing."""

    def __init__(self, cause=None, known=False):
        self.cause, self.known = cause, known


class UnconfirmedError(LockError):
    """Too few replicas had the lock in time. A new one was given back; a renewed one keeps the lease that it had."""

    def __init__(self, needed, had):
        super().__init__(f"{had} replicas have the lock, and {needed} have to")
        self.needed, self.had = needed, had

    def __reduce__(self):  # for another process
        return type(self), (self.needed, self.had)


def now():
    """Milliseconds that go on while the machine sleeps, and do not step with the wall clock."""
    return (time.clock_gettime(CLOCKS[0]) if CLOCKS else time.perf_counter()) * 1000


def milliseconds(name, seconds, least=0.0, most=math.inf):
    """What the argument of this name is in milliseconds. Refuses what is no number of seconds, or outside of its bounds."""
    if isinstance(seconds, bool) or not isinstance(seconds, numbers.Real):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    if not least <= seconds <= most:
        raise ValueError(f"{name} must be {least} to {most} seconds, not {seconds!r}")
    return float(seconds) * 1000


def lease_of(name, seconds):
    """A lease in milliseconds. From one of 2 ms nothing is left, so that no attempt would succeed."""
    return int(milliseconds(name, seconds, LEAST_LEASE, MOST_LEASE))


def code(error):
    """The first word of the server's error; redis-py removes it from the errors that it knows."""
    return CODES.get(type(error).__name__) or str(error).split(" ", 1)[0]


def fields(reply):
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {name.decode(): value for name, value in pairs}


def judged(reply):
    """The reply; a `Failed` if it is an error that only says "not here", or "not now"."""
    return Failed(reply, True) if isinstance(reply, Exception) and code(reply) in ELSEWHERE else reply


def is_demoted(reply):
    """Whether the server says that it is no primary any more."""
    return isinstance(reply, Exception) and code(reply) in ("READONLY", "UNBLOCKED")


def changes_nothing(reply):
    """Whether the request of this reply surely has changed nothing."""
    return reply is None or isinstance(reply, Exception) and getattr(reply, "known", True)


def is_gone(reply):
    """Whether the server says that there is no such hold, or that it was revoked."""
    return reply is None or isinstance(reply, Exception) and code(reply) == "WRONGTYPE"


def keys_of(command):
    """The keys that a command is about; it is routed by the first."""
    return command[4:4 + command[3]] if command[0] == "LOCK.MACQUIRE" else command[1:2]


def pool_of(redis):
    """What locks share connections by: the pool, which may have many clients. A cluster's client has a pool for each node."""
    return getattr(redis, "connection_pool", redis)


async def settled(answer):
    """What redis-py's clients for threads answer at once, those for asyncio have to be awaited for."""
    return await answer if inspect.isawaitable(answer) else answer


class Hold:
    """One acquisition, of one key or several: asked for under a name of its own, granted perhaps, and over in the end."""

    awaited = None  # the event that end() sets, made by the first caller who waits for it

    def __init__(self, keys, owner, lease, max_hold=math.inf, at_least=-math.inf):
        self.keys, self.key, self.owner, self.lease, self.max_hold, self.at_least = keys, keys[0], owner, lease, max_hold, at_least
        self.token, self.ended = None, False
        self.until = self.deadline = self.rests_until = -math.inf

    def granted(self, token, begin):
        self.token, self.last = token, begin + self.max_hold
        self.believe(begin, self.lease)

    def believe(self, begin, lease):
        self.deadline = max(self.deadline, begin + lease)
        self.until = max(self.until, min(begin + lease - lease / 100 - 2, self.last))
        self.renew_at = begin + self.lease / 3

    def held(self):
        return not self.ended and now() < self.until

    def end(self):
        self.ended = True
        if self.awaited:
            self.awaited.set()

    def is_due(self, at):
        """Whether to renew it, or soon."""
        return self.renew_at <= at + self.lease / 10 and at < self.last

    def due_at(self):
        """When there is something to do about it."""
        return min(self.until, self.renew_at if self.renew_at < self.last else math.inf)

    def renewals(self, lease):
        """The requests that renew it, one for each of its keys."""
        return [("LOCK.RENEW", key, self.owner, max(1, int(lease)), "TOKEN", self.token) for key in self.keys]

    def handover(self, key, heir, lease):
        """Gives it to another name, with that lease."""
        return ("LOCK.PASS", key, self.owner, heir, max(1, math.ceil(lease)), "TOKEN", self.token)

    def rests(self):
        """Whether the lock has to stay taken for a while after this."""
        return now() < self.rests_until
