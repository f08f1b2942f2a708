"""Confirmed holds: a lock relies on what enough replicas have."""
import asyncio
import contextlib
import threading
import time

import pytest
import redis
import redis.asyncio
from servers import Cluster, Server, eventually
from test_lock import in_thread

import mortise_lock
import mortise_lock.asyncio
from mortise_lock import Lock, LockNotOwnedError, MultiLock, ReadLock, Semaphore, UnconfirmedError
from mortise_lock.asyncio import Lock as TaskLock

KEYS = ["k", "a", "b", "p"]


class Pair:
    """A primary and its replica."""

    def __init__(self):
        self.primary = Server("--repl-diskless-sync-delay", "0")
        self.replica = Server("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.client = redis.Redis(port=self.primary.port)
        eventually(lambda: self.replica.admin.info("replication")["master_link_status"] == "up")
        self.replica.await_all_of(self.primary)
        eventually(lambda: self.primary.admin.info("replication")["slave0"]["state"] == "online")

    def waits(self):
        return self.primary.admin.info("commandstats").get("cmdstat_wait", {"calls": 0})["calls"]

    def is_free(self, key="k"):
        return self.primary.admin.execute_command("LOCK.INFO", key) is None

    def has(self, lock, key="k"):
        """Whether the replica knows this hold."""
        info = self.replica.admin.execute_command("LOCK.INFO", key)
        return info is not None and [hold["token"] for hold in info["holds"]] == [lock.fencing_token]

    def close(self):
        mortise_lock.close(self.client)
        self.client.close()
        self.replica.close()
        self.primary.close()


@pytest.fixture
def pair():
    pair = Pair()
    yield pair
    pair.close()


def test_a_lock_is_taken_once_a_replica_has_it_and_so_is_each_renewal(pair):
    with Lock(pair.client, "k", lease=1.5, replicas=1) as lock:
        assert pair.has(lock)
        waits = pair.waits()
        assert waits >= 2, "one on the new connection, and one for the grant"
        eventually(lambda: pair.waits() > waits)
        time.sleep(2)  # longer than the lease
        assert not lock.lost
    assert pair.is_free()


def test_without_enough_replicas_an_error_says_how_many_had_the_lock_and_it_is_free_again(pair):
    lock = Lock(pair.client, "k", replicas=2)

    def fails_with_one_replica(**wait):
        with pytest.raises(UnconfirmedError) as error:
            lock.acquire(**wait)
        assert (error.value.needed, lock.fencing_token) == (2, None)
        eventually(pair.is_free)
        return error.value.had == 1 and str(error.value).startswith("1 replicas have the lock, and 2 have to")

    # On a busy machine the replica's reply may be late.
    eventually(lambda: fails_with_one_replica(blocking=False))
    eventually(lambda: fails_with_one_replica(blocking_timeout=0.5))


def test_an_acquisition_is_tried_again_until_there_is_a_replica(pair):
    lock, done = Lock(pair.client, "k", replicas=2, thread_local=False), []
    thread = threading.Thread(target=lambda: done.append(lock.acquire(blocking_timeout=60)))
    thread.start()
    eventually(lambda: pair.waits() > 0)
    other = Server("--replicaof", f"127.0.0.1 {pair.primary.port}")
    thread.join()
    assert done == [True] and not lock.lost
    lock.release()
    other.close()


def test_an_acquisition_without_a_limit_waits_for_a_replica_beyond_the_patience_with_a_silent_server(pair, monkeypatch):
    monkeypatch.setattr(mortise_lock._lock, "PATIENCE", 300)
    lock = Lock(pair.client, "k", replicas=2)
    waiting = in_thread(lock.acquire)
    tries = pair.primary.commands("acquire")
    eventually(lambda: pair.primary.commands("acquire") >= tries + 4)
    time.sleep(0.5)
    assert waiting.is_alive()
    other = Server("--replicaof", f"127.0.0.1 {pair.primary.port}")
    assert waiting.result() is True
    other.close()


def test_no_token_is_seen_before_it_is_confirmed(pair):
    Lock(pair.client, "other", replicas=1).acquire()  # so that the connection is open
    lock, done = Lock(pair.client, "k", replicas=1, thread_local=False), []
    pair.replica.freeze()
    thread = threading.Thread(target=lambda: done.append(lock.acquire(blocking_timeout=60)))
    thread.start()
    eventually(lambda: not pair.is_free())
    assert lock.fencing_token is None and not done
    pair.replica.thaw()
    thread.join()
    assert done == [True] and pair.has(lock)


@pytest.mark.parametrize("lease", [1.2, 3.0])
def test_a_lock_whose_renewals_reach_no_replica_is_lost_at_its_deadline(pair, lease):
    lock = Lock(pair.client, "k", lease=lease, replicas=1)
    lock.acquire()
    eventually(lambda: pair.waits() > 2)
    pair.replica.freeze()
    assert lock.wait_lost(timeout=10), "though the primary renews it"
    with pytest.raises(LockNotOwnedError):
        lock.release()
    with pytest.raises(UnconfirmedError) as error:
        Lock(pair.client, "other", replicas=1).acquire(blocking=False)
    assert error.value.had == 0
    pair.replica.thaw()
    assert Lock(pair.client, "k", replicas=1).acquire(blocking_timeout=60)


def test_an_extension_counts_once_it_is_confirmed_and_otherwise_leaves_the_lock_as_it_was(pair):
    lock = Lock(pair.client, "k", timeout=8, replicas=1)
    lock.acquire()
    until = lock._hold.until
    assert lock.extend(8, replace_ttl=True) and lock._hold.until > until
    until = lock._hold.until
    pair.replica.freeze()
    with pytest.raises(UnconfirmedError):
        lock.extend(60)
    assert not lock.lost and lock._hold.until == until
    pair.replica.thaw()
    eventually(lambda: extends(lock))


def extends(lock):
    with contextlib.suppress(UnconfirmedError):
        return lock.extend(60)


def test_several_keys_permits_readers_and_what_is_taken_over_are_confirmed(pair):
    both = MultiLock(pair.client, ["a", "b"], replicas=1)
    permits = Semaphore(pair.client, "p", 3, replicas=1)
    reader = ReadLock(pair.client, "k", replicas=1)
    assert both.acquire() and permits.acquire(permits=2) and reader.acquire()
    assert all(pair.has(lock, key) for lock, key in [(both, "a"), (both, "b"), (permits, "p"), (reader, "k")])
    token, waits = reader.pass_to("job", lease=60), pair.waits()
    heir = Lock(pair.client, "k", replicas=1)
    assert heir.take_over("job", token)
    assert pair.waits() > waits and pair.has(heir)
    token = heir.pass_to("job", lease=60)
    pair.replica.freeze()
    with pytest.raises(UnconfirmedError):
        heir.take_over("job", token)
    assert heir.fencing_token is None
    pair.replica.thaw()
    eventually(pair.is_free)


def test_locks_of_one_client_may_need_different_numbers_of_replicas(pair):
    plain, confirmed = Lock(pair.client, "a"), Lock(pair.client, "b", replicas=1)
    assert plain.acquire() and confirmed.acquire()
    waits = pair.waits()
    plain.release()
    assert plain.acquire() and pair.waits() == waits
    assert mortise_lock.close(pair.client)
    eventually(lambda: pair.is_free("a") and pair.is_free("b"))


@pytest.mark.parametrize("replicas", ["1", 1.0, True, None, -1])
def test_replicas_are_a_count(replicas):
    with pytest.raises(ValueError, match="replicas"):
        Lock(redis.Redis(), "k", replicas=replicas)


@pytest.fixture
async def tasks(pair):
    client = redis.asyncio.Redis(port=pair.primary.port)
    yield client
    await mortise_lock.asyncio.close(client)
    await client.aclose()


async def eventually_async(condition):
    for _ in range(6_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(condition)


async def test_the_locks_of_many_tasks_are_confirmed_together(pair, tasks):
    await TaskLock(tasks, "first", replicas=1).acquire()
    waits, locks = pair.waits(), [TaskLock(tasks, f"k{n}", replicas=1, lease=1.5) for n in range(200)]
    assert all(await asyncio.gather(*(lock.acquire() for lock in locks)))
    assert all(pair.has(lock, lock.name) for lock in locks)
    assert pair.waits() - waits < 100
    await asyncio.sleep(2)
    assert not any(lock.lost for lock in locks)


async def test_a_task_whose_lock_no_replica_has_gets_an_error_and_the_lock_is_free(pair, tasks):
    waiter = TaskLock(tasks, "k", replicas=1, lease=2.0)
    holder = TaskLock(tasks, "k", replicas=1)
    async with holder:
        waiting = asyncio.create_task(waiter.acquire(blocking_timeout=2))
        await eventually_async(lambda: pair.primary.waiters("k") == 1)
    assert await waiting and pair.has(waiter), "by letter, too"
    pair.replica.freeze()
    assert await waiter.wait_lost(timeout=60)
    with pytest.raises(UnconfirmedError) as error:
        await TaskLock(tasks, "l", replicas=1).acquire(blocking=False)
    assert (error.value.needed, error.value.had) == (1, 0)
    await eventually_async(lambda: pair.is_free("l"))
    pair.replica.thaw()
    assert await TaskLock(tasks, "l", replicas=1).acquire(blocking_timeout=60)


async def test_a_task_that_is_cancelled_before_its_lock_is_confirmed_leaves_nothing(pair, tasks):
    await TaskLock(tasks, "other", replicas=1).acquire()
    lock = TaskLock(tasks, "k", replicas=1)
    pair.replica.freeze()
    taking = asyncio.create_task(lock.acquire())
    await eventually_async(lambda: not pair.is_free())
    assert lock.fencing_token is None
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    await eventually_async(pair.is_free)
    pair.replica.thaw()


@pytest.fixture
def two_nodes():
    """A cluster of one primary, and its replica."""
    cluster = Cluster(1)
    cluster.replica_of(cluster.servers[0])
    yield cluster
    cluster.close()


def test_after_a_failover_in_a_cluster_a_lock_is_held_on_and_the_next_is_confirmed(two_nodes):
    primary, replica = two_nodes.servers
    client = redis.RedisCluster("127.0.0.1", primary.port)
    lock = Lock(client, "k", lease=6.0, replicas=1)
    assert lock.acquire()
    replica.admin.execute_command("CLUSTER", "FAILOVER")
    eventually(replica.is_primary)
    time.sleep(7)
    assert not lock.lost
    lock.release()
    assert Lock(client, "l", replicas=1).acquire(blocking_timeout=60)
    assert primary.admin.info("replication")["role"] == "slave"
    eventually(lambda: replica.admin.info("commandstats").get("cmdstat_wait"))
    mortise_lock.close(client)


async def test_after_a_failover_in_a_cluster_a_task_holds_its_lock_on(two_nodes):
    primary, replica = two_nodes.servers
    client = redis.asyncio.RedisCluster("127.0.0.1", primary.port)
    async with TaskLock(client, "k", lease=6.0, replicas=1) as lock:
        replica.admin.execute_command("CLUSTER", "FAILOVER")
        await eventually_async(replica.is_primary)
        await asyncio.sleep(7)
        assert not lock.lost
    assert await TaskLock(client, "l", replicas=1).acquire(blocking_timeout=60)
    await mortise_lock.asyncio.close(client)
    await client.aclose()
