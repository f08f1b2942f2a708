// Compiled, not run: the accepted clients, and the results.
import { Cluster, Redis } from "ioredis";
import { createClient, createCluster, createSentinel } from "redis";
import { Lock, Locks, MultiLock, UnconfirmedError, type AcquireOptions } from "mortise-lock";
// @ts-expect-error: what the library does not export
import { type Held } from "mortise-lock";

// Sentinel of node-redis 5 cannot be duplicated.
export async function types(signal: AbortSignal, sentinel: Pick<ReturnType<typeof createSentinel>, "sendCommand" | "getMasterNode">) {
  const every = [
    new Locks(new Redis()), new Locks(new Cluster([])), new Locks(createClient()), new Locks(createCluster({ rootNodes: [] })),
    new Locks(createSentinel({ name: "locks", sentinelRootNodes: [] }), { lease: 1_000, replicas: 1 }),
  ];
  const options: AcquireOptions = { wait: 5, mode: "read", signal, renew: false, maxHold: 1, task: "a" };
  const lock: Lock | null = await every[0].tryAcquire("key", options);
  const token: number | undefined = lock?.token;
  const text: string = await every[1].using("key", {}, async (held) => `${held.token} ${token}`);
  const length: number = await every[1].using("key", () => text.length);
  const passed: number | undefined = await lock?.passTo("job:7", 60_000);
  const taken: Lock | null = await every[0].takeOver("key", "job:7", passed ?? 0, { holder: "worker-1", atLeast: 60_000 });
  const reply: unknown = await taken?.guard("SET", "key:value", 17, Buffer.from("a"));
  // @ts-expect-error: no command
  await taken?.guard();
  const left: number | null = await every[0].revoke("key", taken?.owner);
  const rest: number = await every[0].semaphore("pool", 10).using({ permits: 3 }, (permits) => permits.token + (left ?? 0));
  // @ts-expect-error: permits are no readers
  await every[0].semaphore("pool", rest).acquire({ mode: "read" });
  // @ts-expect-error: a name that is no string
  await every[2].acquire([7]);
  const several: MultiLock | null = await every[2].tryAcquire(["{stock}:1", "{stock}:2"], { wait: 5, signal });
  await every[2].using(["{stock}:1", "{stock}:2"], (locks) => locks.token + locks.names.length + (several?.token ?? 0));
  // @ts-expect-error: several are for writers
  await every[2].acquire(["key"], { mode: "read" });
  // @ts-expect-error: a time that is no number
  await every[2].acquire("key", { wait: "5" });
  // @ts-expect-error: a mode that there is not
  await every[2].acquire("key", { mode: "shared" });
  new Locks(sentinel);
  // @ts-expect-error: only the library makes them
  new UnconfirmedError("key");
  // @ts-expect-error: no client
  new Locks("redis://127.0.0.1");
  return text + length + String(reply);
}
