// Redis Cluster and Sentinel, through the libraries' own clients for them.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster, createSentinel } from "redis";
import { slotOf } from "../connections.cjs";
import { Locks, UnreachableError } from "../index.cjs";
import { libraries } from "./clients.js";
import { Relay, Server, claimPort, clusterOptions, eventually, eventuallyHasAll, startCluster } from "./servers.js";

const quiet = (client) => client.on("error", () => {});
const clusters = {
  ioredis: { make: async (port) => quiet(new Cluster([{ host: "127.0.0.1", port }])), end: (client) => client.disconnect() },
  "node-redis": {
    make: async (port) => quiet(createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] })).connect(),
    end: (client) => client.destroy(),
  },
};
const sentinels = {
  ioredis: { make: async (port) => quiet(new Redis({ name: "locks", sentinels: [{ host: "127.0.0.1", port }] })), end: (client) => client.disconnect() },
  "node-redis": {
    make: async (port) => quiet(createSentinel({ name: "locks", sentinelRootNodes: [{ host: "127.0.0.1", port }] })).connect(),
    end: (client) => client.destroy(),
  },
};

for (const [library, { make, end }] of Object.entries(clusters)) {
  describe(`${library} in a cluster`, { timeout: 600_000 }, () => {
    let servers, client, locks;
    before(async () => {
      servers = await startCluster();
      client = await make(servers[0].port);
      locks = new Locks(client);
    });
    after(async () => {
      await locks.close();
      end(client);
      await Promise.all(servers.map((server) => server.close()));
    });
    const serverOf = (key) => servers[Math.min(2, Math.floor(slotOf(key) / 5461))];

    test("the library computes the same slots as the server", async () => {
      for (const key of ["stock", "{user1000}.following", "foo{}{bar}", "foo{{bar}}zap", "{}", "a{b", "ä{ö}"]) {
        assert.equal(slotOf(key), await servers[0].admin.call("CLUSTER", "KEYSLOT", key), key);
      }
    });

    test("waiting on every node takes one box for each node", async () => {
      const keys = ["a", "b", "c"];
      assert.equal(new Set(keys.map(serverOf)).size, 3);
      const held = await Promise.all(keys.map((key) => locks.acquire(key)));
      const all = keys.flatMap((key) => [1, 2, 3].map(() => locks.using(key, {}, () => {})));
      await eventually(async () => (await Promise.all(servers.map((server) => server.info("waiters")))).every((count) => count === 3));
      assert.deepEqual(await Promise.all(servers.map((server) => server.info("boxes"))), [1, 1, 1]);
      for (const lock of held) await lock.release();
      await Promise.all(all);
    });

    // The source and the target of the key's slot. `begin` starts its migration, `finish` ends it.
    async function moving(key) {
      const [source, target] = [serverOf(key), servers.find((server) => server !== serverOf(key))];
      const ids = await Promise.all([source, target].map(({ admin }) => admin.call("CLUSTER", "MYID")));
      const set = ({ admin }, ...words) => admin.call("CLUSTER", "SETSLOT", slotOf(key), ...words);
      return {
        source, target,
        begin: async () => {
          await set(target, "IMPORTING", ids[0]);
          await set(source, "MIGRATING", ids[1]);
        },
        finish: async () => {
          for (const server of [target, source, ...servers]) await set(server, "NODE", ids[1]);
        },
      };
    }

    test("a lock is renewed while its slot moves, and can be waited for", async () => {
      const key = "slow";
      const { target, begin, finish } = await moving(key);
      await begin();
      const lock = await locks.acquire(key, { lease: 3_000 });
      const waiting = locks.acquire(key, { wait: 60_000 });
      await eventually(async () => (await target.info("waiters")) === 1);
      const before = await target.info("total_renewals");
      await eventually(async () => (await target.info("total_renewals")) > before + 4); // for longer than its lease
      assert.ok(lock.held);
      await lock.release();
      await (await waiting).release();
      await finish();
    });

    test("a moving slot is found where servers do not give their host", async () => {
      const key = "hostless";
      const { source, target, begin, finish } = await moving(key);
      await begin();
      await source.admin.config("SET", "cluster-preferred-endpoint-type", "unknown-endpoint");
      const lock = await locks.acquire(key, { wait: 0 }).finally(() => source.admin.config("SET", "cluster-preferred-endpoint-type", "ip"));
      assert.equal(await target.admin.call("CLUSTER", "COUNTKEYSINSLOT", slotOf(key)), 1);
      await lock.release();
      await finish();
    });

    test("a client of a single server follows nowhere, and its locks fail with the redirection", async () => {
      const key = "single";
      const { source, begin, finish } = await moving(key);
      await begin();
      await source.admin.config("SET", "cluster-preferred-endpoint-type", "unknown-endpoint");
      const plain = quiet(new Redis(source.port));
      const own = new Locks(plain);
      await assert.rejects(own.acquire(key, { wait: 0 }), (error) => error instanceof UnreachableError && /ASK/.test(error.message));
      await source.admin.config("SET", "cluster-preferred-endpoint-type", "ip");
      await finish();
      await own.close();
      plain.disconnect();
    });

    test("a lock is acquired while its slot moves, and it and its waiters follow", async () => {
      const key = "moving";
      const { source, target, begin, finish } = await moving(key);
      const early = await locks.acquire(key, { lease: 6_000 });
      const waiting = locks.acquire(key, { wait: 60_000 });
      await eventually(async () => (await source.info("waiters")) === 1);
      await begin();
      const sibling = `{${key}}:2`;
      const asked = await locks.acquire(sibling);
      assert.equal(await target.admin.call("CLUSTER", "COUNTKEYSINSLOT", slotOf(key)), 1);
      await source.admin.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", key);
      await finish();
      await eventually(async () => (await target.info("waiters")) === 1);
      const before = await target.info("total_renewals");
      await eventually(async () => (await target.info("total_renewals")) > before);
      assert.ok(early.held);
      await early.release();
      await (await waiting).release();
      await asked.release();
    });

    test("a lock and its waiters follow to the replica that the cluster promotes", async () => {
      const key = "failing";
      const [primary, replica] = [serverOf(key), await Server.start(clusterOptions)];
      servers.push(replica);
      await replica.admin.call("CLUSTER", "MEET", "127.0.0.1", primary.port);
      const id = await primary.admin.call("CLUSTER", "MYID");
      await eventually(() => replica.admin.call("CLUSTER", "REPLICATE", id).then(() => true, () => false));
      await eventually(async () => (await replica.admin.info("replication")).includes("master_link_status:up"));
      const lock = await locks.acquire(key, { lease: 60_000 });
      const waiting = locks.acquire(key, { wait: 60_000 });
      await eventually(async () => (await primary.info("waiters")) === 1);
      await eventuallyHasAll(replica, primary);
      await primary.kill();
      await eventually(async () => (await replica.info("waiters")) === 1);
      assert.ok(lock.held);
      await lock.release();
      await (await waiting).release();
    });
  });
}

