// What a user expects, and what goes wrong when lock commands meet a client library's defaults and a broken network.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import v8 from "node:v8";
import vm from "node:vm";
import { now } from "../clock.cjs";
import { BusyError, LockError, Locks, LostError, RefusedError, UnreachableError } from "../index.cjs";
import { fresh, libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

v8.setFlagsFromString("--expose-gc");
const collectGarbage = vm.runInNewContext("gc");

/** Collects Node's warnings. Returns a function that stops this and returns them. */
function warningsFromNow() {
  const warnings = [];
  const warn = (warning) => warnings.push(`${warning}`);
  process.on("warning", warn);
  return () => process.off("warning", warn) && warnings;
}

/** Counts writes to the network. The returned function ends that, and returns the count. */
function writesFromNow() {
  let writes = 0;
  const { _write, _writev } = Socket.prototype;
  for (const [name, write] of Object.entries({ _write, _writev })) {
    Socket.prototype[name] = function (...words) {
      if (this.remotePort) writes += 1;
      return write.apply(this, words);
    };
  }
  return () => Object.assign(Socket.prototype, { _write, _writev }) && writes;
}

let server;
before(async () => (server = await Server.start(["--enable-debug-command", "yes"])));
after(() => server.close());

for (const [library, own] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    let client, locks, relay;
    const more = fresh(own, () => server, (made) => ({ client, locks, relay } = made));

    test("the key exists while the lock is held, and not afterwards", async () => {
      const lock = await locks.acquire("stock");
      assert.equal(await server.admin.type("stock"), "mort-lock");
      assert.ok(lock.held && lock.token > 0 && !lock.signal.aborted);
      await lock.release();
      assert.equal(await server.admin.exists("stock"), 0);
      assert.equal(lock.held, false);
      await lock.release(); // once more is no error
    });

    test("a request fails that the server lets nobody wait for", async () => {
      const lock = await locks.acquire("stock");
      await server.admin.call("ACL", "SETUSER", "default", "-lock.mail");
      try {
        await assert.rejects(locks.acquire("stock"), (error) => error instanceof RefusedError && /NOPERM/.test(error.message));
      } finally {
        await server.admin.call("ACL", "SETUSER", "default", "+lock.mail");
      }
      await lock.release();
      await eventually(async () => (await server.admin.exists("stock")) === 0);
    });

    test("a request is repeated while the server refuses writes", async () => {
      await server.admin.config("SET", "min-replicas-to-write", 1);
      const waiting = locks.acquire("stock", { wait: 60_000 });
      try {
        await assert.rejects(locks.acquire("stock", { wait: 300 }), (error) => error instanceof UnreachableError && /NOREPLICAS/.test(error.message));
      } finally {
        await server.admin.config("SET", "min-replicas-to-write", 0);
      }
      await (await waiting).release();
    });

    test("a wait ends soon after its limit if the server is silent", async () => {
      const far = await more();
      await far.using("other", () => {});
      relay.hold("replies");
      const began = performance.now();
      const waits = Array.from({ length: 70 }, (_, n) => 2_000 + 10 * n); // some end where the next attempt begins
      await Promise.all(waits.map((wait) => assert.rejects(far.acquire("stock", { wait }), UnreachableError)));
      assert.ok(performance.now() - began < 4_000);
    });

    test("a waiter that can get no letters fails with the cause at its limit", async () => {
      const lock = await locks.acquire("stock");
      await server.admin.config("SET", "maxclients", await server.connections());
      try {
        await assert.rejects(locks.tryAcquire("stock", { wait: 500 }), UnreachableError);
      } finally {
        await server.admin.config("SET", "maxclients", 10_000);
      }
      await assert.rejects(locks.acquire("stock", { wait: 500 }), BusyError);
      await lock.release();
    });

    test("waiters whose server is gone fail at their limits, and without one after ten seconds", async () => {
      const own = await Server.start();
      await own.admin.call("LOCK.ACQUIRE", "stock", "somebody", 600_000);
      const far = await more(own.port);
      const outcomes = [3_000, Infinity].map((wait) => assert.rejects(far.acquire("stock", { wait, signal: AbortSignal.timeout(20_000) }), UnreachableError));
      await eventually(async () => (await own.waiters("stock")) === 2);
      await own.kill();
      const began = performance.now();
      await Promise.all(outcomes);
      assert.ok(performance.now() - began > 9_900);
      await own.close();
    });

    test("asyncDispose releases the lock", async () => {
      const lock = await locks.acquire("stock");
      await lock[Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]();
      assert.equal(await server.admin.exists("stock"), 0);
    });

    test("using releases the lock, even after an error", async () => {
      assert.equal(await locks.using("stock", {}, (lock) => lock.token > 0), true);
      assert.equal(await locks.using("stock", (lock) => lock.held), true);
      for (const words of [["stock"], ["stock", {}], ["stock", {}, 1]]) await assert.rejects(locks.using(...words), { name: "TypeError", message: /^work is a function/ });
      await assert.rejects(locks.using("stock", {}, () => Promise.reject(new Error("mine"))), /mine/);
      assert.equal(await server.admin.exists("stock"), 0);
    });

    test("a second acquire is refused at once or after its limit", async () => {
      await locks.acquire("stock");
      assert.equal(await locks.tryAcquire("stock"), null);
      const started = performance.now();
      await assert.rejects(locks.acquire("stock", { wait: 300 }), BusyError);
      assert.ok(performance.now() - started > 290);
      for (const wait of [0.4, 1]) assert.equal(await locks.tryAcquire("stock", { wait }), null);
    });

    test("a thousand wait over two connections, and are granted in order with growing tokens", async () => {
      const holder = await locks.acquire("stock");
      const connections = await server.connections();
      const served = [];
      const all = Array.from({ length: 1000 }, (_, n) => locks.using("stock", {}, (lock) => served.push([n, lock.token])));
      await eventually(async () => (await server.waiters("stock")) === 1000);
      assert.ok((await server.connections()) <= connections + 1);
      await holder.release();
      await Promise.all(all);
      assert.deepEqual(served.map(([n]) => n), Array.from({ length: 1000 }, (_, n) => n));
      assert.ok(served.every(([, token], n) => n === 0 || token > served[n - 1][1]));
    });

    test("thirty thousand acquisitions that wait leave no memory", async () => {
      const take = async (rounds) => {
        for (let i = 0; i < rounds; i++) await locks.using("stock", {}, () => {});
        collectGarbage();
        return process.memoryUsage().heapUsed;
      };
      const both = async (rounds) => Math.max(...(await Promise.all([take(rounds), take(rounds)])));
      // Compiled code takes memory once; anything kept for each command takes some in most rounds.
      let before = await both(1_000);
      const grown = [];
      for (let round = 0; round < 3; round++) {
        const after = await both(5_000);
        grown.push(after - before);
        before = after;
      }
      const [, middle] = grown.toSorted((one, other) => one - other);
      assert.ok(middle < 3_000_000, `${grown}`);
    });

    test("twenty thousand requests that begin in one turn of a busy process are all granted and renewed", async () => {
      const keys = Array.from({ length: 20_000 }, (_, n) => `place:${n}`);
      const taken = keys.map((key) => locks.acquire(key, { lease: 30_000 }));
      for (const end = performance.now() + 2_000; performance.now() < end; ); // a long computation
      const held = await Promise.all(taken);
      const before = await server.info("total_renewals");
      await eventually(async () => (await server.info("total_renewals")) >= before + keys.length);
      assert.ok(held.every((lock) => lock.held));
      await Promise.all(held.map((lock) => lock.release()));
      await eventually(async () => (await server.info("locks")) === 0); // late replies of a busy machine are followed by LEAVE in the background
    });

    test("readers share, and keep a writer out", async () => {
      const readers = await Promise.all([1, 2].map(() => locks.acquire("page", { mode: "read" })));
      assert.equal(await locks.tryAcquire("page"), null);
      const writer = locks.acquire("page");
      await eventually(async () => (await server.waiters("page")) === 1);
      assert.equal(await locks.tryAcquire("page", { mode: "read" }), null, "a reader overtook a writer that waits");
      for (const reader of readers) await reader.release();
      await (await writer).release();
    });

    test("a lock is renewed while it is held, and ends at maxHold", async () => {
      const lock = await locks.acquire("stock", { lease: 3_000 });
      const before = await server.info("total_renewals");
      await eventually(async () => (await server.info("total_renewals")) >= before + 4);
      assert.ok(lock.held);
      await lock.release();
      const renewals = await server.calls("lock.renew");
      await (await locks.acquire("stock", { lease: 60_000, maxHold: 20_000 })).release();
      assert.equal(await server.calls("lock.renew"), renewals);
      const capped = await locks.acquire("stock", { lease: 1_500, maxHold: 2_500 });
      await eventually(() => capped.signal.aborted);
      await eventually(async () => (await server.admin.exists("stock")) === 0);
      await assert.rejects(capped.release(), LostError);
    });

    test("a lock that is not renewed ends with its lease, unless it is extended", async () => {
      const lock = await locks.acquire("stock", { lease: 10_000, renew: false });
      await lock.extend(100_000);
      const other = locks.acquire("other", { lease: 200, renew: false });
      await eventually(async () => (await other).signal.aborted);
      assert.ok((await other).signal.reason instanceof LostError);
      assert.ok(lock.held);
      await lock.release();
    });

    test("an extension counts for the whole milliseconds that the server was asked for", async () => {
      const lock = await locks.acquire("stock", { lease: 1_000, renew: false });
      const extended = lock.extend(60_000.9);
      const sent = now();
      await extended;
      assert.ok(lock.until <= sent + 60_000 - 600 - 2, `${lock.until - sent}`);
      await lock.release();
    });

    test("a lock that is not held is not extended, nor one beyond its maxHold", async () => {
      const lock = await locks.acquire("stock", { lease: 60_000, renew: false });
      await assert.rejects(Promise.all([lock.extend(60_000), lock.release()]), LostError);
      await assert.rejects(lock.extend(60_000), LostError);
      const passed = await locks.acquire("stock");
      await passed.passTo("heir", 60_000);
      await assert.rejects(passed.extend(60_000), LostError);
      const capped = await locks.acquire("other", { maxHold: 60_000 });
      await assert.rejects(capped.extend(70_000), RangeError);
      await capped.extend(50_000);
      await capped.release();
    });

    test("the client's limit of queued commands is not that of the locks", async () => {
      const own = await more(server.port, { commandsQueueMaxLength: 5 });
      const held = await Promise.all(Array.from({ length: 50 }, (_, number) => own.acquire(`stock:${number}`)));
      await Promise.all(held.map((lock) => lock.release()));
    });

    for (const breaking of [["DEL", "stock"], ["SET", "stock", "a"], ["FLUSHALL"]]) {
      test(`the loss of a lock broken by ${breaking[0]} is reported`, async () => {
        const lock = await locks.acquire("stock", { lease: 1_500 });
        await server.admin.call(...breaking);
        await eventually(() => lock.signal.aborted);
        await assert.rejects(lock.release(), LostError);
        await server.admin.flushall();
        const released = await locks.acquire("stock");
        await server.admin.call(...breaking);
        await assert.rejects(released.release(), LostError);
        await server.admin.flushall();
      });
    }

    test("two releases at once end together, with the same outcome", async () => {
      const lock = await locks.acquire("stock");
      const ended = [];
      await Promise.all([1, 2].map((n) => lock.release().then(() => ended.push(n))));
      assert.deepEqual(ended, [1, 2]);
      const broken = await locks.acquire("stock");
      await server.admin.del("stock");
      for (const { reason } of await Promise.allSettled([1, 2].map(() => broken.release()))) assert.ok(reason instanceof LostError);
    });

    test("a key that holds something else is an error", async () => {
      await server.admin.set("stock", "a lock of another library");
      await assert.rejects(locks.acquire("stock", { wait: 60_000 }), (error) => error instanceof RefusedError && /WRONGTYPE/.test(error.message));
    });

    test("an aborted wait leaves the queue", async () => {
      const holder = await locks.acquire("stock");
      const abort = new AbortController();
      const waiting = locks.acquire("stock", { signal: abort.signal });
      await eventually(async () => (await server.waiters("stock")) === 1);
      abort.abort(new Error("enough"));
      await assert.rejects(waiting, /enough/);
      await eventually(async () => (await server.waiters("stock")) === 0);
      await holder.release();
      assert.equal(await server.admin.exists("stock"), 0);
    });

    test("one signal ends a hundred waits, without a warning about its listeners, and has none afterwards", async () => {
      const warnings = warningsFromNow();
      const abort = new AbortController();
      const { signal } = abort;
      const lock = await locks.acquire("stock", { signal });
      const waiting = Array.from({ length: 100 }, () => locks.acquire("stock", { signal }));
      await eventually(async () => (await server.waiters("stock")) === 100);
      abort.abort();
      for (const outcome of await Promise.allSettled(waiting)) assert.equal(outcome.reason?.name, "AbortError");
      await eventually(async () => (await server.waiters("stock")) === 0);
      assert.ok(lock.held);
      await lock.release();
      await assert.rejects(locks.acquire("stock", { signal }), { name: "AbortError" });
      assert.deepEqual(warnings(), []);
      assert.equal(getEventListeners(signal, "abort").length, 0);
    });

    test("aborting at any moment leaves nothing", async () => {
      for (let round = 0; round < 40; round++) {
        const abort = new AbortController();
        const all = Array.from({ length: 5 }, () => locks.using("stock", { signal: abort.signal }, () => sleep(Math.random() * 2)));
        await sleep(Math.random() * 10);
        abort.abort(new Error("enough"));
        for (const { status, reason } of await Promise.allSettled(all)) assert.ok(status === "fulfilled" || /enough/.test(reason.message));
      }
      await eventually(() => server.nothingIsLeft());
    });

    test("a wait longer than every time-out of the client keeps its place and is sent once", async () => {
      const holder = await locks.acquire("stock");
      const hasty = await more(server.port, own.impatient);
      const first = hasty.acquire("stock", { wait: 60_000 });
      await eventually(async () => (await server.waiters("stock")) === 1);
      let second = false;
      const behind = locks.acquire("stock", { wait: 60_000 }).then((lock) => ((second = true), lock));
      await eventually(async () => (await server.waiters("stock")) === 2);
      for (const own of [hasty, locks]) await own.using("other", {}, () => {}); // what was answered before has been read
      const asked = await server.calls("lock.acquire");
      await sleep(1_200); // four time-outs
      assert.equal(await server.waiters("stock"), 2);
      await holder.release();
      const lock = await first;
      assert.equal(await server.calls("lock.acquire"), asked);
      assert.equal(second, false);
      await lock.release();
      await (await behind).release();
    });

    test("a waiter does not block others that share its client", async () => {
      await locks.acquire("stock");
      locks.acquire("stock").catch(() => {});
      await eventually(async () => (await server.waiters("stock")) === 1);
      await locks.using("other", {}, () => client.ping());
      assert.equal(await server.waiters("stock"), 1);
    });

    test("a lost reply leaves no lock, and the call ends", async () => {
      const far = await more();
      await (await far.acquire("other")).release();
      relay.hold("replies");
      await assert.rejects(far.tryAcquire("stock"), UnreachableError);
      assert.equal(await server.admin.exists("stock"), 1, "the request was granted, and its reply was lost");
      relay.pass();
      await eventually(async () => (await server.admin.exists("stock")) === 0);
    });

    test("a process that was blocked reads the reply that has come meanwhile", async () => {
      await (await locks.acquire("other")).release();
      const asked = await server.calls("lock.acquire");
      const asking = locks.tryAcquire("stock", { lease: 60_000 });
      await new Promise(setImmediate);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_500); // longer than a reply may take
      assert.ok((await asking)?.held);
      assert.equal(await server.calls("lock.acquire"), asked + 1);
    });

    test("a request that arrives late takes nothing, and is sent once", async () => {
      const far = await more();
      await (await far.acquire("other")).release();
      const asked = await server.calls("lock.acquire");
      relay.hold("requests");
      await assert.rejects(far.tryAcquire("stock"), UnreachableError);
      const left = await server.calls("lock.leave");
      relay.pass();
      await eventually(async () => (await server.calls("lock.leave")) > left && (await server.admin.exists("stock")) === 0);
      assert.ok((await server.calls("lock.acquire")) <= asked + 1);
      await (await locks.acquire("stock", { wait: 0 })).release();
    });

    test("a waiter that gave up over a silent connection is not granted later", async () => {
      const holder = await locks.acquire("stock");
      const far = await more();
      await (await far.acquire("other")).release();
      relay.hold("replies");
      await assert.rejects(far.acquire("stock", { wait: 500 }), LockError);
      relay.pass();
      await eventually(async () => (await server.waiters("stock")) === 0);
      await holder.release();
      assert.equal(await server.admin.exists("stock"), 0);
    });

    test("a release whose connection breaks is repeated until it gets a reply", async () => {
      const far = await more(relay.port, {}, { lease: 60_000 });
      const lock = await far.acquire("stock");
      relay.hold("requests");
      const released = lock.release();
      await sleep(10);
      relay.cut();
      relay.pass();
      await released;
      await eventually(async () => (await server.admin.exists("stock")) === 0);
    });

    test("a hundred acquisitions of one turn of the event loop go to the server in a few writes", async () => {
      await locks.using("stock", () => {}); // connects
      const writes = writesFromNow();
      const held = await Promise.all(Array.from({ length: 100 }, (_, number) => locks.acquire(`stock:${number}`)));
      assert.ok(writes() <= 8); // of sixteen each
      await Promise.all(held.map((lock) => lock.release()));
    });

    test("five thousand requests for one lock while connections break are granted, and LEAVE is sent once for each", async () => {
      const warnings = warningsFromNow();
      const [far, asked, left] = [await more(), await server.calls("lock.acquire"), await server.calls("lock.leave")];
      const served = Array.from({ length: 5_000 }, () => far.using("stock", {}, () => {}));
      for (const part of [1_000, 2_000, 3_000]) {
        await eventually(async () => (await server.calls("lock.acquire")) >= asked + part);
        relay.cut();
      }
      await Promise.all(served);
      assert.ok((await server.calls("lock.leave")) - left < 10_000); // some 3,000, and more where a busy machine replies too late
      assert.deepEqual(warnings(), []);
      await eventually(async () => (await server.waiters("stock")) === 0);
    });

    test("a waiter whose connections break keeps its place", async () => {
      const holder = await locks.acquire("stock");
      const far = await more();
      const waiting = far.acquire("stock", { wait: 60_000 });
      await eventually(async () => (await server.waiters("stock")) === 1);
      await far.using("other", {}, () => {}); // what was answered before has been read
      const asked = await server.calls("lock.acquire");
      relay.cut();
      await holder.release();
      await (await waiting).release();
      assert.equal(await server.calls("lock.acquire"), asked);
    });

    test("a waiter whose box was closed asks again", async () => {
      const holder = await locks.acquire("stock");
      const far = await more();
      const waiting = far.acquire("stock", { wait: 60_000 });
      await eventually(async () => (await server.waiters("stock")) === 1);
      await server.admin.config("SET", "lock.mail-timeout", 100);
      relay.hold("requests");
      await eventually(async () => (await server.waiters("stock")) === 0);
      await server.admin.config("SET", "lock.mail-timeout", 5000);
      relay.pass();
      await eventually(async () => (await server.waiters("stock")) === 1);
      await holder.release();
      await (await waiting).release();
    });

    test("a grant that arrives too late is not used", async () => {
      const holder = await locks.acquire("stock");
      const far = await more();
      const waiting = far.acquire("stock", { wait: 60_000, lease: 3_000, renew: false });
      await eventually(async () => (await server.waiters("stock")) === 1);
      relay.hold("replies");
      await holder.release();
      await eventually(async () => (await server.admin.exists("stock")) === 1);
      await eventually(async () => (await server.admin.exists("stock")) === 0);
      relay.pass();
      const lock = await waiting;
      assert.ok(lock.held);
      assert.ok(await server.admin.call("LOCK.INFO", "stock", "OWNER", lock.owner), "an expired lock was returned");
    });

    test("a loss is reported at the deadline when the server is silent", async () => {
      const far = await more();
      const lock = await far.acquire("stock", { lease: 1_000 });
      relay.hold("requests");
      await eventually(() => lock.signal.aborted);
      relay.pass();
      await assert.rejects(lock.release(), LostError);
    });

    test("renewals of many locks that the server refuses are tried again only after a pause", async () => {
      const held = await Promise.all(Array.from({ length: 1_200 }, (_, number) => locks.acquire(`stock:${number}`, { lease: 3_000 })));
      await server.admin.call("ACL", "SETUSER", "default", "-lock.renew");
      const before = await server.refusals("lock.renew");
      try {
        await eventually(() => held.every((lock) => !lock.held));
        const each = (await server.refusals("lock.renew") - before) / held.length;
        assert.ok(each <= 10, `${each} for each lock`); // 300 ms between two, from 700 ms on
      } finally {
        await server.admin.call("ACL", "SETUSER", "default", "+lock.renew");
      }
    });

    test("close releases renewed locks and ends waits", async () => {
      const other = await more(server.port);
      const foreign = await other.acquire("foreign");
      const held = await locks.acquire("held");
      const waiting = assert.rejects(locks.acquire("foreign"), LockError);
      await eventually(async () => (await server.waiters("foreign")) === 1);
      assert.equal(await locks.close(30_000), true);
      await waiting;
      assert.equal(await server.waiters("foreign"), 0);
      assert.equal(await server.admin.exists("held"), 0);
      assert.ok(held.signal.aborted);
      await foreign.release();
    });

    test("close ends in time if the server is silent", async () => {
      const far = await more();
      await eventually(() => relay.pairs.size === 1); // the client's own
      relay.hold("replies");
      const waiting = assert.rejects(far.acquire("stock"), UnreachableError);
      await eventually(() => relay.pairs.size === 2);
      const began = performance.now();
      assert.equal(await far.close(100), false);
      assert.ok(performance.now() - began < 1_500);
      await waiting;
    });

    test("a deadlock between two named tasks is reported", async () => {
      const [left, right] = [await locks.acquire("left", { task: "a" }), await locks.acquire("right", { task: "b" })];
      const waiting = locks.acquire("right", { task: "a", wait: 60_000 });
      await eventually(async () => (await server.waiters("right")) === 1);
      await assert.rejects(locks.acquire("left", { task: "b", wait: 60_000 }), /DEADLOCK/);
      await right.release();
      await (await waiting).release();
      await left.release();
    });

    test("a name or a task that is no string is refused", async () => {
      for (const value of [[5], [["a"]], { key: "a" }, 5, null, undefined, true, Buffer.from("a")]) {
        for (const take of ["acquire", "tryAcquire", "using"]) {
          await assert.rejects(locks[take](value, {}, () => {}), { name: "TypeError", message: /the name of a lock is a string, not / });
        }
        if (value !== undefined) await assert.rejects(locks.tryAcquire("a", { task: value }), { name: "TypeError", message: /task is a string, not / });
      }
      assert.equal(await server.info("locks"), 0);
    });

    test("a time that is no number is refused with its name", async () => {
      for (const option of ["lease", "wait", "maxHold"]) {
        for (const value of ["10", NaN, [1], {}, true, 5n]) {
          await assert.rejects(locks.acquire("a", { [option]: value }), { name: "TypeError", message: new RegExp(`^${option} is a number of milliseconds, not `) });
        }
      }
      await assert.rejects(locks.acquire("a", { lease: Infinity }), { name: "TypeError", message: /^lease .* Infinity/ });
      assert.throws(() => new Locks(client, { lease: "10" }), { name: "TypeError", message: /^lease / });
      const lock = await locks.acquire("a", { wait: Infinity, maxHold: Infinity, lease: 10_000.5 });
      for (const value of ["10", NaN, Infinity, undefined]) await assert.rejects(lock.extend(value), { name: "TypeError" });
      assert.ok(lock.held);
    });

    test("a lease that is too short is refused with its bound, and one shorter than a round trip is requested with pauses", async () => {
      for (const value of [2, 1, 0, -5, -Infinity]) {
        for (const option of ["lease", "maxHold"]) {
          await assert.rejects(locks.acquire("a", { [option]: value }), { name: "RangeError", message: new RegExp(`^${option} .* 3 .*${value}`) });
        }
        assert.throws(() => new Locks(client, { lease: value }), RangeError);
      }
      assert.equal(await locks.tryAcquire("a", { wait: -5 }).then((lock) => lock.release()), undefined); // asked once
      const far = await more();
      await far.using("other", {}, () => {});
      relay.delay = 10;
      const asked = await server.calls("lock.acquire");
      const tooLate = (error) => error.name === "LockError" && /^a hold of 3 ms .* lease and maxHold/.test(error.message);
      await assert.rejects(far.tryAcquire("a", { lease: 3, renew: false, wait: 2_000 }), tooLate);
      assert.ok((await server.calls("lock.acquire")) - asked < 15);
      await assert.rejects(far.tryAcquire("a", { maxHold: 3 }), tooLate);
      const token = await (await locks.acquire("b")).passTo("heir", 60_000);
      await assert.rejects(far.takeOver("b", "heir", token, { lease: 3 }), tooLate);
      relay.delay = 0;
    });

    test("requests are repeated after a restart of the server", async () => {
      const own = await Server.start();
      try {
        const [one, two] = [await more(own.port, {}, { lease: 2_000 }), await more(own.port)];
        const held = await one.acquire("stock");
        const waiting = two.acquire("stock", { wait: 60_000 });
        await eventually(async () => (await own.waiters("stock")) === 1);
        await own.kill();
        await own.run();
        await (await waiting).release();
        await eventually(() => held.signal.aborted);
        await one.close();
        await two.close();
      } finally {
        await own.close();
      }
    });
  });
}
