// Several locks at once: all or none.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { BusyError, LostError, RefusedError, UnreachableError } from "../index.cjs";
import { fresh, libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

let server;
before(async () => (server = await Server.start()));
after(() => server.close());

for (const [library, own] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    let locks, relay;
    const more = fresh(own, () => server, (made) => ({ locks, relay } = made));

    test("several locks are acquired at once by one token, and released together", async () => {
      const several = await locks.acquire(["a", "b", "c"]);
      assert.deepEqual(several.names, ["a", "b", "c"]);
      assert.ok(several.held);
      for (const name of several.names) assert.equal(await locks.tryAcquire(name), null);
      for (const name of several.names) assert.deepEqual((await locks.holds(name)).map(({ token }) => token), [several.token]);
      await several.release();
      assert.ok(!several.held);
      assert.ok(await server.nothingIsLeft());
    });

    test("a waiter for several locks holds none, and is granted all when the last is free", async () => {
      const b = await locks.acquire("b");
      await assert.rejects(locks.acquire(["a", "b"], { wait: 50 }), BusyError);
      const waiting = locks.using(["a", "b"], (several) => several.token);
      await eventually(async () => (await server.waiters("a")) === 1);
      assert.deepEqual(await locks.holds("a"), []);
      await b.release();
      assert.ok((await waiting) > b.token);
      assert.ok(await server.nothingIsLeft());
    });

    test("each of several locks is renewed, and the loss of one is reported at once", async () => {
      const several = await locks.acquire(["a", "b"], { lease: 3_000 });
      const renewals = await server.calls("lock.renew");
      await eventually(async () => (await server.calls("lock.renew")) >= renewals + 6);
      assert.ok(several.held);
      const lost = new Promise((resolve) => several.signal.addEventListener("abort", resolve));
      await server.admin.del("b");
      await lost;
      assert.ok(!several.held);
      await assert.rejects(several.release(), LostError);
      await eventually(() => server.nothingIsLeft());
    });

    test("locks that are closed as soon as one is lost leave what was taken with it", async () => {
      const several = await locks.acquire(["a", "b"], { lease: 60_000, renew: false });
      const closed = new Promise((resolve) => several.signal.addEventListener("abort", () => resolve(locks.close())));
      await server.admin.del("b");
      await assert.rejects(several.extend(60_000), LostError);
      assert.equal(await closed, true);
      assert.ok(await server.nothingIsLeft());
    });

    test("an aborted wait for several locks leaves every queue", async () => {
      const b = await locks.acquire("b");
      const controller = new AbortController();
      const waiting = locks.acquire(["a", "b", "c"], { signal: controller.signal });
      await eventually(async () => (await server.waiters("c")) === 1);
      controller.abort(new Error("enough"));
      await assert.rejects(waiting, /enough/);
      await b.release();
      await eventually(() => server.nothingIsLeft());
    });

    test("an acquire of several locks whose reply is lost leaves no key taken", async () => {
      const far = await more();
      await (await far.acquire("warm")).release();
      relay.hold("replies");
      const waiting = far.tryAcquire(["a", "b"]);
      await eventually(async () => (await server.admin.exists("a", "b")) === 2);
      relay.cut();
      relay.pass();
      const outcome = await waiting.catch((error) => error);
      if (!(outcome instanceof UnreachableError)) await outcome.release(); // asked again, under another name
      await eventually(() => server.nothingIsLeft());
    });

    test("impossible arguments are refused", async () => {
      await assert.rejects(locks.acquire([]), RangeError);
      await assert.rejects(locks.acquire(["a", 7]), TypeError);
      await assert.rejects(locks.acquire(["a"], { mode: "read" }), TypeError);
      await assert.rejects(locks.takeOver(["a"], "b", 1), TypeError);
      await assert.rejects((await locks.acquire(["a"])).passTo("b", 1_000), TypeError);
      await assert.rejects(locks.acquire(["a", "a"]), RefusedError);
    });
  });
}
