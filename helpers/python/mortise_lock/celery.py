"""Celery: a task that runs once at a time for each key, however often it is delivered."""
import functools
import inspect
import sys

from celery import current_task

from . import Lock

__all__ = ["once"]


def once(redis, key=None, *, wait=0, again=5, lease=30.0):
    """Runs the task's function only under a lock. Goes below `@app.task`.

    redis: the client for the locks, or a function without arguments that returns it.
    key: what is locked, with the task's arguments by name: `"report:{day}"`. None: the task's name and all its arguments.
    wait: for how many seconds a worker waits for the lock.
    again: after so many seconds a task whose lock another one holds is tried again.
    lease: after so many seconds the lock of a worker that died is free. It is renewed while the task runs.
    """

    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run(*arguments, **options):
            bound = signature.bind(*arguments, **options)
            bound.apply_defaults()
            name = key.format(**bound.arguments) if key else f"{function.__module__}.{function.__name__}:{sorted(bound.arguments.items())!r}"
            lock = Lock(redis() if callable(redis) else redis, f"celery:{name}", lease=lease, thread_local=False)
            if not lock.acquire(blocking=wait > 0, blocking_timeout=wait):
                raise current_task.retry(countdown=again, max_retries=sys.maxsize)  # None would be the task's own limit
            try:
                return function(*arguments, **options)
            finally:
                lock.release()

        return run

    return decorate