const nobody = {
  "ioredis in a cluster": (port) => quiet(new Cluster([{ host: "127.0.0.1", port }])),
  "node-redis in a cluster": (port) => quiet(createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] })),
  "ioredis": (port) => quiet(new Redis(port)),
  "node-redis": (port) => quiet(createClient({ url: `redis://127.0.0.1:${port}` })),
  "ioredis behind Sentinel": (port) => quiet(new Redis({ name: "locks", sentinels: [{ host: "127.0.0.1", port }], lazyConnect: true })),
};
describe("without a server", { concurrency: true }, () => {
  for (const [library, make] of Object.entries(nobody)) {
    test(`${library}: a request for a lock ends, and can be aborted`, { timeout: 600_000 }, async () => {
      const port = await claimPort();
      const client = make(port);
      const locks = new Locks(client);
      const unreachable = (error) => error instanceof UnreachableError && !/no reply in time/.test(error.message);
      for (const wait of [0, 300, 3_000]) await assert.rejects(locks.acquire("stock", { wait }), unreachable);
      await assert.rejects(locks.acquire("stock", { signal: AbortSignal.timeout(100) }), { name: "TimeoutError" });
      await assert.rejects(locks.acquire("stock"), UnreachableError); // without a limit
      await locks.close();
      client.disconnect?.();
      let tries = 0;
      const listener = net.createServer((socket) => {
        tries++;
        socket.destroy();
      }).listen(port, "127.0.0.1");
      await sleep(1_500); // longer than any of them pauses between two tries
      listener.close();
      assert.equal(tries, 0, "it still tries after the end");
    });
  }
});

