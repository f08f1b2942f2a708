"""Locks that the server knows, for asyncio. The class has the methods of `redis.asyncio.lock.Lock`."""
import asyncio
import math
from types import SimpleNamespace

from redis.exceptions import LockError, LockNotOwnedError, ResponseError

from . import BaseLock, own_connection
from . import _rules as rules
from ._node import Call, Unanswered, Wait, log
from ._rules import DeadlockError, RefusedError

__all__ = ["Lock", "ReadLock", "DeadlockError", "LockError", "LockNotOwnedError", "RefusedError", "close"]


class Lock(BaseLock):
    """A lock for tasks: what `redis.asyncio.lock.Lock` does, in the server."""

    async def acquire(self, blocking=None, blocking_timeout=None, token=None) -> bool:
        return await self._run(self._acquire, blocking, blocking_timeout, token, None)

    async def release(self) -> None:
        return await self._run(self._release)

    async def extend(self, additional_time, replace_ttl=False) -> bool:
        """`additional_time` seconds more; with `replace_ttl` that many from now on, if that is more than what is left."""
        return await self._run(self._extend, additional_time, replace_ttl)

    async def reacquire(self) -> bool:
        """`timeout` seconds from now on."""
        return await self._run(self._extend, self.timeout or 0, True)

    async def locked(self) -> bool:
        return await self._run(self._locked)

    async def owned(self) -> bool:
        return await self._run(self._owned)

    async def wait_lost(self, timeout=None) -> bool:
        """Returns when the lock is lost (True), released, or `timeout` seconds are over (False)."""
        return await self._run(self._wait_lost, timeout)

    async def _run(self, method, *arguments):
        session = await session_of(self.redis)
        return await session.run(method(session, *arguments))

    async def __aenter__(self):
        if await self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified", self.name)

    async def __aexit__(self, *_):
        try:
            await self.release()
        except LockError as error:
            self._forgive(error)


class ReadLock(Lock):
    """Shared with other readers; a `Lock` of the same name is the writer."""

    _command = "LOCK.RLOCK"


async def close(redis, timeout=2.0) -> bool:
    """Leaves all that is waited for or renewed through this client. Whether the server has heard all of it in time."""
    session = vars(redis).pop("_mortise_session", None)
    return session is None or await session.run(session.close(timeout * 1000))


async def session_of(redis):
    if hasattr(redis, "nodes_manager"):
        await redis.initialize()
    session = vars(redis).get("_mortise_session")
    if session is None or session.loop is not asyncio.get_running_loop():
        session = redis._mortise_session = Session(redis)
    return session


class Wire:
    """One connection that all tasks share. A task of its own carries all that has gathered, in one pipeline."""

    def __init__(self, connect):
        self.connect, self.connection, self.jobs, self.carrier = connect, None, [], None

    async def call(self, commands):
        job = SimpleNamespace(commands=commands, done=asyncio.get_running_loop().create_future())
        self.jobs.append(job)
        if self.carrier is None:
            self.carrier = asyncio.create_task(self.carry())
        return await job.done

    async def carry(self):
        try:
            while self.jobs:
                batch, self.jobs = self.jobs, []
                cause, sent = asyncio.CancelledError(), False
                try:
                    if self.connection is None:
                        self.connection = self.connect()
                    await self.connection.connect()
                    sent = True
                    commands = [command for job in batch for command in job.commands]
                    await self.connection.send_packed_command(self.connection.pack_commands(commands), check_health=False)
                    for job in batch:
                        replies = [await self.read() for _ in job.commands]
                        if not job.done.done():
                            job.done.set_result(replies)
                except BaseException as error:
                    cause = error
                    await self.hang_up()
                    if not isinstance(error, Exception):
                        raise
                finally:
                    for job in batch:
                        if not job.done.done():
                            job.done.set_exception(Unanswered(cause, sent))
        finally:
            self.carrier = None
            for job in self.jobs:
                job.done.cancel()

    async def read(self):
        try:
            return await self.connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    async def hang_up(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


class Session(rules.Session):
    """Carries the steps of the rules out, in the task that asks."""

    def __init__(self, redis):
        super().__init__(redis)
        self.loop, self.tasks = asyncio.get_running_loop(), set()

    event, new_wire = staticmethod(asyncio.Event), staticmethod(Wire)

    def spawn(self, steps):
        task = self.loop.create_task(self.run(steps))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def run(self, steps):
        act, value = steps.send, None
        while True:
            try:
                step = act(value)
            except StopIteration as end:
                return end.value
            try:
                act, value = steps.send, await self.do(step)
            except BaseException as error:
                act, value = steps.throw, error

    async def do(self, step):
        if isinstance(step, Wait):
            try:
                return await asyncio.wait_for(step.event.wait(), None if step.ms == math.inf else step.ms / 1000)
            except asyncio.TimeoutError:
                return False
        if isinstance(step, Call):
            return await self.wire(step.node.address, step.mail).call(step.commands)
        if self.may_refresh(step.node):
            try:
                await self.client.nodes_manager.initialize()
            except Exception as error:  # redis-py's own for this is no RedisError
                log.warning("the cluster does not say who serves what: %s", error)

    def connection(self, address, mail):
        source = self.client.connection_pool if address is None else self.client.get_node(*address)
        return own_connection(source.connection_class, source.connection_kwargs, mail)

    def close(self, ms):
        said = yield from super().close(ms)
        for task in list(self.tasks):
            task.cancel()
        for wire in self.wires.values():
            if wire.connection is not None:
                self.spawn_hang_up(wire)
        return said

    def spawn_hang_up(self, wire):
        task = self.loop.create_task(wire.hang_up())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
