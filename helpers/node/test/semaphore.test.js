// Permits, and several keys.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { BusyError, RefusedError } from "../index.cjs";
import { fresh, libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

let server;
before(async () => (server = await Server.start()));
after(() => server.close());

for (const [library, own] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    let locks;
    fresh(own, () => server, (made) => ({ locks } = made));

    test("as many are inside as there are permits, and the next one waits in the queue", async () => {
      const pool = locks.semaphore("pool", 3);
      const held = await Promise.all([pool.acquire(), pool.acquire({ permits: 2 })]);
      assert.equal(await pool.tryAcquire(), null);
      await assert.rejects(pool.acquire({ wait: 50 }), BusyError);
      assert.equal(await pool.available(), 0);
      const waiting = pool.acquire({ permits: 2 });
      await eventually(async () => (await server.waiters("pool")) === 1);
      await held[0].release();
      assert.equal(await pool.available(), 1);
      assert.equal(await pool.tryAcquire(), null, "a request overtook a waiter");
      await held[1].release();
      assert.ok((await waiting).held);
      assert.equal(await pool.available(), 1);
      await (await waiting).release();
      assert.equal(await pool.available(), 3);
      const writer = await locks.acquire("pool");
      assert.equal(await pool.available(), 0);
      await writer.release();
      assert.ok(await server.nothingIsLeft());
    });

    test("never more permits are held than there are, whatever each task takes", async () => {
      const pool = locks.semaphore("pool", 5);
      let [inside, most] = [0, 0];
      await Promise.all(
        Array.from({ length: 40 }, async (_, n) => {
          const permits = 1 + (n % 3);
          await pool.using({ permits }, async () => {
            most = Math.max(most, (inside += permits));
            await new Promise((resolve) => setTimeout(resolve, 1));
            inside -= permits;
          });
        }),
      );
      assert.ok(most <= 5 && most >= 4, `${most}`);
      assert.equal(await pool.using(() => pool.available()), 4);
    });

    test("permits are renewed, and a writer of the name drains the pool", async () => {
      const pool = locks.semaphore("pool", 2);
      const permit = await pool.acquire({ lease: 3_000 });
      const renewals = await server.calls("lock.renew");
      await eventually(async () => (await server.calls("lock.renew")) >= renewals + 3);
      const writer = locks.acquire("pool");
      await eventually(async () => (await server.waiters("pool")) === 1);
      assert.equal(await pool.tryAcquire(), null);
      await permit.release();
      await (await writer).release();
    });

    test("impossible arguments are refused", async () => {
      for (const limit of [0, 1.5, "3"]) assert.throws(() => locks.semaphore("pool", limit));
      await assert.rejects(locks.semaphore("pool", 2 ** 31).acquire(), RefusedError);
      for (const permits of [0, 4, 1.5]) await assert.rejects(locks.semaphore("pool", 3).acquire({ permits }), RefusedError);
      await assert.rejects(locks.semaphore("pool", 3).acquire(2), TypeError);
      assert.throws(() => locks.semaphore(["pool"], 3), TypeError);
      await server.admin.set("pool", "text");
      await assert.rejects(locks.semaphore("pool", 3).tryAcquire(), RefusedError);
    });
  });
}
