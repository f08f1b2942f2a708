"""The Python libraries, one at a time: benches/peers/README.md says what a driver does."""
import asyncio
import json
import os
import sys
import threading
import time

import redis
import redis.asyncio

import mortise_lock
import mortise_lock.asyncio

NAME, PORT, (SECONDS, WORKERS, KEYS, HOLD, THINK, WRITERS) = sys.argv[1], int(sys.argv[2]), map(int, sys.argv[3:9])
THREADS = 100  # more workers than these are tasks
waits, since = [[] for _ in range(WORKERS)], [0] * WORKERS


def lock(client, key, write):
    library = mortise_lock if isinstance(client, redis.Redis) else mortise_lock.asyncio
    if NAME == "mortise":
        return (library.Lock if write else library.ReadLock)(client, key, thread_local=False)
    return client.lock(key, timeout=30, thread_local=False)


def micros(start):
    return (time.perf_counter_ns() - start) // 1000


def begin(worker):
    since[worker] = time.perf_counter_ns()


def entered(worker):
    waits[worker].append(micros(since[worker]))
    since[worker] = 0


def report():
    served = [len(own) for own in waits]
    for worker, start in enumerate(since):
        if start:
            waits[worker].append(micros(start))
    print(json.dumps({"served": served, "waits": waits}), flush=True)
    sys.stdin.readline()
    os._exit(0)


def with_threads():
    client = redis.Redis(port=PORT)

    def work(worker):
        write, number = WRITERS == 0 or worker < WRITERS, worker
        while True:
            own = lock(client, f"key:{number % KEYS}", write)
            begin(worker)
            own.acquire()
            entered(worker)
            if HOLD:
                time.sleep(HOLD / 1000)
            own.release()
            if THINK:
                time.sleep(THINK / 1000)
            number += WORKERS

    for _ in range(200):
        with lock(client, "warm", True):
            pass
    print("ready", flush=True)
    sys.stdin.readline()
    for worker in range(WORKERS):
        threading.Thread(target=work, args=(worker,), daemon=True).start()
    time.sleep(SECONDS)
    report()


async def with_tasks():
    client = redis.asyncio.Redis(port=PORT, max_connections=WORKERS + 10)  # its pool of 100 fails where it is empty

    async def work(worker):
        write, number = WRITERS == 0 or worker < WRITERS, worker
        while True:
            own = lock(client, f"key:{number % KEYS}", write)
            begin(worker)
            await own.acquire()
            entered(worker)
            if HOLD:
                await asyncio.sleep(HOLD / 1000)
            await own.release()
            if THINK:
                await asyncio.sleep(THINK / 1000)
            number += WORKERS

    for _ in range(200):
        async with lock(client, "warm", True):
            pass
    print("ready", flush=True)
    sys.stdin.readline()
    tasks = [asyncio.create_task(work(worker)) for worker in range(WORKERS)]
    await asyncio.sleep(SECONDS)
    report()
    await asyncio.gather(*tasks)


with_threads() if WORKERS <= THREADS else asyncio.run(with_tasks())
