"""Checked, not run: the results of the public items, and what is refused. An expected error that is missing is an error, too."""
import asyncio
from typing import List, Optional

import redis
import redis.asyncio

import mortise_lock
import mortise_lock.asyncio
from mortise_lock import DeadlockError, Lock, LockError, LockNotOwnedError, ReadLock, RefusedError


def threads() -> Optional[int]:
    client, cluster = redis.Redis(port=1), redis.RedisCluster("localhost", 1)
    locks: List[Lock] = [Lock(client, "stock"), ReadLock(cluster, b"stock", 10, None, False, 0.5, lease=3, max_hold=1.5)]
    Lock(client, "stock", timeout="10")  # type: ignore[arg-type]
    Lock(client, ["stock"])  # type: ignore[arg-type]
    Lock("localhost", "stock")  # type: ignore[arg-type]
    Lock(redis.asyncio.Redis(), "stock")  # type: ignore[arg-type]
    taken: bool = locks[0].acquire(blocking_timeout=1.5, token="task")
    locks[0].acquire(blocking_timeout="1")  # type: ignore[arg-type]
    with locks[1] as reader, client.lock("stock", lock_class=Lock):
        more: bool = reader.extend(1, replace_ttl=True) or reader.reacquire() or reader.locked() or reader.owned()
        lost: bool = reader.lost or reader.wait_lost(1)
        token: Optional[int] = reader.fencing_token
    errors: List[LockError] = [DeadlockError(), LockNotOwnedError(), RefusedError()]
    closed: bool = mortise_lock.close(client, 1.5) and mortise_lock.close(client.connection_pool)
    print(taken, more, lost, errors, closed)
    return token


async def tasks() -> bool:
    client = redis.asyncio.Redis(port=1)
    lock = mortise_lock.asyncio.ReadLock(client, "stock", timeout=1.5)
    mortise_lock.asyncio.Lock(redis.Redis(), "stock")  # type: ignore[arg-type]
    if await lock.acquire(blocking=False):
        await lock.release()
    async with mortise_lock.asyncio.Lock(client, "stock") as held:
        token: Optional[int] = held.fencing_token
        lost: bool = held.lost or await asyncio.wait_for(held.wait_lost(), 1)
    print(token, lost)
    return await mortise_lock.asyncio.close(client, 1.5)
