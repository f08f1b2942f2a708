"""Threads that share one lock and one client; the store refuses who comes too late, by the fencing token."""
from __future__ import annotations

import os
import threading

import redis

from mortise_lock import Lock, close

client = redis.Redis(port=int(os.environ.get("PORT", 6379)))
newest = 0
written: list[int] = []


def write(token: int | None, who: int) -> None:
    global newest
    if token is None or token <= newest:
        raise RuntimeError("somebody newer was here")
    newest = token
    written.append(who)


def work(who: int) -> None:
    with Lock(client, "stock:42", blocking_timeout=30) as lock:
        write(lock.fencing_token, who)


threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("served:", len(written))
close(client)
