"""The worker of the common run (helpers/README.md): python-threads or python-asyncio."""
import asyncio
import itertools
import logging
import os
import sys
import threading
import time

import redis
import redis.asyncio

import mortise_lock
import mortise_lock.asyncio

NAME, PORT, KEY, SECONDS, LEDGER = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
TASKS = 4 * [0] + 2 * [5]  # the lock, or of how many permits the semaphore is
over = threading.Event()
ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sections = []
logging.disable(logging.WARNING)


class Section:
    """What one stay inside writes: only times at which the lock was surely held."""

    def __init__(self, lock, permits):
        self.lock, self.last, self.permits = lock, None, f" {permits}" if permits else ""

    def proven(self):
        at = time.monotonic_ns()
        if self.lock.lost:
            return False
        if self.last is None:
            self.write("enter", at)
            sections.append(at)
        self.last = at
        return True

    def write(self, word, at):
        os.write(ledger, f"{word} {self.lock.fencing_token} {at} {NAME}:{os.getpid()}{self.permits}\n".encode())

    def leave(self):
        if self.last is not None:
            self.write("leave", self.last)


def end_with_input():
    while os.read(0, 1024):
        pass
    over.set()


threading.Thread(target=end_with_input, daemon=True).start()
timer = threading.Timer(SECONDS, over.set)
timer.daemon = True
timer.start()


def rounds(limit):
    """How many permits to take in each round, until it is over; none of the lock."""
    for count in itertools.count():
        if over.is_set():
            return
        yield 1 + count % 3 if limit else 0


def wanted(kinds, client, limit, permits, **options):
    if permits:
        return kinds.Semaphore(client, KEY + ":permits", limit, permits=permits, lease=1.0, blocking_timeout=5, **options)
    return kinds.Lock(client, KEY, lease=1.0, blocking_timeout=5, **options)


def with_threads():
    client = redis.Redis(port=PORT)

    def task(limit):
        for permits in rounds(limit):
            try:
                with wanted(mortise_lock, client, limit, permits) as lock:
                    section = Section(lock, permits)
                    if section.proven():
                        for _ in range(3):
                            time.sleep(0.0007)
                            section.proven()
                    section.leave()
            except redis.RedisError:
                time.sleep(0.02)

    threads = [threading.Thread(target=task, args=(limit,)) for limit in TASKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mortise_lock.close(client, 10)


async def with_tasks():
    client = redis.asyncio.Redis(port=PORT)

    async def task(limit):
        for permits in rounds(limit):
            try:
                async with wanted(mortise_lock.asyncio, client, limit, permits, thread_local=False) as lock:
                    section = Section(lock, permits)
                    if section.proven():
                        for _ in range(3):
                            await asyncio.sleep(0.0007)
                            section.proven()
                    section.leave()
            except redis.RedisError:
                await asyncio.sleep(0.02)

    await asyncio.gather(*(task(limit) for limit in TASKS))
    await mortise_lock.asyncio.close(client, 10)
    await client.aclose()


with_threads() if NAME == "python-threads" else asyncio.run(with_tasks())
print("done", len(sections))
