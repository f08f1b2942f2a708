// Together with redlock on the same server and under the same names, as during a switch from it.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import Redlock from "redlock";
import { Locks } from "../index.cjs";
import { Server, eventually } from "./servers.js";

let server, client, locks, old;
before(async () => {
  server = await Server.start();
  client = new Redis(server.port);
  locks = new Locks(client, { lease: 2_000, poll: 20 });
  old = new Redlock([client], { retryCount: 0 });
});
after(async () => {
  await locks.close();
  client.disconnect();
  await server.close();
});

test("each library notices the other's lock and waits for it", async () => {
  const theirs = await old.acquire(["stock"], 10_000);
  assert.equal(await locks.tryAcquire("stock"), null);
  assert.equal(await locks.tryAcquire("stock", { wait: 100 }), null);
  const waiting = locks.acquire("stock");
  await theirs.release();
  const ours = await waiting;
  await assert.rejects(old.acquire(["stock"], 10_000));
  await ours.release();
  await (await old.acquire(["stock"], 10_000)).release();
});

test("a late release by redlock does not end our lock", async () => {
  const theirs = await old.acquire(["stock"], 100);
  const ours = await locks.acquire("stock", { wait: 10_000 });
  await assert.rejects(theirs.release());
  assert.ok(ours.held);
  assert.equal(await server.admin.type("stock"), "mort-lock");
  await ours.release();
});

test("redlock and this library compete for one lock, and are never inside together", { timeout: 600_000 }, async () => {
  const patient = new Redlock([client], { retryCount: 2_000, retryDelay: 5, retryJitter: 5 });
  const served = { old: 0, new: 0 };
  let inside = 0;
  const section = async (who) => {
    assert.equal(++inside, 1);
    served[who]++;
    await sleep(1);
    inside--;
  };
  const end = Date.now() + 2_000;
  const each = async (enter) => {
    while (Date.now() < end) await enter().then(() => sleep(Math.random() * 20));
  };
  await Promise.all([
    ...[1, 2, 3].map(() => each(() => locks.using("both", {}, () => section("new")))),
    ...[1, 2, 3].map(() => each(() => patient.using(["both"], 5_000, () => section("old")))),
  ]);
  assert.ok(served.old > 0 && served.new > 0, JSON.stringify(served));
  await eventually(() => server.nothingIsLeft());
});
