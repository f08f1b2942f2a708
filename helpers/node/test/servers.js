// Servers and broken networks for the tests: all on loopback, on their own ports, and ended with the test.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";

const root = path.resolve(import.meta.dirname, "../../..");
const MODULE = process.env.MORTISE_MODULE ?? path.join(root, "target/release/libmortise.so");
const SERVER = process.env.MORTISE_SERVER ?? "redis-server";

export async function eventually(condition, seconds = 120) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await sleep(10)) {
    const value = await condition();
    if (value) return value;
  }
  throw new Error(`not within ${seconds} s: ${condition}`);
}

/** A listener on the port, or nothing if it is in use. */
function listen(port) {
  return new Promise((resolve) => {
    const listener = net.createServer().once("error", () => resolve(undefined));
    listener.listen(port, "127.0.0.1", () => resolve(listener));
  });
}

/**
 * A port that no other test of any language gets, even while its server is down: the process that listens 2,500 above owns it.
 * It is below the range of outgoing connections, and a cluster's bus is 10,000 above.
 */
export async function claimPort() {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 2_500);
    const claim = await listen(port + 2_500);
    if (!claim) continue;
    claim.unref();
    const probe = await listen(port);
    if (!probe) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

export class Server {
  static async start(options = [], { sentinel } = {}) {
    const server = new Server();
    server.port = await claimPort();
    server.folder = await mkdtemp(path.join(tmpdir(), "mortise-node-"));
    server.arguments = ["--port", server.port, "--bind", "127.0.0.1", "--save", "", "--dir", server.folder, "--loadmodule", MODULE, ...options];
    if (sentinel) {
      const file = path.join(server.folder, "sentinel.conf");
      await writeFile(file, `port ${server.port}\nbind 127.0.0.1\ndir ${server.folder}\n${sentinel}`);
      server.arguments = [file, "--sentinel"];
    }
    await server.run();
    return server;
  }
  async run() {
    this.process = spawn(SERVER, this.arguments.map(String), { stdio: "ignore" });
    this.admin?.disconnect();
    this.admin = new Redis(this.port, { retryStrategy: () => 20, maxRetriesPerRequest: null });
    this.admin.on("error", () => {});
    await eventually(() => this.admin.ping());
  }
  async info(field) {
    const value = new RegExp(`^lock_${field}:(.*)\r`, "m").exec(await this.admin.info("lock"))?.[1];
    return Number(value);
  }
  async waiters(key) {
    const info = await this.admin.call("LOCK.INFO", key);
    if (!info) return 0;
    return Array.isArray(info) ? info[info.indexOf("waiters") + 1] : (info.waiters ?? info.get("waiters"));
  }
  async calls(command) {
    const stats = (await this.admin.info("commandstats")).toLowerCase();
    return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }
  async refusals(command) {
    const stats = (await this.admin.info("commandstats")).toLowerCase();
    return Number(new RegExp(`cmdstat_${command}:.*rejected_calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }
  async connections() {
    return Number(/connected_clients:(\d+)/.exec(await this.admin.info("clients"))[1]);
  }
  async nothingIsLeft() {
    return (await this.admin.dbsize()) === 0 && (await this.info("waiters")) === 0;
  }
  async kill() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGKILL");
    await ended;
  }
  async close() {
    this.admin.disconnect();
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}

export const clusterOptions = ["--cluster-enabled", "yes", "--cluster-node-timeout", "3000"];

export async function startCluster() {
  const servers = await Promise.all([1, 2, 3].map(() => Server.start(clusterOptions)));
  for (const [number, { admin }] of servers.entries()) {
    await admin.call("CLUSTER", "ADDSLOTSRANGE", number * 5461, number === 2 ? 16383 : number * 5461 + 5460);
    await admin.call("CLUSTER", "SET-CONFIG-EPOCH", number + 1);
    if (number > 0) await admin.call("CLUSTER", "MEET", "127.0.0.1", servers[0].port);
  }
  const agrees = async ({ admin }) => {
    const info = await admin.call("CLUSTER", "INFO");
    return info.includes("cluster_state:ok") && info.includes("cluster_slots_assigned:16384") && info.includes("cluster_known_nodes:3");
  };
  await eventually(async () => (await Promise.all(servers.map(agrees))).every(Boolean));
  return servers;
}

/** Waits for a replica. A primary sends a newly loaded one nothing before its first request, a second later. */
export async function eventuallyHasAll(replica, primary) {
  const offset = async ({ admin }, side) => Number(new RegExp(`${side}_repl_offset:(\\d+)`).exec(await admin.info("replication"))[1]);
  const written = await offset(primary, "master");
  await eventually(async () => (await offset(replica, "slave")) >= written);
}

/** A proxy before a server. It can delay or hold back data in either direction, and cut connections. */
export class Relay {
  delay = 0;
  static async start(target) {
    const relay = new Relay();
    relay.target = target;
    relay.pairs = new Set();
    relay.silent = { requests: false, replies: false };
    relay.server = net.createServer((near) => {
      const far = net.connect(relay.target, "127.0.0.1");
      const pair = [near, far];
      relay.pairs.add(pair);
      relay.pump(pair, near, far, "requests");
      relay.pump(pair, far, near, "replies");
    });
    await new Promise((resolve) => relay.server.listen(0, "127.0.0.1", resolve));
    relay.port = relay.server.address().port;
    return relay;
  }
  pump(pair, source, sink, way) {
    source.on("data", (data) => (this.delay ? setTimeout(() => sink.write(data), this.delay) : sink.write(data))).on("error", () => {}).on("close", () => {
      this.pairs.delete(pair);
      sink.destroy();
    });
    if (this.silent[way]) source.pause();
  }
  hold(way) {
    this.silent[way] = true;
    for (const [near, far] of this.pairs) (way === "requests" ? near : far).pause();
  }
  pass() {
    this.silent = { requests: false, replies: false };
    for (const ends of this.pairs) for (const end of ends) end.resume();
  }
  cut() {
    for (const ends of this.pairs) for (const end of ends) end.destroy();
  }
  close() {
    this.pass();
    this.cut();
    this.server.close();
  }
}
