// The types compile, and the examples run unchanged.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./servers.js";

const folder = path.resolve(import.meta.dirname, "..");
const reader = path.resolve(folder, "../../target/helpers/node/reader"); // where the README's own commands have installed the library
const run = (command, ...words) => promisify(execFile)(command, words, { cwd: folder, env: { ...process.env, PORT: server.port } });
let server;
before(async () => (server = await Server.start()));
after(() => server.close());

test("TypeScript accepts the types, and `await using` acquires and releases", { timeout: 600_000 }, async () => {
  await run(process.execPath, "node_modules/typescript/bin/tsc", "--project", ".").catch((error) => assert.fail(error.stdout));
  const { stdout } = await run(process.execPath, "build/examples/stock.js");
  assert.match(stdout, /inside, with the fencing token \d+\ngiven back: true/);
});

test("the published package has every file that it needs", { timeout: 600_000 }, async () => {
  const { stdout } = await run("npm", "pack", "--dry-run", "--json", "--loglevel=silent");
  const [{ files }] = JSON.parse(stdout);
  const packed = new Set(files.map((file) => file.path));
  for (const file of ["index.cjs", "index.d.cts", "README.md"]) assert.ok(packed.has(file), file);
  for (const file of [...packed].filter((name) => name.endsWith(".cjs"))) {
    const needs = [...(await readFile(path.join(folder, file), "utf8")).matchAll(/require\("\.\/([^"]+)"\)/g)];
    for (const [, needed] of needs) assert.ok(packed.has(needed), needed);
  }
});

// Without Node's own way to `require` modules, which it has since 20.19 only.
const USES = {
  "required.cjs": `const { Locks, LockError } = require("mortise-lock");`,
  "imported.mjs": `import { Locks, LockError } from "mortise-lock";`,
  "imported as a whole.mjs": `import mortise from "mortise-lock"; const { Locks, LockError } = mortise;`,
  "imported in CommonJS.cjs": `import("mortise-lock").then(({ Locks, LockError }) => use(Locks, LockError));`,
};
const USE = `
  async function use(Locks, LockError) {
    const client = new (require("ioredis").Redis)(Number(process.env.PORT));
    const locks = new Locks(client);
    await locks.using("stock", (lock) => console.log("held:", lock.held));
    console.log("an error of its own:", new LockError("", "stock") instanceof Error && require("mortise-lock").LockError === LockError);
    await locks.close();
    client.disconnect();
  }`;
for (const [file, begin] of Object.entries(USES)) {
  test(`the library can be ${file}`, { timeout: 600_000 }, async () => {
    const place = path.join(reader, file);
    const own = file.endsWith(".mjs") ? `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);` : "";
    const call = begin.includes("use(") ? "" : "use(Locks, LockError);";
    try {
      await writeFile(place, `${own}${begin}${USE}${call}`);
      const flags = process.allowedNodeEnvironmentFlags.has("--no-experimental-require-module") ? ["--no-experimental-require-module"] : [];
      const { stdout } = await run(process.execPath, ...flags, place);
      assert.equal(stdout, "held: true\nan error of its own: true\n");
    } finally {
      await rm(place, { force: true });
    }
  });
}

for (const [module, resolution, file, line] of [
  ["node16", "node16", "typed.cts", `import { Locks, type Lock } from "mortise-lock";`],
  ["node16", "node16", "typed.mts", `import { Locks, type Lock } from "mortise-lock";`],
  ["node16", "node16", "typed.cts", `import mortise = require("mortise-lock"); const { Locks } = mortise; type Lock = mortise.Lock;`],
  ["esnext", "bundler", "typed.ts", `import { Locks, type Lock } from "mortise-lock";`],
]) {
  test(`TypeScript finds the types as ${module} in ${file}: ${line}`, { timeout: 600_000 }, async () => {
    const place = path.join(reader, file);
    try {
      await writeFile(place, `${line}\nimport { Redis } from "ioredis";\nexport async function use(): Promise<number> {
        const lock: Lock = await new Locks(new Redis()).acquire("stock");\n// @ts-expect-error: none\nlock.nothing;\nreturn lock.token; }\n`);
      const options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--lib", "es2022,esnext.disposable", "--types", "node"];
      const tsc = path.join(folder, "node_modules/typescript/bin/tsc");
      const words = [tsc, ...options, "--module", module, "--moduleResolution", resolution, file];
      await promisify(execFile)(process.execPath, words, { cwd: reader }).catch((error) => assert.fail(error.stdout));
    } finally {
      await rm(place, { force: true });
    }
  });
}

test("the example with readers runs", { timeout: 600_000 }, async () => {
  const { stdout } = await run(process.execPath, "examples/readers.js");
  assert.equal(stdout, "two readers: true true\na writer that gave up: TimeoutError\nthe writer, by a larger token\n");
});

// The programs of the README and the guides. Those of the README run where its own commands have installed the library
// (`./interop prepare`), by the commands shown with them; the others run in this folder, where the packages are.
const guides = { "README.md": reader, "../../docs/clients.md": folder, "../../docs/migrating.md": folder };
for (const [guide, place] of Object.entries(guides)) {
  const whole = await readFile(path.join(folder, guide), "utf8");
  const text = whole.replace(/^## With frameworks[^]*?(?=^Tests:)/m, ""); // frameworks.test.js runs these
  const compile = /^npx tsc .* stock\.mts$/m.exec(text)?.[0];
  for (const [number, [, language, block]] of [...text.matchAll(/```(js|ts)\n([^]*?)```/g)].entries()) {
    test(`block ${number} of ${guide} runs as it stands there`, { timeout: 600_000 }, async () => {
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
