"""Connections of the locks' own, made like those of the user's pool: what gathers on one goes to the server together."""
import collections
import math
import threading

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, RedisError, ResponseError
from redis.retry import Retry

from ._rules import MAIL_WAIT, MOST, Failed, settled

TIMEOUT = 2  # seconds without a reply after which all that is in flight on a connection is unknown


def packed(command):
    """A command as it is sent. redis-py's own packs as well, and takes three times as long for as many words."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class BaseWire:
    """One connection that all share, made anew after any trouble. What has gathered goes in one pipeline, a thousand at most.

    `pool` gives what it is made like. A driver adds `call`, and `in_time`, which awaits something for so many seconds.
    """

    def __init__(self, pool, mail):
        self.pool, self.mail, self.connection, self.jobs, self.mutex = pool, mail, None, collections.deque(), threading.RLock()

    def connect(self):
        """A connection like those of the pool, but not out of it, and one that never sends anything twice."""
        pool = self.pool()
        settings = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith("maint_notifications")}
        self.reply_limit = min(settings.get("socket_timeout") or math.inf, TIMEOUT) + (MAIL_WAIT / 1000 if self.mail else 0)
        self.connect_limit = min(settings.get("socket_connect_timeout") or math.inf, TIMEOUT)
        return pool.connection_class(**{
            **settings, "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "retry_on_error": [], "health_check_interval": 0,
            "socket_timeout": self.reply_limit, "socket_connect_timeout": self.connect_limit,
        })

    async def exchange(self):
        batch, known, cause = [], True, None
        try:
            while self.jobs and len(batch) < MOST:
                batch.append(self.jobs.popleft())
            if self.connection is None:
                self.connection = self.connect()
                await self.in_time(self.connection.connect(), self.connect_limit)
            words, known = b"".join(packed(command) for commands, _ in batch for command in commands), False
            await self.in_time(self.talk(self.connection, words, batch), self.reply_limit)
        except BaseException as error:
            cause = error if isinstance(error, RedisError) else ConnectionError(f"the exchange broke off: {error!r}")
            await self.hang_up()
            if not isinstance(error, Exception):
                raise
        finally:
            for commands, future in batch:
                if not future.done():
                    future.set_result([Failed(cause, known)] * len(commands))

    async def talk(self, connection, words, batch):
        await settled(connection.send_packed_command([words], check_health=False))
        for commands, future in batch:
            replies = [await self.read(connection) for _ in commands]
            if not future.done():
                future.set_result(replies)

    async def read(self, connection):
        try:
            return await settled(connection.read_response(disable_decoding=True))
        except ResponseError as error:
            return error

    async def hang_up(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            await settled(connection.disconnect(True))  # and not awaited with asyncio
