"""Connections of the locks' own, made like those of the user's pool, but not out of it."""
import math

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError
from redis.retry import Retry

TIMEOUT = 2  # seconds without a reply after which all that is in flight on a connection is unknown


def connection_like(pool, **settings):
    """A connection like those of the pool that never sends anything twice, and its limits for a reply and for connecting, in seconds."""
    given = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith("maint_notifications")}
    limit = min(given.get("socket_timeout") or math.inf, TIMEOUT)
    connect_limit = min(given.get("socket_connect_timeout") or math.inf, TIMEOUT)
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
