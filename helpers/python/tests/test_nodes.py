"""Redis Cluster and Sentinel, through redis-py's own clients for them."""
import asyncio

import pytest
import redis
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.sentinel
from servers import Cluster, Server, eventually
from test_lock import in_thread

import mortise_lock.asyncio
from mortise_lock import Lock, close


@pytest.fixture
def client(cluster):
    client = redis.RedisCluster("127.0.0.1", cluster.servers[0].port)
    yield client
    close(client)


def keys_of_all_nodes(client):
    keys = {}
    for number in range(200):
        keys.setdefault(client.get_node_from_key(f"stock:{number}").port, f"stock:{number}")
    assert len(keys) == 3
    return list(keys.values())


def waiters(cluster):
    return sum(server.info("waiters") for server in cluster.servers)


def boxes(cluster):
    return [server.info("boxes") for server in cluster.servers]


def test_threads_wait_on_every_node_of_a_cluster(client, cluster):
    keys = keys_of_all_nodes(client)
    held = [Lock(client, key, thread_local=False) for key in keys]
    for lock in held:
        assert lock.acquire()
    for key in keys * 3:
        in_thread(lambda key=key: Lock(client, key).acquire(blocking_timeout=60))
    eventually(lambda: waiters(cluster) == 9)
    for lock in held:
        lock.release()
    eventually(lambda: waiters(cluster) == 6)


def move(cluster, slot, source, target):
    ids = {server: server.admin.execute_command("CLUSTER MYID") for server in (source, target)}
    target.admin.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.admin.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])

    def finish():
        while keys := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.admin.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for server in (target, source, *cluster.servers):
            server.admin.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    return finish


@pytest.fixture
def moved(client, cluster):
    """A key, the server that has it, and another one."""
    client.nodes_manager.initialize()
    key = keys_of_all_nodes(client)[0]
    port = client.get_node_from_key(key).port
    source = next(server for server in cluster.servers if server.port == port)
    target = next(server for server in cluster.servers if server.port != port)
    return key, client.keyslot(key), source, target


def test_a_held_lock_and_its_waiters_follow_their_slot(client, cluster, moved):
    key, slot, source, target = moved
    holder = Lock(client, key, lease=6.0, thread_local=False)
    holder.acquire()
    waiting = in_thread(lambda: Lock(client, key).acquire(blocking_timeout=60))
    eventually(lambda: source.info("waiters") == 1)
    move(cluster, slot, source, target)()
    eventually(lambda: target.info("waiters") == 1)
    before = target.info("total_renewals")
    eventually(lambda: target.info("total_renewals") > before)
    assert not holder.lost and holder.owned()
    holder.release()
    assert waiting.result() is True


def test_a_lock_can_be_acquired_and_released_while_its_slot_moves(client, cluster, moved):
    key, slot, source, target = moved
    finish = move(cluster, slot, source, target)
    with Lock(client, key, thread_local=False) as lock:
        assert lock.owned() and target.admin.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
        waiting = in_thread(lambda: Lock(client, key).acquire(blocking_timeout=60))
        eventually(lambda: target.info("waiters") == 1)
    assert waiting.result() is True
    finish()


def test_commands_are_guarded_on_every_node_of_a_cluster(client):
    for key in keys_of_all_nodes(client):
        with Lock(client, f"{{{key}}}") as lock:
            assert lock.guard("INCR", f"{{{key}}}:count") == 1
            client.delete(f"{{{key}}}:count")


async def test_tasks_guard_commands_on_every_node_of_a_cluster(client, cluster):
    tasks_client = redis.asyncio.cluster.RedisCluster("127.0.0.1", cluster.servers[0].port)
    for key in keys_of_all_nodes(client):
        async with mortise_lock.asyncio.Lock(tasks_client, f"{{{key}}}") as lock:
            assert await lock.guard("INCR", f"{{{key}}}:count") == 1
            await tasks_client.delete(f"{{{key}}}:count")
    await mortise_lock.asyncio.close(tasks_client)
    await tasks_client.aclose()


