"""Connections of the locks' own, made like those of the user's pool, but not out of it."""
import math

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError
from redis.retry import Retry

TIMEOUT = 2  # seconds without a reply after which all that is in flight on a connection is unknown
CONFIRM = 1_000  # ms that replicas may take to confirm


def limit_of(pool, name="socket_timeout"):
    """How many seconds a reply, or a connection, may take."""
    return min(pool.connection_kwargs.get(name) or math.inf, TIMEOUT)


def wait_for(replicas, pool):
    """What waits for replicas, for less time than a reply may take."""
    return "WAIT", replicas, max(1, min(CONFIRM, int(limit_of(pool) * 500)))


def connection_like(pool, **settings):
    """A connection like those of the pool that never sends anything twice, and its limits for a reply and for connecting, in seconds."""
    given = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith("maint_notifications")}
    limit, connect_limit = limit_of(pool), limit_of(pool, "socket_connect_timeout")
    never = {"retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "retry_on_error": [], "health_check_interval": 0}
    limits = {"socket_timeout": limit, "socket_connect_timeout": connect_limit}
    return pool.connection_class(**{**given, **never, **limits, **settings}), limit, connect_limit


def packed(commands):
    """Commands as they are sent. redis-py's own packs as well, and takes three times as long for as many words."""
    return b"".join(map(packed_one, commands))


def packed_one(command):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def cause_of(error):
    """What a broken exchange is reported as."""
    return error if isinstance(error, RedisError) else ConnectionError(f"the exchange broke off: {error!r}")
