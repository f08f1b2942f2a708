// The worker of the common run (helpers/README.md): ioredis or node-redis.
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Locks } from "../index.cjs";
import { libraries } from "./clients.js";

const [name, port, key, seconds, ledger] = process.argv.slice(2);
let over = false;
process.stdin.on("end", () => (over = true)).resume().unref?.();
setTimeout(() => (over = true), seconds * 1000).unref();
const file = openSync(ledger, "a");
const library = libraries[name];
let count = 0;

// Appends to a list under LOCK.GUARD. It fails if the lock is lost, or the reply.
const guarded = (lock) => lock.guard("RPUSH", `list:{${key}}`, `write:${lock.token}:${name}`);

// Writes only times at which the lock was certainly held: it reads the clock first, and then checks the lock.
async function inside(lock, share) {
  let last;
  const proven = () => {
    const at = process.hrtime.bigint();
    if (!lock.held) return false;
    if (last === undefined) write("enter", at);
    last = at;
    return true;
  };
  const write = (word, at) => writeSync(file, `${word} ${lock.token} ${at} ${name}:${process.pid}${share ? ` ${share}` : ""}\n`);
  if (!proven()) return;
  count++;
  if (!share) await guarded(lock).catch(() => {});
  for (let step = 0; step < 3; step++) {
    await sleep(1);
    if (!proven()) break;
  }
  write("leave", last);
}

const client = await connected();
const locks = new Locks(client, { lease: 1_000, replicas: Number(process.env.REPLICAS ?? 0) });

async function connected() {
  for (;;) {
    try {
      return await library.connect(Number(port));
    } catch {
      await sleep(20);
    }
  }
}

async function task(section) {
  for (let round = 0; !over; round++) {
    try {
      await section(round % 3);
    } catch {
      await sleep(20);
    }
  }
}
// Passes it on to a name, takes it over from there, and is inside again.
async function handOver(lock) {
  const heir = `${name}:${process.pid}:${lock.token}`;
  const token = await lock.passTo(heir, 1_000);
  const taken = await locks.takeOver(key, heir, token);
  if (!taken) return;
  await inside(taken);
  await taken.release();
}

const pool = locks.semaphore(`${key}:permits`, 5);
const keys = [key, `${key}:1`, `${key}:2`];
const alone = () =>
  locks.using(key, { wait: 5_000 }, async (lock) => {
    await inside(lock);
    if (lock.token % 4 === 0) await handOver(lock);
  });
const reading = () => locks.using(key, { mode: "read", wait: 5_000 }, (lock) => inside(lock, "read"));
const beside = (round) => pool.using({ wait: 5_000, permits: 1 + round }, (lock) => inside(lock, 1 + round));
const several = (round) => {
  const pair = [round, (round + 1) % 3];
  return locks.using(pair.map((number) => keys[number]), { wait: 5_000 }, (both) => inside(both, pair));
};

await Promise.all([alone, alone, alone, alone, reading, reading, beside, beside, several, several].map(task));
await locks.close(10_000);
library.end(client);
console.log("done", count);
