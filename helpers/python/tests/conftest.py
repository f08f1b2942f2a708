import pytest
import redis
import redis.asyncio
from servers import Cluster, Relay, Server

import mortise_lock
import mortise_lock.asyncio


@pytest.fixture(scope="session")
def shared_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(shared_server):
    shared_server.admin.flushall()
    yield shared_server
    shared_server.admin.flushall()


@pytest.fixture
def own_server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def cluster():
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def relay(server):
    relay = Relay(server.port)
    yield relay
    relay.close()


@pytest.fixture
def r(server):
    client = redis.Redis(port=server.port)
    yield client
    mortise_lock.close(client)
    client.close()


@pytest.fixture
async def ar(server):
    client = redis.asyncio.Redis(port=server.port)
    yield client
    await mortise_lock.asyncio.close(client)
    await client.aclose()
