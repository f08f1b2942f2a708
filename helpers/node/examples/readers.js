// JavaScript, node-redis: readers share a lock, a writer waits for them, and an AbortSignal ends a wait.
import { createClient } from "redis";
import { Locks } from "mortise-lock";

const client = await createClient({ url: `redis://127.0.0.1:${process.env.PORT ?? 6379}` }).connect();
const locks = new Locks(client);

const ann = await locks.acquire("report", { mode: "read" });
const ben = await locks.acquire("report", { mode: "read" });
console.log("two readers:", ann.held, ben.held);

const stopped = await locks.acquire("report", { signal: AbortSignal.timeout(100) }).catch((error) => error);
console.log("a writer that gave up:", stopped.name);

const writer = locks.using("report", {}, (lock) => console.log("the writer, by", lock.token > ben.token ? "a larger token" : "?"));
await ann.release();
await ben.release();
await writer;

await locks.close();
await client.close();
