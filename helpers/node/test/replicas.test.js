// Confirmed holds: a lock relies on what enough replicas have.
import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster } from "ioredis";
import { createCluster } from "redis";
import { LostError, Locks, UnconfirmedError } from "../index.cjs";
import { libraries } from "./clients.js";
import { Server, clusterOptions, eventually, eventuallyHasAll } from "./servers.js";

for (const [library, { connect, end }] of Object.entries(libraries)) {
  describe(library, () => {
    let primary, replica, client, locks;

    before(async () => {
      primary = await Server.start(["--repl-diskless-sync-delay", "0"]);
      replica = await Server.start(["--replicaof", "127.0.0.1", primary.port]);
      await eventually(async () => (await replica.admin.info("replication")).includes("master_link_status:up"));
      await eventuallyHasAll(replica, primary);
    });
    after(() => Promise.all([primary.close(), replica.close()]));

    beforeEach(async () => {
      client = await connect(primary.port);
      locks = new Locks(client, { replicas: 1 });
    });
    afterEach(async () => {
      thaw();
      await locks.close();
      end(client);
      await eventually(isFree);
    });

    const freeze = () => replica.process.kill("SIGSTOP");
    const thaw = () => replica.process.kill("SIGCONT");
    const waits = () => primary.calls("wait");
    async function isFree(key = "k") {
      return (await primary.admin.call("LOCK.INFO", key)) === null;
    }
    /** Whether the replica knows this hold. */
    async function has({ owner, token }, key = "k") {
      const hold = await replica.admin.call("LOCK.INFO", key, "OWNER", owner);
      return hold !== null && [...(hold.values?.() ?? Object.values(hold))].includes(token);
    }

    test("a lock is handed out once a replica has it, and so is each renewal", async () => {
      const before = await waits();
      const lock = await locks.acquire("k", { lease: 1_500 });
      assert.ok(await has(lock));
      const confirmed = await waits();
      assert.ok(confirmed >= before + 2, "one on the new connection, and one for the grant");
      await sleep(2_000); // longer than the lease
      assert.ok(lock.held);
      assert.ok((await waits()) > confirmed);
      await lock.release();
    });

    test("without enough replicas an error says how many had the lock, and it is free again", async () => {
      const strict = new Locks(client, { replicas: 2 });
      const isUnconfirmed = (error) => error instanceof UnconfirmedError && error.needed === 2 && error.had === 1 && error.key === "k";
      await assert.rejects(strict.tryAcquire("k"), isUnconfirmed);
      await eventually(isFree);
      await assert.rejects(strict.acquire("k", { wait: 500 }), isUnconfirmed);
      await eventually(isFree);
      const other = await Server.start(["--replicaof", "127.0.0.1", primary.port]);
      const lock = await strict.acquire("k");
      await lock.release();
      await strict.close();
      await other.close();
    });

    test("no lock is seen before it is confirmed", async () => {
      await (await locks.acquire("other")).release(); // so that the connection is open
      freeze();
      let lock;
      const taking = locks.acquire("k").then((taken) => (lock = taken));
      await eventually(async () => !(await isFree()));
      assert.equal(lock, undefined);
      thaw();
      await taking;
      assert.ok(await has(lock));
      await lock.release();
    });

    test("a wait without a limit has none while too few replicas have the lock", async () => {
      await (await locks.acquire("k")).release();
      freeze();
      const waiting = locks.acquire("k");
      assert.equal(await Promise.race([waiting, sleep(12_000)]), undefined); // for longer than a silent server is borne
      thaw();
      await (await waiting).release();
    });

    test("a lock whose renewals reach no replica is lost at its deadline", async () => {
      const lock = await locks.acquire("k", { lease: 1_500 });
      const lost = new Promise((resolve) => lock.signal.addEventListener("abort", resolve));
      freeze();
      await lost; // though the primary renews it
      await assert.rejects(lock.release(), LostError);
      await assert.rejects(locks.tryAcquire("k"), (error) => error instanceof UnconfirmedError && error.had === 0);
      thaw();
      await (await locks.acquire("k")).release();
    });

    test("an extension counts once it is confirmed, and otherwise leaves the lock as it was", async () => {
      const lock = await locks.acquire("k", { renew: false, lease: 8_000 });
      await lock.extend(9_000);
      const { until } = lock;
      freeze();
      await assert.rejects(lock.extend(60_000), UnconfirmedError);
      assert.ok(lock.held && lock.until === until);
      thaw();
      await eventually(() => lock.extend(60_000).then(() => true, () => false));
      await lock.release();
    });

    test("several keys, permits, letters and what is taken over are confirmed", async () => {
      const both = await locks.acquire(["a", "b"]);
      const permits = await locks.semaphore("p", 3).acquire({ permits: 2 });
      assert.ok((await has(both, "a")) && (await has(both, "b")) && (await has(permits, "p")));
      const first = await locks.acquire("k");
      const waiting = locks.acquire("k");
      await eventually(async () => (await primary.waiters("k")) === 1);
      await first.release();
      const second = await waiting;
      assert.ok(await has(second));
      const taken = await locks.takeOver("k", "job", await second.passTo("job", 60_000));
      assert.ok(await has(taken));
      const token = await taken.passTo("job", 60_000);
      freeze();
      await assert.rejects(locks.takeOver("k", "job", token), UnconfirmedError);
      thaw();
      await eventually(isFree);
    });

    test("the locks of many are confirmed together", async () => {
      await (await locks.acquire("k")).release();
      const before = await waits();
      const many = await Promise.all(Array.from({ length: 200 }, (_, n) => locks.acquire(`k${n}`)));
      for (const lock of many) assert.ok(await has(lock, lock.name));
      assert.ok((await waits()) - before < 50);
      assert.ok(await locks.close());
    });

    test("locks that need no replica use none", async () => {
      const before = await waits();
      await new Locks(client).using("k", () => {});
      assert.equal(await waits(), before);
    });
  });
}

