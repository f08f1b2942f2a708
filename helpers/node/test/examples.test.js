// The types compile, and the examples run as they stand.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./servers.js";

const folder = path.resolve(import.meta.dirname, "..");
const run = (command, ...words) => promisify(execFile)(command, words, { cwd: folder, env: { ...process.env, PORT: server.port } });
let server;
before(async () => (server = await Server.start()));
after(() => server.close());

test("TypeScript takes the types, and `await using` holds and gives back", { timeout: 120_000 }, async () => {
  await run(process.execPath, "node_modules/typescript/bin/tsc", "--project", ".").catch((error) => assert.fail(error.stdout));
  const { stdout } = await run(process.execPath, "build/examples/stock.js");
  assert.match(stdout, /inside, with the fencing token \d+\ngiven back: true/);
});

test("the example with readers runs", { timeout: 60_000 }, async () => {
  const { stdout } = await run(process.execPath, "examples/readers.js");
  assert.equal(stdout, "two readers: true true\na writer that gave up: TimeoutError\nthe writer, by a larger token\n");
});
