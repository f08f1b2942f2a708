// TypeScript: a lock for as long as a block lasts, and what to do with its signal and its token.
import { Redis } from "ioredis";
import { BusyError, Locks } from "mortise-lock";

const client = new Redis(Number(process.env.PORT ?? 6379));
const locks = new Locks(client);

try {
  await using lock = await locks.acquire("stock:42", { wait: 5_000 });
  console.log("inside, with the fencing token", lock.token);
  lock.signal.addEventListener("abort", () => console.error("lost:", lock.signal.reason));
  await client.set("stock:42:count", lock.token);
} catch (error) {
  if (!(error instanceof BusyError)) throw error;
  console.log("somebody else has it");
}
console.log("given back:", (await client.exists("stock:42")) === 0);
await locks.close();
client.disconnect();