def test_a_moving_slot_is_found_where_servers_do_not_give_their_host(client, cluster, moved):
    key, slot, source, target = moved
    finish = move(cluster, slot, source, target)
    source.admin.config_set("cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        with Lock(client, key, thread_local=False) as lock:
            assert lock.owned() and target.admin.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 1
    finally:
        source.admin.config_set("cluster-preferred-endpoint-type", "ip")
    finish()


def test_a_lock_is_renewed_while_its_slot_moves(client, cluster, moved):
    key, slot, source, target = moved
    finish, lock, before = move(cluster, slot, source, target), Lock(client, key, lease=3.0), target.info("total_renewals")
    lock.acquire()
    eventually(lambda: target.info("total_renewals") > before + 4)  # for longer than its lease
    assert not lock.lost and lock.owned()
    lock.release()
    assert target.admin.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0
    finish()


async def test_tasks_acquire_renew_and_wait_for_a_lock_whose_slot_moves(client, cluster, moved):
    key, slot, source, target = moved
    finish, before = move(cluster, slot, source, target), target.info("total_renewals")
    tasks_client = redis.asyncio.cluster.RedisCluster("127.0.0.1", source.port)
    lock, other = (mortise_lock.asyncio.Lock(tasks_client, key, lease=3.0, thread_local=False) for _ in range(2))
    await lock.acquire()
    waiting = asyncio.create_task(other.acquire(blocking_timeout=60))
    while target.info("waiters") < 1 or target.info("total_renewals") <= before + 4:
        await asyncio.sleep(0.01)
    assert not lock.lost and await lock.owned()
    await lock.release()
    assert await waiting
    await other.release()
    finish()
    assert await mortise_lock.asyncio.close(tasks_client, 30)
    await tasks_client.aclose()


def test_a_release_while_no_node_serves_the_slot_is_sent_when_one_does(cluster, moved):
    key, slot, source, _ = moved
    client = redis.RedisCluster("127.0.0.1", source.port, require_full_coverage=False)
    lock = Lock(client, key, lease=600)
    lock.acquire()
    for server in cluster.servers:
        server.admin.execute_command("CLUSTER", "DELSLOTS", slot)
    client.nodes_manager.initialize()
    lock.release()
    source.admin.execute_command("CLUSTER", "ADDSLOTS", slot)
    eventually(lambda: all(cluster.agrees(server) for server in cluster.servers))
    eventually(lambda: source.admin.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot) == 0)
    assert close(client, 60)


async def test_tasks_wait_on_every_node_of_a_cluster_with_one_box_for_each(cluster, client):
    keys = keys_of_all_nodes(client)
    tasks_client = redis.asyncio.cluster.RedisCluster("127.0.0.1", cluster.servers[0].port)
    locks = [mortise_lock.asyncio.Lock(tasks_client, "{" + key + "}:async", thread_local=False) for key in keys]
    for lock in locks:
        assert await lock.acquire()
    again = [mortise_lock.asyncio.Lock(tasks_client, lock.name, thread_local=False) for lock in locks]
    waiting = [asyncio.create_task(lock.acquire(blocking_timeout=60)) for lock in again]
    behind = [asyncio.create_task(mortise_lock.asyncio.Lock(tasks_client, lock.name).acquire()) for lock in locks * 2]
    while waiters(cluster) < 9:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(eventually, lambda: boxes(cluster) == [1, 1, 1])
    for lock in locks:
        await lock.release()
    assert await asyncio.gather(*waiting) == [True] * 3
    for task in behind:
        task.cancel()
    assert await mortise_lock.asyncio.close(tasks_client, 30)
    await tasks_client.aclose()


