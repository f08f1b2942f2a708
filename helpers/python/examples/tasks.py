"""asyncio: the work is cancelled in the moment in which its lock is lost."""
import asyncio
import os
from typing import Any, Awaitable

import redis.asyncio

from mortise_lock.asyncio import Lock, LockError, close


async def guarded(lock: Lock, work: Awaitable[Any]) -> Any:
    """Runs `work` under the lock."""
    async with lock:
        return await work


async def main() -> None:
    client = redis.asyncio.Redis(port=int(os.environ.get("PORT", 6379)))
    print("done:", await guarded(Lock(client, "report", cancel_on_loss=True), asyncio.sleep(0.1, "all of it")))

    broken = asyncio.ensure_future(guarded(Lock(client, "report", lease=1.0, cancel_on_loss=True), asyncio.sleep(60)))
    await asyncio.sleep(0.2)
    await client.delete("report")  # an operator breaks the lock
    try:
        await broken
    except LockError as error:
        print("stopped:", type(error).__name__)
    await close(client)
    await client.aclose()


asyncio.run(main())
