// The Node libraries, one at a time: benches/peers/README.md says what a driver does.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Locks } from "mortise-lock";
import { Semaphore } from "redis-semaphore";
import Redlock from "redlock";
import { IoredisAdapter, createLock } from "redlock-universal";

const [name, port, ...numbers] = process.argv.slice(2);
const [seconds, workers, keys, hold, think, writers, permits, most] = numbers.map(Number);

// Each takes what a case asks for, of a key or, as a list, of several; or fails, and then is asked again. What comes back gives it back.
const contenders = {
  mortise: (client) => {
    const locks = new Locks(client);
    return async (key, write) => {
      const lock = permits ? await locks.semaphore(key, permits).acquire()
        : await locks.acquire(key, Array.isArray(key) ? {} : { mode: write ? "write" : "read" });
      return () => lock.release();
    };
  },
  redlock: (client) => {
    const redlock = new Redlock([client], { retryCount: -1 }); // without limit; delay and jitter are its own
    return async (key) => {
      const lock = await redlock.acquire([key].flat(), 30_000);
      return () => lock.release();
    };
  },
  "redis-semaphore": (client) => async (key) => {
    const semaphore = new Semaphore(client, key, permits, { lockTimeout: 30_000, acquireTimeout: Infinity }); // the delay is its own
    await semaphore.acquire();
    return () => semaphore.release();
  },
  "redlock-universal": (client) => {
    const adapter = new IoredisAdapter(client);
    return async (key) => {
      const lock = createLock({ adapter, key, ttl: 30_000, retryAttempts: 1_000_000 }); // the delay is its own
      const held = await lock.acquire();
      return () => lock.release(held);
    };
  },
};

const acquire = contenders[name](new Redis(Number(port)));
for (let n = 0; n < 500; n++) await (await acquire("warm", true))();
console.log("ready");
await once(process.stdin, "data");

const waits = Array.from({ length: workers }, () => []);
const since = Array(workers).fill(0);
const micros = (start) => Math.round((performance.now() - start) * 1000);

// Two keys at least.
function some() {
  const chosen = new Set();
  for (let left = 2 + Math.floor(Math.random() * (most - 1)); chosen.size < left; ) chosen.add(`key:${Math.floor(Math.random() * keys)}`);
  return [...chosen];
}

async function work(worker) {
  const write = writers === 0 || worker < writers;
  for (let n = worker; ; n += workers) {
    const key = most ? some() : `key:${n % keys}`;
    since[worker] = performance.now();
    let release;
    while (!release) release = await acquire(key, write).catch(() => {});
    waits[worker].push(micros(since[worker]));
    since[worker] = 0;
    if (hold > 0) await sleep(hold);
    await release();
    if (think > 0) await sleep(think);
  }
}

for (let worker = 0; worker < workers; worker++) work(worker);
await sleep(seconds * 1000);
const served = waits.map((own) => own.length);
since.forEach((start, worker) => start && waits[worker].push(micros(start)));
process.stdout.write(`${JSON.stringify({ served, waits })}\n`, () => process.stdin.once("data", () => process.exit()).once("end", () => process.exit()));
