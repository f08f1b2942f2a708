"""The worker of the conformance run (helpers/README.md): python-threads or python-asyncio."""
import asyncio
import inspect
import logging
import os
import sys
import threading

import redis
import redis.asyncio

import mortise_lock
import mortise_lock.asyncio
from mortise_lock import BusyError, LockNotOwnedError

NAME, PORT = sys.argv[1], int(sys.argv[2])
PASSWORD = sys.argv[3] if len(sys.argv) > 3 else None
THREADS = NAME == "python-threads"
LOCKS = mortise_lock if THREADS else mortise_lock.asyncio
CLIENT = (redis if THREADS else redis.asyncio).Redis(port=PORT, password=PASSWORD)
ROUNDS, POOL = 5, 3  # rounds of each task, and permits, of one object that tasks share
logging.disable(logging.CRITICAL)
acquired, blocks = {}, {}


class BodyError(Exception):
    pass


def answer(handle, *words):
    print(handle, *words, flush=True)


async def settled(value):
    """What the locks for threads return at once, and those for tasks have to be awaited for."""
    return await value if inspect.isawaitable(value) else value


def kind_of(error):
    if isinstance(error, BusyError):
        return "busy"
    if isinstance(error, LockNotOwnedError):
        return "lost"
    return "refused" if isinstance(error, mortise_lock.LockError) else "unreachable"


def made(keys, **options):
    names = keys.split(",")
    kind = LOCKS.MultiLock if len(names) > 1 else LOCKS.Lock
    return kind(CLIENT, names if len(names) > 1 else names[0], thread_local=False, replicas=int(os.environ["REPLICAS"]), **options)


async def acquire(handle, keys, lease, wait, fixed=False):
    seconds = int(lease) / 1000
    lock = acquired[handle] = made(keys, **({"timeout": seconds} if fixed else {"lease": seconds}))
    limit = None if wait == "ever" else int(wait) / 1000
    granted = await settled(lock.acquire(blocking=limit != 0, blocking_timeout=limit))
    answer(handle, "granted" if granted else "busy")


async def fixed(handle, keys, lease, wait):
    await acquire(handle, keys, lease, wait, fixed=True)


async def extend(handle, lease):
    await settled(acquired[handle].extend(int(lease) / 1000, replace_ttl=True))
    answer(handle, "extended")


async def held(handle):
    answer(handle, "lost" if acquired[handle].lost else "held")


async def release(handle):
    try:
        await settled(acquired[handle].release())
    except LockNotOwnedError:
        raise
    except mortise_lock.LockError:
        return answer(handle, "not held")
    answer(handle, "released")


async def block(handle, key, lease):
    lock, blocks[handle] = made(key, lease=int(lease) / 1000), (threading if THREADS else asyncio).Event()
    blocks[handle].fails = False

    async def body():
        answer(handle, "inside")
        await settled(blocks[handle].wait())
        if blocks[handle].fails:
            raise BodyError("body")

    try:
        if THREADS:
            with lock:
                await body()
        else:
            async with lock:
                await body()
    except BodyError as error:
        return answer(handle, "caught body", *(["with lost"] if isinstance(error.__context__, LockNotOwnedError) else []))
    answer(handle, "left")


async def fail(handle):
    blocks[handle].fails = True
    blocks[handle].set()


async def leave(handle):
    blocks[handle].set()


async def share(handle, kind, key, tasks):
    kinds = {"lock": lambda: LOCKS.Lock(CLIENT, key), "read": lambda: LOCKS.ReadLock(CLIENT, key),
             "permits": lambda: LOCKS.Semaphore(CLIENT, key, POOL)}
    shared, inside, most, entered, mutex = kinds[kind](), 0, 0, 0, threading.Lock()

    async def stay():
        nonlocal inside, most, entered
        with mutex:
            inside, entered = inside + 1, entered + 1
            most = max(most, inside)
        await asyncio.sleep(0.001)
        with mutex:
            inside -= 1

    async def work():
        for _ in range(ROUNDS):
            if THREADS:
                with shared:
                    await stay()
            else:
                async with shared:
                    await stay()

    if THREADS:
        threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(int(tasks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        await asyncio.gather(*(work() for _ in range(int(tasks))))
    answer(handle, "done", entered, most)


async def leaves(handle):
    answer(handle, "leaves", "nothing" if THREADS else "the hold")  # with the loop its tasks have ended


async def carry_out(verb, handle, words):
    try:
        await {"exit": leaves}.get(verb, globals().get(verb))(handle, *words)
    except LockNotOwnedError:
        answer(handle, "caught lost" if verb == "block" else "lost")
    except redis.RedisError as error:
        answer(handle, kind_of(error), " ".join(str(error).split()))


def lines():
    for line in sys.stdin:
        verb, handle, *words = line.split()
        yield verb, handle, words


async def with_tasks():
    loop, ended, running, verbs = asyncio.get_running_loop(), asyncio.Event(), set(), set()

    def start(verb, handle, words):
        task = asyncio.create_task(carry_out(verb, handle, words))
        running.add(task)
        verbs.add(verb)
        task.add_done_callback(running.discard)
        if verb == "exit":
            task.add_done_callback(lambda _: ended.set())

    def read():
        for one in lines():
            loop.call_soon_threadsafe(start, *one)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, daemon=True).start()
    await ended.wait()
    if "exit" not in verbs:
        await LOCKS.close(CLIENT)


if THREADS:
    for verb, handle, words in lines():
        thread = threading.Thread(target=asyncio.run, args=(carry_out(verb, handle, words),), daemon=True)
        thread.start()
        if verb == "exit":
            thread.join()
            break
else:
    asyncio.run(with_tasks())
