"""Threads that share one lock and one client; the store refuses who comes too late, by the fencing token."""
import os
import threading

import redis

from mortise_lock import Lock, close

client = redis.Redis(port=int(os.environ.get("PORT", 6379)))
written = {"token": 0, "by": []}


def write(token, who):
    if token <= written["token"]:
        raise RuntimeError("somebody newer was here")
    written["token"] = token
    written["by"].append(who)


def work(who):
    with Lock(client, "stock:42", blocking_timeout=30) as lock:
        write(lock.fencing_token, who)


threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("served:", len(written["by"]))
close(client)
