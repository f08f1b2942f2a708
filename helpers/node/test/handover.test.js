// Locks that are passed on, revoked, or kept for a while after the work, and the holders that operators see.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LockError, LostError, RefusedError, UnreachableError } from "../index.cjs";
import { fresh, libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

let server;
before(async () => (server = await Server.start(["--enable-debug-command", "yes"])));
after(() => server.close());

const fields = (flat) => Object.fromEntries(Array.from({ length: flat.length / 2 }, (_, n) => [flat[2 * n], flat[2 * n + 1]]));
async function holds(name, of = server) {
  const info = await of.admin.call("LOCK.INFO", name);
  return info === null ? [] : fields(info).holds.map(fields);
}
const owners = async (name, of) => (await holds(name, of)).map(({ owner }) => owner);

for (const [library, own] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    let locks, relay;
    const more = fresh(own, () => server, (made) => ({ locks, relay } = made));

    test("a lock is passed on, and one of two runners takes it over", async () => {
      const enqueued = await locks.acquire("import");
      const token = await enqueued.passTo("job:7", 600_000);
      assert.ok(token > enqueued.token && !enqueued.held && !enqueued.signal.aborted);
      await enqueued.release(); // is no error, and changes nothing
      assert.deepEqual(await owners("import"), ["job:7"]);
      assert.ok((await holds("import"))[0].lease > 500_000);

      const [runner, second] = await Promise.all([locks.takeOver("import", "job:7", token), locks.takeOver("import", "job:7", token)]);
      assert.equal(second, null);
      assert.ok(runner.held && runner.token > token);
      await runner.release();
      assert.equal(await server.admin.exists("import"), 0);
    });

    test("a lock that was taken over is renewed", async () => {
      const lock = await locks.acquire("job");
      const runner = await locks.takeOver("job", "queue", await lock.passTo("queue", 60_000), { lease: 3_000 });
      const renewals = await server.calls("lock.renew");
      await eventually(async () => (await server.calls("lock.renew")) >= renewals + 2);
      assert.ok(runner.held);
      await runner.release();
    });

    test("a lost or released lock cannot be passed on", async () => {
      const lock = await locks.acquire("job");
      await server.admin.del("job");
      await assert.rejects(lock.passTo("queue", 60_000), LostError);
      await assert.rejects(lock.release(), LostError);
      const other = await locks.acquire("job");
      await other.release();
      await assert.rejects(other.passTo("queue", 60_000), LostError);
    });

    test("a lock whose pass is refused stays held and renewed", async () => {
      const lock = await locks.acquire("job", { lease: 3_000 });
      await server.admin.call("LOCK.LEAVE", "job", `gone ${library}`, "FOR", 60_000);
      await assert.rejects(lock.passTo(`gone ${library}`, 60_000), (error) => error instanceof RefusedError && /^LEFT/.test(error.message));
      const renewals = await server.calls("lock.renew");
      await eventually(async () => (await server.calls("lock.renew")) >= renewals + 2);
      assert.ok(lock.held);
      await lock.release();
    });

    test("nothing else can be done with a lock while it is passed on, and if that is refused it is held as before", async () => {
      const lock = await (await more()).acquire("{job}", { lease: 60_000, renew: false });
      relay.delay = 50;
      const extended = lock.extend(60_000);
      await sleep(20); // its reply comes before that to the pass
      const passed = assert.rejects(lock.passTo(lock.owner, 60_000), RefusedError);
      for (const call of [() => lock.extend(60_000), () => lock.passTo("queue", 60_000), () => lock.guard("SET", "{job}:done", 1)]) {
        await assert.rejects(call(), { name: "LockError", message: /is being passed on/ });
      }
      await Promise.all([extended, passed]);
      relay.delay = 0;
      assert.ok(lock.held && !lock.signal.aborted);
      await lock.extend(60_000);
      await lock.release();
      assert.ok(await server.nothingIsLeft());
    });

    test("a pass whose reply is lost frees the lock under both names", async () => {
      const own = await more(relay.port);
      const lock = await own.acquire("job");
      relay.hold("replies");
      await assert.rejects(lock.passTo(`unheard ${library}`, 60_000), UnreachableError);
      assert.ok(lock.signal.aborted);
      await assert.rejects(lock.release(), LostError);
      relay.cut();
      relay.pass();
      await eventually(() => server.nothingIsLeft());
      await assert.rejects(server.admin.call("LOCK.ACQUIRE", "job", `unheard ${library}`, 1_000), /LEFT/);
    });

    test("a takeover whose reply is lost leaves no hold", async () => {
      const own = await more(relay.port);
      assert.equal(await own.revoke("job"), null); // is connected
      const lock = await locks.acquire("job");
      const token = await lock.passTo("queue", 60_000);
      const passes = await server.calls("lock.pass");
      relay.hold("replies");
      const taking = own.takeOver("job", "queue", token);
      taking.catch(() => {});
      await eventually(async () => (await server.calls("lock.pass")) > passes);
      relay.cut();
      relay.pass();
      await assert.rejects(taking, UnreachableError);
      await eventually(() => server.nothingIsLeft());
    });

    test("a lock released early stays taken until its least time is over", async () => {
      await locks.using("report", { atLeast: 3_000 }, async (lock) => {
        assert.deepEqual(await owners("report"), [lock.owner]);
        assert.ok((await holds("report"))[0].lease > 29_000);
      });
      const [rest] = await holds("report");
      assert.match(rest.owner, /^rest:/);
      assert.ok(rest.lease <= 3_000);
      assert.equal(await locks.tryAcquire("report"), null);
      await (await locks.acquire("report", { atLeast: 3 })).release();
    });

    test("a lock with a long owner's name stays taken, too", async () => {
      const lock = await locks.acquire("report", { lease: 60_000, atLeast: 3_000, holder: "h".repeat(212) });
      assert.ok(lock.owner.length > 250);
      await lock.release();
      const [rest] = await holds("report");
      assert.match(rest.owner, /^rest:/);
      assert.ok(rest.lease <= 3_000);
    });

    test("of several locks of which one is gone none stays taken", async () => {
      const both = await locks.acquire(["a", "b"], { atLeast: 60_000 });
      await server.admin.del("a");
      await assert.rejects(both.release(), LostError);
      await eventually(() => server.nothingIsLeft());
      await (await locks.acquire(["a", "b"], { atLeast: 60_000 })).release();
      for (const name of ["a", "b"]) assert.match((await owners(name))[0], /^rest:/);
    });

    test("a longer at-least time is the lease, so that it outlives the process", async () => {
      const lock = await locks.acquire("report", { lease: 1_000, renew: false, atLeast: 60_000 });
      assert.ok((await holds("report"))[0].lease > 59_000);
      await locks.close();
      assert.deepEqual(await owners("report"), [lock.owner]);
      assert.ok((await holds("report"))[0].lease > 50_000);
      assert.equal(lock.held, false);
    });

    test("in the grace, in which nothing is passed on, a lock stays taken until its lease is over", async () => {
      const own = await Server.start();
      try {
        const ownLocks = await more(own.port);
        const lock = await ownLocks.acquire("report", { lease: 1_000, atLeast: 10_000 });
        await own.admin.save();
        await own.kill();
        own.arguments.push("--lock.grace", "3000");
        await own.run();
        await lock.release();
        assert.deepEqual(await owners("report", own), [lock.owner]);
        assert.equal(await ownLocks.close(), true);
        assert.ok((await holds("report", own))[0].lease > 1_000);
        await eventually(() => own.nothingIsLeft());
      } finally {
        await own.close();
      }
    });

    test("a revoked lock is free at its release despite at-least", async () => {
      const lock = await locks.acquire("report", { atLeast: 60_000 });
      const left = await locks.revoke("report");
      assert.ok(left > 50_000 && left <= 60_000);
      await lock.release();
      assert.ok(await server.nothingIsLeft());
    });

    test("a revoked holder notices at its next renewal, and leaves", async () => {
      for (const atLeast of [0, 4_000]) {
        const lock = await locks.acquire("stock", { lease: 3_000, atLeast });
        assert.equal(await locks.revoke("stock", "nobody"), null);
        const left = await locks.revoke("stock", lock.owner);
        assert.ok(left > 0 && left <= 4_000);
        await eventually(() => lock.signal.aborted);
        assert.ok(lock.signal.reason instanceof LostError);
        await eventually(() => server.nothingIsLeft());
        await assert.rejects(lock.release(), LostError);
      }
    });

    test("extending a revoked lock reports the loss", async () => {
      const lock = await locks.acquire("stock", { lease: 60_000, renew: false });
      await locks.revoke("stock");
      await assert.rejects(lock.extend(60_000), LostError);
      await eventually(() => server.nothingIsLeft());
    });

    test("a key without a lock cannot be revoked or taken over", async () => {
      await server.admin.set("job", "text");
      await assert.rejects(locks.revoke("job"), RefusedError);
      await assert.rejects(locks.takeOver("job", "queue", 1), (error) => error instanceof LockError && /WRONGTYPE/.test(error.message));
    });

    test("a lock that is released while its pass is refused is not renewed again", async () => {
      const renewals = async () => Number(/cmdstat_lock\.renew:calls=(\d+)/i.exec(await server.admin.info("commandstats"))?.[1] ?? 0);
      const lock = await locks.acquire("job", { lease: 1_500 });
      const passed = assert.rejects(lock.passTo(lock.owner, 60_000), RefusedError);
      await Promise.all([passed, lock.release().catch(() => {})]); // nobody may rely on it while it is passed on
      assert.equal(await server.admin.exists("job"), 0);
      await new Promise((resolve) => setTimeout(resolve, 600)); // it would be due by now
      const before = await renewals();
      await new Promise((resolve) => setTimeout(resolve, 200));
      assert.ok((await renewals()) - before < 5);
    });

    test("closing waits for a release in flight", async () => {
      const lock = await locks.acquire("job", { lease: 60_000 });
      const released = lock.release();
      assert.equal(await locks.close(), true);
      await released;
      assert.equal(await server.admin.exists("job"), 0);
    });

    test("a lock whose refused pass was in flight when its client was closed is left", async () => {
      const lock = await locks.acquire("job", { lease: 60_000 });
      const passed = assert.rejects(lock.passTo(lock.owner, 60_000));
      assert.equal(await locks.close(), true);
      await passed;
      assert.equal(await server.admin.exists("job"), 0);
    });

    test("closed locks send nothing, and take nothing over", async () => {
      const token = await (await locks.acquire("job")).passTo("heir", 60_000);
      await locks.close();
      const clients = (await server.admin.client("LIST")).split("\n").length;
      for (const call of [() => locks.takeOver("job", "heir", token), () => locks.holds("job"), () => locks.revoke("job")]) {
        await assert.rejects(call(), UnreachableError);
      }
      assert.deepEqual(await owners("job"), ["heir"]);
      assert.ok((await server.admin.client("LIST")).split("\n").length <= clients);
    });

    test("operators see who holds", async () => {
      const lock = await locks.acquire("stock", { holder: "billing-7", atLeast: 60_000 });
      assert.match(lock.owner, /^billing-7:/);
      await lock.release();
      assert.match((await owners("stock"))[0], /^rest:billing-7:/);
      const named = await locks.acquire("order", { holder: "billing-7", task: "order-17" });
      assert.match(named.owner, /^order-17##billing-7:/);
      for (const holder of ["", "a##b"]) await assert.rejects(locks.acquire("stock", { holder }), RangeError);
      await assert.rejects(locks.acquire("stock", { holder: 7 }), TypeError);
    });
  });
}
