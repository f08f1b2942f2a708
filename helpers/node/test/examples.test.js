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

test("what would be published has every file that it needs", { timeout: 60_000 }, async () => {
  const { stdout } = await run("npm", "pack", "--dry-run", "--json", "--loglevel=silent");
  const [{ files }] = JSON.parse(stdout);
  const packed = new Set(files.map((file) => file.path));
  for (const file of ["index.js", "index.d.ts", "README.md"]) assert.ok(packed.has(file), file);
  for (const file of [...packed].filter((name) => name.endsWith(".js"))) {
    for (const [, needed] of (await readFile(path.join(folder, file), "utf8")).matchAll(/from "\.\/([^"]+)"/g)) assert.ok(packed.has(needed), needed);
  }
});

test("the example with readers runs", { timeout: 60_000 }, async () => {
  const { stdout } = await run(process.execPath, "examples/readers.js");
  assert.equal(stdout, "two readers: true true\na writer that gave up: TimeoutError\nthe writer, by a larger token\n");
});

// The README and the guides, where they show programs. Those of the README run where its own commands have installed the library
// (`./interop prepare`), by the commands that stand beside them; the others beside these tests, where the packages are.
const reader = path.resolve(folder, "../../target/helpers/node/reader");
const guides = { "README.md": reader, "../../docs/clients.md": folder, "../../docs/migrating.md": folder };
for (const [guide, place] of Object.entries(guides)) {
  const text = await readFile(path.join(folder, guide), "utf8");
  const compile = /^npx tsc .* stock\.mts$/m.exec(text)?.[0];
  for (const [number, [, language, block]] of [...text.matchAll(/```(js|ts)\n([^]*?)```/g)].entries()) {
    test(`block ${number} of ${guide} runs as it stands there`, { timeout: 120_000 }, async () => {
      const name = place === reader ? "stock" : `guide-${process.pid}-${number}`;
      const files = [`${name}.mjs`, `${name}.mts`].map((file) => path.join(place, file));
      await server.admin.flushall();
      try {
        await writeFile(files[language === "ts" ? 1 : 0], block.replaceAll("6379", String(server.port)));
        if (language === "ts") await run("bash", "-c", `cd '${place}' && ${compile}`).catch((error) => assert.fail(error.stdout));
        const { stdout } = await run(process.execPath, files[0]);
        if (place === reader) assert.match(stdout, /inside, with the fencing token \d+/);
        assert.ok(await server.nothingIsLeft());
      } finally {
        for (const file of files) await rm(file, { force: true });
      }
    });
  }
}
