"""Connections of the locks' own, made like those of the user's pool, but not out of it."""
import math

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError
from redis.retry import Retry

from ._values import Failed, UnconfirmedError

TIMEOUT = 2  # seconds without a reply after which all that is in flight on a connection is unknown
CONFIRM = 1_000  # ms that replicas may take to confirm


def connection_like(pool, most=math.inf):
    """A connection like those of the pool that never sends anything twice. It awaits no reply for longer than `most` seconds."""
    given = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith("maint_notifications")}
    limits = {name: min(given.get(name) or math.inf, TIMEOUT, most) for name in ("socket_timeout", "socket_connect_timeout")}
    never = {"retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "retry_on_error": [], "health_check_interval": 0}
    connection = pool.connection_class(**{**given, **never, **limits})
    vars(connection).update(limits)  # redis-py 5.0 forgets them for Unix sockets
    return connection


def wait_for(replicas, limit):
    """What waits for replicas, for less time than the `limit` of a reply in seconds."""
    return "WAIT", replicas, max(1, min(CONFIRM, int(limit * 500)))


def check_attached(replicas, had):
    """Before a connection has written anything, WAIT counts the replicas that are attached."""
    if had < replicas:
        raise UnconfirmedError(replicas, had)


def confirmed(replicas, replies, had):
    """The replies to renewals, which count if WAIT has said that as many replicas have them as are needed."""
    if isinstance(had, int) and had >= replicas:
        return replies
    failed = Failed(UnconfirmedError(replicas, had), known=True) if isinstance(had, int) else had
    return [failed if isinstance(reply, int) else reply for reply in replies]


def packed(commands):
    """Commands as they are sent. redis-py's own packs as well, and takes three times as long for as many words."""
    return b"".join(map(packed_one, commands))


def packed_one(command):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def cause_of(error):
    """What a broken exchange is reported as."""
    return error if isinstance(error, RedisError) else ConnectionError(f"the exchange broke off: {error!r}")
