// A lock whose process is killed or stopped, or closes at the wrong moment.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, beforeEach, describe, test } from "node:test";
import { LockError, Locks, UnreachableError } from "../index.cjs";
import { libraries } from "./clients.js";
import { Server, eventually } from "./servers.js";

// Holds the lock, and replies to each line with what it believes.
const HOLDER = `
  import { createInterface } from "node:readline";
  import { Locks } from "${import.meta.resolve("../index.cjs")}";
  import { libraries } from "${import.meta.resolve("./clients.js")}";
  const [library, port] = process.argv.slice(1);
  const lock = await new Locks(await libraries[library].connect(Number(port))).acquire("stock", { lease: 1_000 });
  console.log(lock.token);
  createInterface(process.stdin).on("line", () => console.log(lock.held ? lock.token : 0));
`;

// Holds many locks, and replies to each line with how many it believes in.
const CROWD = `
  import { createInterface } from "node:readline";
  import { Locks } from "${import.meta.resolve("../index.cjs")}";
  import { libraries } from "${import.meta.resolve("./clients.js")}";
  const [library, port, count] = process.argv.slice(1);
  const locks = new Locks(await libraries[library].connect(Number(port)), { lease: 60_000 });
  const held = await Promise.all(Array.from({ length: Number(count) }, (_, n) => locks.acquire("place:" + n)));
  const tell = () => console.log(held.filter((lock) => lock.held).length);
  createInterface(process.stdin).on("line", tell);
  tell();
`;

let server;
before(async () => (server = await Server.start()));
after(() => server.close());

for (const [library, { connect, end }] of Object.entries(libraries)) {
  describe(library, { timeout: 600_000 }, () => {
    beforeEach(() => server.admin.flushall());

    async function withLocks(work) {
      const client = await connect(server.port);
      const locks = new Locks(client, { lease: 600_000 });
      try {
        await work(locks);
      } finally {
        await locks.close();
        end(client);
      }
    }

    async function withHolder(work) {
      const child = spawn(process.execPath, ["--input-type=module", "-e", HOLDER, library, String(server.port)], { stdio: ["pipe", "pipe", "inherit"] });
      const lines = createInterface(child.stdout);
      const answer = async () => Number((await once(lines, "line"))[0]);
      try {
        await work(child, answer, await answer());
      } finally {
        child.kill("SIGKILL");
      }
    }

    test("the lock of a killed holder is free when its lease is over", () =>
      withHolder(async (holder, _, token) => {
        holder.kill("SIGKILL");
        await withLocks((locks) => locks.using("stock", {}, (lock) => assert.ok(lock.token > token)));
      }));

    test("a holder that was stopped for longer than its lease knows that it has lost the lock", () =>
      withHolder(async (holder, answer, token) => {
        holder.kill("SIGSTOP");
        await withLocks(async (locks) => {
          const lock = await locks.acquire("stock");
          assert.ok(lock.token > token);
          const left = await server.calls("lock.leave");
          holder.stdin.write("\n");
          const believed = answer();
          holder.kill("SIGCONT");
          assert.equal(await believed, 0);
          await eventually(async () => (await server.calls("lock.leave")) > left);
          await lock.release(); // this releases nothing of the other holder
        });
      }));

    // With Node's default stack it takes 120,000, because all arguments of a call have to fit on it.
    test("a process survives a failed renewal of more holds than a call has arguments", async () => {
      const words = ["--stack-size=100", "--input-type=module", "-e", CROWD, library, String(server.port), "15000"];
      const child = spawn(process.execPath, words, { stdio: ["pipe", "pipe", "inherit"] });
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      try {
        assert.equal((await lines.next()).value, "15000");
        const before = await server.refusals("lock.renew");
        await server.admin.call("ACL", "SETUSER", "default", "-lock.renew");
        await eventually(async () => child.exitCode !== null || (await server.refusals("lock.renew")) >= before + 15_000);
        await server.admin.call("ACL", "SETUSER", "default", "+lock.renew");
        const renewed = await server.info("total_renewals");
        await eventually(async () => child.exitCode !== null || (await server.info("total_renewals")) >= renewed + 15_000);
        child.stdin.write("\n");
        assert.equal((await lines.next()).value, "15000");
      } finally {
        await server.admin.call("ACL", "SETUSER", "default", "+lock.renew");
        child.kill("SIGKILL");
      }
    });

    test("closing at the moment of a grant grants nothing and leaves nothing", () =>
      withLocks(async (locks) => {
        const holder = await locks.acquire("stock");
        await withLocks(async (own) => {
          // Closes in the turn in which the letter is read.
          const { asked } = own.session;
          const set = asked.set.bind(asked);
          asked.set = (owner, ticket) => {
            const settle = ticket.settle.bind(ticket);
            ticket.settle = (...answer) => {
              settle(...answer);
              if (!own.closed) own.close();
            };
            return set(owner, ticket);
          };
          const waiting = assert.rejects(own.acquire("stock"), LockError);
          await eventually(async () => (await server.waiters("stock")) === 1);
          await holder.release();
          await waiting;
          await eventually(async () => (await server.admin.exists("stock")) === 0);
          await assert.rejects(own.acquire("stock"), /closed/);
          assert.equal(await server.admin.exists("stock"), 0);
        });
      }));

    test("a server that accepts connections and never replies blocks nobody", async () => {
      const silent = await Server.start();
      const client = await connect(silent.port);
      const locks = new Locks(client);
      const held = await locks.acquire("held", { renew: false });
      silent.process.kill("SIGSTOP");
      await assert.rejects(locks.acquire("stock", { wait: 300 }), UnreachableError);
      await assert.rejects(held.extend(60_000), UnreachableError);
      silent.process.kill("SIGCONT");
      await locks.close(30_000);
      end(client);
      await silent.close();
    });
  });
}
