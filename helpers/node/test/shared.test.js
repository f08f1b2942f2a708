// Clients and objects that many use, errors that name their cause, and commands under LOCK.GUARD.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient as createClient4 } from "redis-4";
import { Locks, LostError, RefusedError, UnreachableError } from "../index.cjs";
import { fresh, libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

let server;
before(async () => (server = await Server.start()));
after(() => server.close());

/** Computes for so many ms, and lets nothing else run. */
function compute(ms) {
  for (const end = performance.now() + ms; performance.now() < end; );
}

for (const [library, own] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    let client, locks, relay;
    const more = fresh(own, () => server, (made) => ({ client, locks, relay } = made));

    test("all Locks of a client share two connections, and each closes only what is its own", async () => {
      const holder = await locks.acquire("stock");
      const before = await server.connections();
      const each = Array.from({ length: 200 }, () => new Locks(client));
      const waiting = each.map((one) => one.acquire("stock"));
      waiting.forEach((one) => one.catch(() => {}));
      await eventually(async () => (await server.waiters("stock")) === 200);
      assert.ok((await server.connections()) <= before + 1);
      const held = await each[1].acquire("held");
      assert.equal(await each[0].close(), true);
      await assert.rejects(waiting[0], UnreachableError);
      assert.equal(await server.waiters("stock"), 199);
      assert.ok(held.held && holder.held);
      await assert.rejects(each[0].acquire("other"), /closed/);
      await Promise.all(each.map((one) => one.close()));
      assert.equal(await server.admin.exists("held"), 0);
      assert.ok(holder.held && (await server.admin.exists("stock")) === 1);
      await holder.release();
    });

    test("the connections close with the last Locks of a client, and open again for the next", async () => {
      await client.ping();
      const before = await server.connections();
      const second = new Locks(client);
      await second.using("stock", () => {});
      assert.equal(await server.connections(), before + 1);
      await second.close();
      assert.equal(await server.connections(), before + 1);
      await locks.close();
      await eventually(async () => (await server.connections()) === before);
      const again = new Locks(client);
      await again.using("stock", () => {});
      await again.close();
    });

    test("a signal is aborted after a computation that was longer than the lease", async () => {
      const lock = await locks.acquire("stock", { lease: 300, renew: false });
      const { signal } = lock;
      const other = await locks.acquire(["a", "b"], { lease: 300, renew: false });
      const { signal: several } = other;
      compute(400);
      assert.ok(signal.aborted && lock.signal.aborted && several.aborted);
      assert.ok(signal.reason instanceof LostError);
      assert.throws(() => signal.throwIfAborted(), LostError);
      await assert.rejects(lock.release(), LostError);
      await assert.rejects(other.release(), LostError);
    });

    test("an option that there is not is refused by its name", async () => {
      assert.throws(() => new Locks(client, { leese: 1_000 }), { name: "TypeError", message: /'leese'/ });
      for (const options of [null, 5_000]) await assert.rejects(locks.acquire("stock", options), { name: "TypeError", message: /^options are an object, not / });
      for (const call of [
        () => locks.acquire("stock", { timeout: 5_000 }), () => locks.tryAcquire(["a", "b"], { poll: 5 }), () => locks.using("stock", { ttl: 5 }, () => {}),
        () => locks.semaphore("pool", 3).acquire({ count: 2 }), () => locks.semaphore("pool", 3).acquire({ mode: "read" }),
      ]) {
        await assert.rejects(call(), TypeError);
      }
      assert.equal(await server.info("locks"), 0);
    });

    test("a guarded command runs only while the lock is held", async () => {
      const lock = await locks.acquire("{stock}");
      assert.equal(await lock.guard("SET", "{stock}:count", 17), "OK");
      assert.equal(String(await lock.guard("GET", "{stock}:count")), "17");
      assert.equal(await lock.guard("APPEND", "{stock}:count", Buffer.from([0xff])), 3);
      await assert.rejects(lock.guard("LPUSH", "{stock}:count", 1), (error) => error instanceof RefusedError && /WRONGTYPE/.test(error.message));
      await assert.rejects(lock.guard(), TypeError);
      for (const value of [undefined, null, true, ["a"], {}, new Uint8Array(2)]) {
        await assert.rejects(lock.guard("SET", "{stock}:count", value), { name: "TypeError", message: /^a command has strings, numbers and Buffers, not / });
      }
      assert.equal(await lock.guard("STRLEN", "{stock}:count"), 3);
      assert.ok(lock.held);
      await server.admin.del("{stock}");
      await assert.rejects(lock.guard("SET", "{stock}:count", 18), LostError);
      assert.ok(lock.signal.aborted);
      await assert.rejects(lock.release(), LostError);
      const released = await locks.acquire("{stock}");
      await released.release();
      await assert.rejects(released.guard("SET", "{stock}:count", 18), LostError);
      assert.deepEqual(await server.admin.getBuffer("{stock}:count"), Buffer.from([0x31, 0x37, 0xff]));
    });

    test("an error of a guarded command is no trouble of the connection or of the module", async () => {
      const lock = await locks.acquire("{stock}");
      await assert.rejects(lock.guard("NOSUCH"), (error) => error instanceof RefusedError && error.message.startsWith("ERR unknown command"));
      // A module's error, as RedisTimeSeries has it. A script cannot be guarded.
      const reply = await locks.session.ask(["EVAL", "return redis.error_reply('-TSDB: the key does not exist')", 0]);
      assert.equal(reply.message, "TSDB: the key does not exist");
      await lock.release();
    });

    test("the error of the work wins over the loss of its lock, which is its cause", async () => {
      const failing = (error) =>
        locks.using("stock", async () => {
          await server.admin.del("stock");
          throw error;
        });
      await assert.rejects(failing(new Error("mine")), (error) => error.message === "mine" && error.cause instanceof LostError);
      const shared = new Error("deeper");
      const caused = new Error("mine", { cause: shared });
      await assert.rejects(failing(caused), (error) => error === caused && error.cause instanceof LostError && error.cause.cause === shared);
      assert.equal(shared.cause, undefined);
      await assert.rejects(failing(Object.freeze(new Error("frozen"))), /frozen/);
      const own = new (class extends Error {
        get cause() {}
      })("its own cause");
      await assert.rejects(failing(own), (error) => error === own);
      await assert.rejects(failing("no error"), (error) => error === "no error");
    });

    test("a wait ends at its limit although no letter can come", async () => {
      const holder = await locks.acquire("stock");
      const far = await more();
      const waiting = far.tryAcquire("stock", { wait: 1_000 });
      await eventually(async () => (await server.waiters("stock")) === 1);
      const began = performance.now();
      relay.hold("replies");
      assert.equal(await waiting, null);
      assert.ok(performance.now() - began < 1_900);
      relay.pass();
      await holder.release();
    });

    test("a semaphore that ten tasks share leaves no permit behind", async () => {
      const pool = locks.semaphore("pool", 3);
      let [inside, most] = [0, 0];
      const task = async () => {
        for (let round = 0; round < 5; round++) {
          await pool.using(async () => {
            most = Math.max(most, ++inside);
            await sleep(1);
            inside--;
          });
        }
      };
      await Promise.all(Array.from({ length: 10 }, task));
      assert.equal(most, 3);
      assert.ok(await server.nothingIsLeft());
    });

    test("a lock that another program took is taken over by its owner's name and its token", async () => {
      const other = await more(server.port);
      const elsewhere = await other.acquire("stock", { renew: false, lease: 60_000 });
      const lock = await locks.takeOver("stock", elsewhere.owner, elsewhere.token);
      assert.ok(lock.held && lock.token > elsewhere.token);
      await assert.rejects(elsewhere.release(), LostError);
      const permits = await other.semaphore("pool", 5).acquire({ permits: 3 });
      const taken = await locks.takeOver("pool", permits.owner, permits.token);
      assert.equal(await locks.semaphore("pool", 5).available(), 2);
      await taken.release();
      await assert.rejects(permits.release(), LostError);
      await lock.release();
    });
  });
}

for (const legacyMode of [false, true]) {
  test(`a client of node-redis 4 ${legacyMode ? "in its legacy mode" : "as it is"} has locks`, { timeout: 600_000 }, async () => {
    const client = createClient4({ socket: { port: server.port, host: "127.0.0.1" }, legacyMode });
    await client.connect();
    const locks = new Locks(client);
    const lock = await locks.acquire("stock");
    const waiting = locks.acquire("stock");
    await eventually(async () => (await server.waiters("stock")) === 1);
    await lock.release();
    await (await waiting).release();
    assert.equal(await locks.semaphore("pool", 3).available(), 3);
    await locks.close();
    await client.disconnect();
  });
}