for (const network of ["the client's own", "another"]) {
  test(`ioredis: locks follow a slot to a node without slots, in ${network} network`, { timeout: 600_000 }, async () => {
    const [source, target] = await Promise.all([1, 2].map(() => Server.start(clusterOptions)));
    const relays = await Promise.all([source, target].map(({ port }) => Relay.start(port)));
    const natMap = Object.fromEntries(relays.map(({ target: of, port }) => [`127.0.0.1:${of}`, { host: "127.0.0.1", port }]));
    await source.admin.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
    await source.admin.call("CLUSTER", "MEET", "127.0.0.1", target.port);
    await eventually(async () => (await target.admin.call("CLUSTER", "INFO")).includes("cluster_slots_assigned:16384"));
    const client = quiet(new Cluster([{ host: "127.0.0.1", port: source.port }], network === "another" ? { natMap } : {}));
    const locks = new Locks(client);
    const held = await locks.acquire("{x}:held", { lease: 3_000 });
    const ids = await Promise.all([source, target].map(({ admin }) => admin.call("CLUSTER", "MYID")));
    await target.admin.call("CLUSTER", "SETSLOT", slotOf("x"), "IMPORTING", ids[0]);
    await source.admin.call("CLUSTER", "SETSLOT", slotOf("x"), "MIGRATING", ids[1]);
    const free = await locks.acquire("{x}:free", { wait: 0 });
    const waiting = locks.acquire("{x}:free", { wait: 60_000 });
    await source.admin.call("MIGRATE", "127.0.0.1", target.port, "{x}:held", 0, 5_000);
    await eventually(async () => (await target.info("total_renewals")) > 5); // for longer than the lease
    assert.ok(held.held);
    await free.release();
    await (await waiting).release();
    await held.release();
    await locks.close();
    client.disconnect();
    for (const one of [...relays, source, target]) await one.close();
  });
}

test("ioredis: locks that were closed before the cluster's client was ready send nothing", { timeout: 600_000 }, async () => {
  const server = await Server.start([...clusterOptions, "--cluster-announce-ip", "127.0.0.1"]);
  await server.admin.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
  await eventually(async () => (await server.admin.call("CLUSTER", "INFO")).includes("cluster_state:ok"));
  const client = quiet(new Cluster([{ host: "127.0.0.1", port: server.port }]));
  const locks = new Locks(client);
  const waiting = assert.rejects(locks.acquire("stock"), UnreachableError);
  assert.equal(await locks.close(0), false);
  await waiting;
  assert.equal(await server.calls("lock.acquire"), 0);
  client.disconnect();
  await server.close();
});

test("a cluster of a node-redis before 4.6 is refused", () => {
  const cluster = { sendCommand() {}, duplicate() {}, getMasters() {} };
  assert.throws(() => new Locks(cluster), { name: "TypeError", message: /^a client of / });
});

