"""Django's cache, Celery's tasks, and the workers of FastAPI and gunicorn, with the real frameworks."""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
import redis
from servers import ROOT, eventually

import mortise_lock

README = (ROOT / "helpers/python/README.md").read_text()


def section(name):
    """What the README says about that framework."""
    return re.search(rf"^### {name}.*?(?=^##)", README, re.DOTALL | re.MULTILINE | re.IGNORECASE)[0]


def blocks(name):
    return re.findall(r"```python\n(.*?)```", section(name), re.DOTALL)


@pytest.fixture
def cache(server):
    pytest.importorskip("django")
    from mortise_lock.django import RedisCache

    return RedisCache(f"redis://127.0.0.1:{server.port}", {"KEY_PREFIX": "shop"})


def test_a_lock_of_djangos_cache_does_not_clash_with_a_cached_value(cache, server):
    with cache.lock("report", blocking_timeout=5) as lock:
        assert server.admin.type("shop:1:lock:report") == "mort-lock"
        cache.set("report", "cached")
        assert lock.owned() and not cache.lock("report").acquire(blocking=False)
    assert cache.get("report") == "cached"
    with cache.lock("report", timeout=10, version=2):
        assert server.admin.exists("shop:2:lock:report")


def test_a_lock_of_djangos_cache_takes_its_arguments_in_the_order_of_django_redis(cache, server):
    with cache.lock("report", 2, 60, 0.1, 5):  # key, version, timeout, sleep, blocking_timeout
        assert 50_000 < server.admin.execute_command("LOCK.INFO", "shop:2:lock:report")["holds"][0]["lease"] <= 60_000


def test_locks_of_djangos_cache_share_their_connections(cache, server):
    before = len(server.admin.client_list())
    for number in range(20):
        with cache.lock(f"report:{number}"):
            pass
    assert len(server.admin.client_list()) <= before + 2


class Ledger:
    """How many are inside, and the most that ever were at once."""

    def __init__(self):
        self.mutex, self.inside, self.most, self.runs, self.retries = threading.Lock(), 0, 0, 0, []

    def stay(self, seconds):
        with self.mutex:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(seconds)
        with self.mutex:
            self.inside -= 1
            self.runs += 1


@pytest.fixture
def worker(server):
    """An app whose worker runs tasks in four threads, and a ledger for them."""
    celery = pytest.importorskip("celery")
    from celery.contrib.testing.worker import start_worker
    from celery.signals import setup_logging

    from mortise_lock.celery import once

    url, ledger, locks = f"redis://127.0.0.1:{server.port}/0", Ledger(), redis.Redis(port=server.port)
    app = celery.Celery("shop", broker=url, set_as_current=False)
    app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)

    @app.task(name="report", shared=False)
    @once(locks, key="report:{day}", again=0.2, lease=3.0)
    def report(day, seconds=0.1):
        ledger.stay(seconds)

    @app.task(name="bound", shared=False, bind=True)
    @once(locks, "bound:{day}", again=0.2)
    def bound(self, day, seconds):
        ledger.stay(seconds)

    @app.task(name="fails", shared=False, bind=True, max_retries=2, default_retry_delay=0)
    @once(locks, "fails", again=0.05)
    def fails(self):
        ledger.stay(0)
        ledger.retries.append(self.request.retries)
        raise self.retry(exc=KeyError("mine"), countdown=0)

    def leave_logging_alone(**_):
        """A receiver of this signal keeps Celery from setting the level of the root logger, which other tests read."""

    setup_logging.connect(leave_logging_alone)
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False):
        yield app, ledger
    setup_logging.disconnect(leave_logging_alone)


def test_a_task_delivered_twice_runs_once_at_a_time_even_beyond_its_lease(worker, server):
    app, ledger = worker
    for _ in range(2):
        app.tasks["report"].apply_async(("monday", 4), task_id="the same")
    eventually(lambda: ledger.runs == 2)
    assert ledger.most == 1
    eventually(lambda: server.info("holders") == 0)


def test_tasks_with_different_keys_run_at_the_same_time(worker):
    app, ledger = worker
    for day in ("monday", "tuesday"):
        app.tasks["report"].delay(day, 1.5)
    eventually(lambda: ledger.runs == 2)
    assert ledger.most == 2


def test_a_bound_task_runs_once_at_a_time_too(worker, server):
    app, ledger = worker
    for _ in range(2):
        app.tasks["bound"].delay("monday", 0.5)
    eventually(lambda: ledger.runs == 2)
    assert ledger.most == 1
    eventually(lambda: server.info("holders") == 0)