const clusters = {
  ioredis: { make: async (port) => new Cluster([{ host: "127.0.0.1", port }]), end: (client) => client.disconnect() },
  "node-redis": {
    make: (port) => createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }).on("error", () => {}).connect(),
    end: (client) => client.destroy(),
  },
};
for (const [library, { make, end }] of Object.entries(clusters)) {
  test(`after a failover in a cluster a lock is held on, and the next is confirmed, by ${library}`, { timeout: 600_000 }, async () => {
    const [primary, replica] = await Promise.all([Server.start(clusterOptions), Server.start(clusterOptions)]);
    await primary.admin.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
    await replica.admin.call("CLUSTER", "MEET", "127.0.0.1", primary.port);
    const id = await primary.admin.call("CLUSTER", "MYID");
    await eventually(async () => (await replica.admin.call("CLUSTER", "NODES")).includes(id));
    await replica.admin.call("CLUSTER", "REPLICATE", id);
    const has = async ({ admin }, line) => (await admin.info("replication")).includes(line);
    await eventually(() => has(replica, "master_link_status:up"));
    await eventually(async () => (await primary.admin.call("CLUSTER", "INFO")).includes("cluster_state:ok"));
    const client = await make(primary.port);
    const locks = new Locks(client, { replicas: 1, lease: 6_000 });
    const lock = await locks.acquire("k");
    await replica.admin.call("CLUSTER", "FAILOVER");
    await eventually(() => has(replica, "role:master"));
    await sleep(7_000);
    assert.ok(lock.held);
    await lock.release();
    await (await locks.acquire("l", { wait: 60_000 })).release();
    assert.ok((await replica.calls("wait")) > 0);
    await locks.close();
    end(client);
    await Promise.all([primary.close(), replica.close()]);
  });
}

test("replicas are a count", () => {
  assert.throws(() => new Locks({}, { replicas: "1" }), TypeError);
  assert.throws(() => new Locks({}, { replicas: -1 }), RangeError);
});