test("node-redis connects to a node that is gone for ever: requests for its locks fail, and others do not wait", { timeout: 600_000 }, async () => {
  const servers = await startCluster();
  const client = await quiet(createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${servers[0].port}` }], minimizeConnections: true })).connect();
  const locks = new Locks(client);
  await servers[2].kill();
  const keys = ["a", "b", "c"].map((name) => [Math.floor(slotOf(name) / 5461), name]);
  const gone = locks.acquire(keys.find(([at]) => at === 2)[1], { wait: 3_000 });
  await locks.using(keys.find(([at]) => at === 0)[1], {}, () => {});
  await assert.rejects(gone, UnreachableError);
  await locks.close();
  client.destroy();
  await Promise.all(servers.map((server) => server.close()));
});

for (const [library, { make, end }] of Object.entries(clusters)) {
  test(`${library}: a wait ends soon after its limit if a node of the cluster is silent`, { timeout: 600_000 }, async () => {
    const servers = await startCluster();
    const client = await make(servers[0].port);
    const locks = new Locks(client);
    await Promise.all(["a", "b", "c"].map((key) => locks.using(key, () => {})));
    const frozen = servers[Math.min(2, Math.floor(slotOf("a") / 5461))];
    frozen.process.kill("SIGSTOP");
    const began = performance.now();
    await assert.rejects(locks.acquire("a", { wait: 3_000 }), UnreachableError);
    assert.ok(performance.now() - began < 5_000);
    frozen.process.kill("SIGCONT");
    await locks.close();
    end(client);
    await Promise.all(servers.map((server) => server.close()));
  });
}

for (const [library, { connect, end }] of Object.entries(libraries)) {
  test(`${library} connects anew to an address whose server was demoted, under load, too`, { timeout: 600_000 }, async () => {
    const primary = await Server.start();
    const replica = await Server.start(["--replicaof", `127.0.0.1 ${primary.port}`]);
    await eventually(async () => (await replica.admin.info("replication")).includes("master_link_status:up"));
    const relay = await Relay.start(primary.port);
    const client = await connect(relay.port);
    const locks = new Locks(client);
    await primary.admin.call("LOCK.ACQUIRE", "stock", "somebody", 2_000);
    const waiting = locks.acquire("stock", { wait: 60_000 });
    await eventually(async () => (await primary.waiters("stock")) === 1);
    await eventuallyHasAll(replica, primary);
    const held = await locks.acquire("held", { renew: false });
    let isOver = false;
    const load = Array.from({ length: 20 }, async () => {
      while (!isOver) await locks.holds("stock").catch(() => {});
    });
    await replica.admin.call("REPLICAOF", "NO", "ONE");
    relay.target = replica.port;
    await primary.admin.call("REPLICAOF", "127.0.0.1", replica.port);
    await locks.using("order", { wait: 5_000 }, () => {});
    isOver = true;
    await Promise.all(load);
    await (await waiting).release();
    await held.release();
    assert.ok((await replica.calls("lock.mail")) > 0);
    await locks.close();
    end(client);
    relay.close();
    for (const server of [replica, primary]) await server.close();
  });
}

for (const [library, { make, end }] of Object.entries(sentinels)) {
  test(`${library} follows Sentinel to the server that is promoted`, { timeout: 600_000 }, async () => {
    const primary = await Server.start();
    const replica = await Server.start(["--replicaof", `127.0.0.1 ${primary.port}`]);
    await eventually(async () => (await replica.admin.info("replication")).includes("master_link_status:up"));
    const watch = ["monitor locks 127.0.0.1 PORT 1", "down-after-milliseconds locks 1500", "failover-timeout locks 5000"];
    const sentinel = await Server.start([], { sentinel: watch.map((line) => `sentinel ${line}\n`).join("").replace("PORT", primary.port) });
    await eventually(async () => (await sentinel.admin.call("SENTINEL", "REPLICAS", "locks")).length > 0);
    const client = await make(sentinel.port);
    const locks = new Locks(client);
    await primary.admin.call("LOCK.ACQUIRE", "stock", "somebody", 4000);
    const waiting = locks.acquire("stock", { wait: 60_000 });
    await eventually(async () => (await primary.info("waiters")) === 1);
    await primary.kill();
    const lock = await waiting;
    assert.equal(await replica.admin.exists("stock"), 1);
    await lock.release();
    await locks.close();
    end(client);
    for (const server of [sentinel, replica, primary]) await server.close();
  });
}

test("ioredis connects although the first sentinels are silent", { timeout: 600_000 }, async () => {
  const primary = await Server.start();
  const sentinel = await Server.start([], { sentinel: `sentinel monitor locks 127.0.0.1 ${primary.port} 1\n` });
  const silent = await Promise.all([1, 2].map(() => Relay.start(sentinel.port)));
  for (const relay of silent) relay.hold("replies");
  const sentinels = [...silent, sentinel].map(({ port }) => ({ host: "127.0.0.1", port }));
  const client = quiet(new Redis({ name: "locks", sentinels, lazyConnect: true }));
  const locks = new Locks(client);
  const lock = await locks.acquire("stock", { wait: 30_000, renew: false, lease: 60_000 });
  const waiting = locks.acquire("stock", { wait: 30_000 });
  await eventually(async () => (await primary.waiters("stock")) === 1);
  await lock.release();
  await (await waiting).release();
  await locks.close();
  client.disconnect();
  for (const one of [...silent, sentinel, primary]) await one.close();
});