def test_a_failed_task_releases_its_lock_and_is_retried_as_often_as_it_says(worker, server):
    app, ledger = worker
    app.tasks["fails"].delay()
    eventually(lambda: ledger.runs == 3 and server.info("holders") == 0)
    assert ledger.retries == [0, 1, 2]


def test_waiting_for_a_lock_counts_against_no_limit_of_retries(worker, server):
    app, ledger = worker
    holder = mortise_lock.Lock(redis.Redis(port=server.port), "celery:fails")
    assert holder.acquire()
    asked = server.commands("acquire")
    app.tasks["fails"].delay()
    eventually(lambda: server.commands("acquire") > asked + 5)  # more often than max_retries
    assert ledger.runs == 0
    holder.release()
    eventually(lambda: ledger.runs == 3)
    assert ledger.retries == [0, 1, 2]
    eventually(lambda: server.info("holders") == 0)


@pytest.mark.parametrize("run", ["apply", "delay", "__call__"])
def test_a_task_that_no_worker_runs_reports_that_its_lock_is_taken(server, run):
    celery = pytest.importorskip("celery")
    from mortise_lock.celery import once

    locks, app = redis.Redis(port=server.port), celery.Celery("eager", set_as_current=False)
    app.conf.update(task_always_eager=True, task_eager_propagates=True)

    @app.task(name="eager", shared=False)
    @once(locks, "eager:{day}", again=0)
    def eager(day):
        return day

    arguments = {"apply": (("monday",),), "delay": ("monday",), "__call__": ("monday",)}[run]
    with mortise_lock.Lock(locks, "celery:eager:monday", thread_local=False):
        with pytest.raises(mortise_lock.BusyError):
            getattr(eager, run)(*arguments)
    assert server.info("holders") == 0 and getattr(eager, run)(*arguments)
    mortise_lock.close(locks)


def test_a_key_that_names_no_argument_or_an_address_is_refused(server):
    pytest.importorskip("celery")
    from mortise_lock.celery import once

    class Order:
        pass

    locks = redis.Redis(port=server.port)
    for wrong in ("report:{month}", "report:{}", "report:{0}"):
        with pytest.raises(ValueError, match="key"):
            once(locks, wrong)(lambda day: day)
    with pytest.raises(TypeError, match="Order has no text"):
        once(locks, "order:{order}")(lambda order: order)(Order())


@pytest.mark.parametrize("framework", ["django", "celery"])
def test_what_the_readme_shows_of_a_framework_runs(framework, server):
    pytest.importorskip(framework)
    block, = blocks(framework)
    exec(compile(block.replace("6379", str(server.port)), framework, "exec"), {"__name__": "guide"})
    assert server.info("holders") == 0


@contextlib.contextmanager
def serving(framework, command, server, folder):
    """Starts the app of a framework as the README says. Yields its address, and the process that has the workers."""
    for module in command[0], framework:
        pytest.importorskip(module)
    assert f"`{' '.join(command)}`" in section(framework)
    block, = blocks(framework)
    (folder / "app.py").write_text(block.replace("6379", str(server.port)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        place = [f"--bind=fd://{listener.fileno()}"] if framework == "gunicorn" else [f"--fd={listener.fileno()}"]
        process = subprocess.Popen([sys.executable, "-m", *command, *place], cwd=folder, pass_fds=[listener.fileno()],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        yield address, process
    finally:
        process.terminate()
        process.wait(60)


def sell(request):
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read()


def test_requests_to_workers_of_fastapi_exclude_each_other(server, tmp_path):
    with serving("fastapi", ["uvicorn", "app:app", "--workers", "4"], server, tmp_path) as (address, _):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(sell, [urllib.request.Request(f"{address}/sell/42", method="POST") for _ in range(40)]))
    assert server.admin.get("sold:42") == "40"
    assert server.info("holders") == server.info("waiters") == 0


def test_requests_to_workers_of_gunicorn_exclude_each_other_even_when_one_is_killed(server, tmp_path):
    with serving("gunicorn", ["gunicorn", "--preload", "--workers", "4", "app:app"], server, tmp_path) as (address, process):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(sell, [address] * 40))
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            if children.exists():  # on Linux
                killed = children.read_text().split()[0]
                os.kill(int(killed), signal.SIGKILL)
                eventually(lambda: killed not in children.read_text().split())
            list(pool.map(sell, [address] * 40))
    assert server.admin.get("sold:42") == "80"
    assert server.info("holders") == server.info("waiters") == 0