async def test_tasks_release_a_lock_while_the_cluster_answers_nobody():
    cluster = Cluster(nodes=1)
    server, = cluster.servers
    client = redis.asyncio.cluster.RedisCluster("127.0.0.1", server.port, socket_timeout=0.5, socket_connect_timeout=0.5)
    lock = mortise_lock.asyncio.Lock(client, "stock", lease=600)
    with pytest.raises(ValueError, match="the body's"):
        async with lock:
            server.freeze()
            with pytest.raises((redis.RedisError, redis.exceptions.RedisClusterException)):
                await client.get("page")  # after that the client asks for the nodes before its next command
            raise ValueError("the body's")
    server.thaw()
    await asyncio.to_thread(eventually, lambda: server.admin.exists("stock") == 0)
    assert await mortise_lock.asyncio.close(client, 30)
    await client.aclose()
    cluster.close()


async def test_the_box_of_a_node_that_serves_no_slot_takes_no_search(cluster, monkeypatch):
    def count(session, key):
        searched.append(key)
        return address(session, key)

    client = redis.asyncio.cluster.RedisCluster("127.0.0.1", cluster.servers[0].port)
    assert not await mortise_lock.asyncio.Lock(client, "stock").locked()
    session, searched, address = client._mortise_sessions[0], [], mortise_lock._rules.Session.address
    monkeypatch.setattr(mortise_lock._rules.Session, "address", count)
    session.node(b"stock", at=("127.0.0.1", 1))  # as of a new node that the first slot moves to
    assert len(searched) < 100
    assert await mortise_lock.asyncio.close(client, 30)
    await client.aclose()


def test_a_lock_and_its_waiters_follow_to_the_replica_that_the_cluster_promotes():
    cluster = Cluster()
    primary = cluster.servers[1]
    replica, client = cluster.replica_of(primary), redis.RedisCluster("127.0.0.1", cluster.servers[0].port)
    key = next(key for key in keys_of_all_nodes(client) if client.get_node_from_key(key).port == primary.port)
    lock = Lock(client, key, lease=60, thread_local=False)
    lock.acquire()
    waiting = in_thread(lambda: Lock(client, key).acquire(blocking_timeout=60))
    eventually(lambda: primary.info("waiters") == 1)
    replica.await_all_of(primary)
    primary.kill()
    eventually(lambda: replica.info("waiters") == 1)
    assert not lock.lost
    lock.release()
    assert waiting.result() is True
    assert close(client, 30)
    cluster.close()


@pytest.fixture
def watched():
    """A primary, a replica of it, and a Sentinel that watches them."""
    primary = Server()
    replica = Server("--replicaof", f"127.0.0.1 {primary.port}")
    eventually(lambda: replica.admin.info("replication")["master_link_status"] == "up")
    sentinel = Server(sentinel=f"sentinel monitor locks 127.0.0.1 {primary.port} 1\n"
                               "sentinel down-after-milliseconds locks 1500\nsentinel failover-timeout locks 5000\n")
    eventually(lambda: sentinel.admin.execute_command("SENTINEL REPLICAS", "locks"))
    yield primary, replica, sentinel
    for server in (primary, replica, sentinel):
        server.close()


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_waiter_is_granted_by_the_server_that_sentinel_promotes(watched, how):
    primary, replica, sentinel = watched
    master = redis.sentinel.Sentinel([("127.0.0.1", sentinel.port)]).master_for("locks")
    other = redis.Redis(port=primary.port)
    held = Lock(other, "stock", timeout=4)
    held.acquire()
    waiting = in_thread(lambda: Lock(master, "stock").acquire(blocking_timeout=60))
    eventually(lambda: primary.info("waiters") == 1)
    getattr(primary, how)()
    eventually(replica.is_primary)
    assert waiting.result() is True
    assert replica.admin.exists("stock") == 1
    close(master)


async def test_tasks_follow_sentinel_too(watched):
    primary, replica, sentinel = watched
    master = redis.asyncio.sentinel.Sentinel([("127.0.0.1", sentinel.port)]).master_for("locks")
    async with mortise_lock.asyncio.Lock(master, "stock"):
        assert primary.admin.exists("stock") == 1
    primary.kill()
    async with mortise_lock.asyncio.Lock(master, "stock", blocking_timeout=60):
        assert replica.admin.exists("stock") == 1
    await mortise_lock.asyncio.close(master)
