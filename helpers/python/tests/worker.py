"""The worker of the common run (helpers/README.md): python-threads or python-asyncio."""
import asyncio
import contextlib
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
LIMIT = 5  # the permits of the semaphore
over = threading.Event()
ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
sections = []
logging.disable(logging.WARNING)


class Section:
    """The lines that one stay inside writes: only times at which the lock was certainly held."""

    def __init__(self, lock, share):
        self.lock, self.last, self.share = lock, None, f" {share}" if share else ""

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
        os.write(ledger, f"{word} {self.lock.fencing_token} {at} {NAME}:{os.getpid()}{self.share}\n".encode())

    def write_guarded(self):
        """Appends to a list under LOCK.GUARD."""
        return self.lock.guard("RPUSH", "list:{" + KEY + "}", f"write:{self.lock.fencing_token}:{NAME}")

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


def alone(_):
    return ""


def reading(_):
    return "read"


def permits(number):
    return str(1 + number % 3)


def several(number):
    return f"{number % 3},{(number + 1) % 3}"


TASKS = 4 * [alone] + 2 * [reading] + 2 * [permits] + 2 * [several]


def rounds(task):
    """What to acquire in each round, until the end: nothing for the lock, `read`, a number of permits, or the numbers of several keys."""
    for number in itertools.count():
        if over.is_set():
            return
        yield task(number)


def wanted(kinds, client, share, **options):
    options |= {"lease": 1.0, "blocking_timeout": 5, "replicas": int(os.environ.get("REPLICAS", "0"))}
    if "," in share:
        return kinds.MultiLock(client, [f"{KEY}:{number}" if number != "0" else KEY for number in share.split(",")], **options)
    if share == "read":
        return kinds.ReadLock(client, KEY, **options)
    if share:
        return kinds.Semaphore(client, KEY + ":permits", LIMIT, permits=int(share), **options)
    return kinds.Lock(client, KEY, **options)


def heir_of(lock):
    """The name to which the lock is passed on, and from which it is taken over then."""
    return f"{NAME}:{os.getpid()}:{lock.fencing_token}"


def with_threads():
    client = redis.Redis(port=PORT)

    def stay(lock, share):
        section = Section(lock, share)
        if section.proven():
            if not share:
                with contextlib.suppress(redis.RedisError):  # the lock may be lost, or the reply
                    section.write_guarded()
            for _ in range(3):
                time.sleep(0.0007)
                section.proven()
        section.leave()

    def run(task):
        for share in rounds(task):
            try:
                with wanted(mortise_lock, client, share) as lock:
                    stay(lock, share)
                    if not share and lock.fencing_token % 4 == 0:
                        heir = heir_of(lock)
                        if lock.take_over(heir, lock.pass_to(heir, 1)):
                            stay(lock, share)
            except redis.RedisError:
                time.sleep(0.02)

    threads = [threading.Thread(target=run, args=(task,)) for task in TASKS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mortise_lock.close(client, 10)


async def with_tasks():
    client = redis.asyncio.Redis(port=PORT)

    async def stay(lock, share):
        section = Section(lock, share)
        if section.proven():
            if not share:
                with contextlib.suppress(redis.RedisError):
                    await section.write_guarded()
            for _ in range(3):
                await asyncio.sleep(0.0007)
                section.proven()
        section.leave()

    async def run(task):
        for share in rounds(task):
            try:
                async with wanted(mortise_lock.asyncio, client, share, thread_local=False) as lock:
                    await stay(lock, share)
                    if not share and lock.fencing_token % 4 == 0:
                        heir = heir_of(lock)
                        if await lock.take_over(heir, await lock.pass_to(heir, 1)):
                            await stay(lock, share)
            except redis.RedisError:
                await asyncio.sleep(0.02)

    await asyncio.gather(*(run(task) for task in TASKS))
    await mortise_lock.asyncio.close(client, 10)
    await client.aclose()


with_threads() if NAME == "python-threads" else asyncio.run(with_tasks())
print("done", len(sections))
