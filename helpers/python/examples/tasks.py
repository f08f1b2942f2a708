"""asyncio: the work is cancelled in the moment in which its lock is lost."""
import asyncio
import os
from typing import Any, Awaitable

import redis.asyncio

from mortise_lock.asyncio import Lock, LockError, close


async def guarded(lock: Lock, work: Awaitable[Any]) -> Any:
    """Runs `work` under the lock, and cancels it when the lock is lost."""
    async with lock:
        task, lost = asyncio.ensure_future(work), asyncio.ensure_future(lock.wait_lost())
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not task.done():
            task.cancel()
        return await task


async def main() -> None:
    client = redis.asyncio.Redis(port=int(os.environ.get("PORT", 6379)))
    print("done:", await guarded(Lock(client, "report", lease=1.0), asyncio.sleep(0.1, "all of it")))

    broken = asyncio.ensure_future(guarded(Lock(client, "report", lease=1.0), asyncio.sleep(60)))
    await asyncio.sleep(0.2)
    await client.delete("report")  # an operator breaks the lock
    try:
        await broken
    except (asyncio.CancelledError, LockError) as error:
        print("stopped:", type(error).__name__)
    await close(client)
    await client.aclose()


asyncio.run(main())
