// The types compile, and the examples run as they stand.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
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

// The README and the guides, where they show JavaScript. The files lie here for a moment, so that the packages are found.
const guides = ["README.md", "../../docs/clients.md", "../../docs/migrating.md"];
for (const guide of guides) {
  const text = await readFile(path.join(folder, guide), "utf8").catch(() => "");
  for (const [number, [, block]] of [...text.matchAll(/```js\n([^]*?)```/g)].entries()) {
    test(`block ${number} of ${guide} runs as it stands there`, { timeout: 60_000 }, async () => {
      const file = path.join(folder, `test/guide-${process.pid}-${number}.mjs`);
      await server.admin.flushall();
      await writeFile(file, block.replaceAll("6379", String(server.port)));
      try {
        await run(process.execPath, file);
        assert.ok(await server.nothingIsLeft());
      } finally {
        await rm(file);
      }
    });
  }
}
