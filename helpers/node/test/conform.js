// The worker of the conformance run (helpers/README.md): ioredis or node-redis.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { BusyError, Locks, LostError, UnreachableError } from "../index.cjs";

const [name, port, password] = process.argv.slice(2);
const ROUNDS = 5; // of each task that shares an object
const POOL = 3; // the permits of a semaphore that tasks share
const client =
  name === "ioredis" ? new Redis({ port: Number(port), password, lazyConnect: true }) : createClient({ socket: { port: Number(port) }, password });
client.on("error", () => {});
const locks = new Locks(client, { replicas: Number(process.env.REPLICAS) });
const acquired = new Map();
const blocks = new Map();

const answer = (handle, ...words) => process.stdout.write(`${[handle, ...words].join(" ")}\n`);

async function acquire(handle, keys, lease, wait, renew = true) {
  const names = keys.split(",");
  const options = { lease: Number(lease), wait: wait === "ever" ? Infinity : Number(wait), renew };
  acquired.set(handle, await locks.acquire(names.length > 1 ? names : keys, options));
  answer(handle, "granted");
}

/** Lets `count` tasks share one object. Each is inside ROUNDS times. */
async function share(handle, kind, key, count) {
  const pool = locks.semaphore(key, POOL);
  const modes = { lock: "write", read: "read" };
  const using = (work) => (kind === "permits" ? pool.using(work) : locks.using(key, { mode: modes[kind] }, work));
  let [inside, most, entered] = [0, 0, 0];
  const task = async () => {
    for (let round = 0; round < ROUNDS; round++) {
      await using(async () => {
        entered++;
        most = Math.max(most, ++inside);
        await sleep(1);
        inside--;
      });
    }
  };
  await Promise.all(Array.from({ length: Number(count) }, task));
  answer(handle, "done", entered, most);
}

async function block(handle, key, lease) {
  const body = new Promise((resolve, reject) => blocks.set(handle, { leave: resolve, fail: () => reject(new Error("body")) }));
  try {
    await locks.using(key, { lease: Number(lease) }, () => (answer(handle, "inside"), body));
    answer(handle, "left");
  } catch (error) {
    if (error instanceof LostError) answer(handle, "caught lost");
    else if (error.message === "body") answer(handle, "caught body", ...(error.cause instanceof LostError ? ["with lost"] : []));
    else throw error;
  }
}

const orders = {
  acquire,
  fixed: (handle, keys, lease, wait) => acquire(handle, keys, lease, wait, false),
  extend: (handle, lease) => acquired.get(handle).extend(Number(lease)).then(() => answer(handle, "extended")),
  held: async (handle) => answer(handle, acquired.get(handle).held ? "held" : "lost"),
  release: (handle) => acquired.get(handle).release().then(() => answer(handle, "released")),
  block,
  leave: async (handle) => blocks.get(handle).leave(),
  fail: async (handle) => blocks.get(handle).fail(),
  share,
  exit: async (handle) => process.stdout.write(`${handle} leaves the hold\n`, () => process.exit(0)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [order, handle, ...words] = line.split(" ");
  orders[order](handle, ...words).catch((error) => {
    const kind = error instanceof BusyError ? "busy" : error instanceof LostError ? "lost" : error instanceof UnreachableError ? "unreachable" : "refused";
    answer(handle, kind, ...(kind === "busy" || kind === "lost" ? [] : [error.message.replaceAll(/\s+/g, " ")]));
  });
}
await locks.close();
process.exit(0);
