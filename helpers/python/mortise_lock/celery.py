"""Celery: a task that runs once at a time for each key, however often it is delivered."""
import contextlib
import functools
import inspect
import string

from celery import current_task
from celery.exceptions import Ignore

from . import BusyError, Lock, UnconfirmedError

__all__ = ["once"]


def once(redis, key, *, wait=0, again=5, lease=30.0, replicas=0):
    """Runs the task's function only under a lock. Goes below `@app.task`.

    redis: the client for the locks, or a function without arguments that returns it.
    key: what is locked, with the task's arguments by name: `"report:{day}"`. An argument that it names needs a text of its own: its
        class has `__str__`, `__repr__` or `__format__`.
    wait: for how many seconds a worker waits for the lock.
    again: after so many seconds a task whose lock another one holds is sent again. That is no retry of the task: it counts neither
        as a failure nor against its `max_retries`. Where nobody could run it again (an eager task, a plain call), BusyError is raised.
    lease: after so many seconds the lock of a worker that died is free. It is renewed while the task runs.
    replicas: how many replicas must have the lock, as for `Lock`.
    """
    names = {name.partition(".")[0].partition("[")[0] for _, name, _, _ in string.Formatter().parse(key) if name is not None}

    def decorate(function):
        signature = inspect.signature(function)
        if unknown := names - set(signature.parameters):
            raise ValueError(f"key {key!r} names {', '.join(sorted(unknown)) or 'an argument by its place'}, which {function.__name__} does not have")

        @functools.wraps(function)
        def run(*arguments, **options):
            bound = signature.bind(*arguments, **options)
            bound.apply_defaults()
            for name in names:
                check(name, bound.arguments[name])
            lock = Lock(redis() if callable(redis) else redis, f"celery:{key.format(**bound.arguments)}", lease=lease,
                        blocking=wait > 0, blocking_timeout=wait, replicas=replicas)
            with contextlib.ExitStack() as block:
                try:
                    block.enter_context(lock)
                except (BusyError, UnconfirmedError):
                    send_again(again)
                    raise
                return function(*arguments, **options)

        return run

    return decorate


def check(name, value):
    """Refuses what is shown by its address: each worker would lock something else."""
    kind = type(value)
    if (kind.__str__, kind.__repr__, kind.__format__) == (object.__str__, object.__repr__, object.__format__):
        raise TypeError(f"key names {name}, and a {kind.__name__} has no text of its own")


def send_again(seconds):
    """Sends the task that runs here again, as it came, and ends this run of it. Returns if it was not delivered to a worker."""
    if not current_task or current_task.request.called_directly or current_task.request.is_eager:
        return
    request = current_task.request
    current_task.signature_from_request(request, retries=request.retries, countdown=seconds).apply_async()
    raise Ignore("another one holds its lock")
