// The Node libraries, one at a time: benches/peers/README.md says what a driver does.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Locks } from "mortise-lock";
import Redlock from "redlock";
import { IoredisAdapter, createLock } from "redlock-universal";

const [name, port, ...numbers] = process.argv.slice(2);
const [seconds, workers, keys, hold, think, writers] = numbers.map(Number);

// Each takes a lock, or fails, and then is asked again; what comes back gives it back.
const contenders = {
  mortise: (client) => {
    const locks = new Locks(client);
    return async (key, write) => {
      const lock = await locks.acquire(key, { mode: write ? "write" : "read" });
      return () => lock.release();
    };
  },
  redlock: (client) => {
    const redlock = new Redlock([client], { retryCount: -1 }); // without limit; delay and jitter are its own
    return async (key) => {
      const lock = await redlock.acquire([key], 30_000);
      return () => lock.release();
    };
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

async function work(worker) {
  const write = writers === 0 || worker < writers;
  for (let n = worker; ; n += workers) {
    since[worker] = performance.now();
    let release;
    while (!release) release = await acquire(`key:${n % keys}`, write).catch(() => {});
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
