// The README's code for BullMQ and NestJS, run with the real frameworks.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Server } from "./servers.js";

const folder = path.resolve(import.meta.dirname, "..");
const run = (...words) => promisify(execFile)(process.execPath, words, { cwd: folder });
let server;
before(async () => (server = await Server.start(["--maxmemory-policy", "noeviction"])));
after(() => server.close());

/** The output of the README's program for a framework, run against our server in a folder next to the packages. */
async function output(framework, language) {
  const text = await readFile(path.join(folder, "README.md"), "utf8");
  const [section] = new RegExp(`^### ${framework}[^]*?(?=^###|^Tests:)`, "m").exec(text);
  const [, block] = new RegExp("```" + language + "\\n([^]*?)```").exec(section);
  const place = path.join(folder, `build/${framework}-${process.pid}`);
  try {
    await mkdir(place, { recursive: true });
    await writeFile(path.join(place, `guide.${language}`), block.replaceAll("6379", String(server.port)));
    if (language === "ts") {
      const { compilerOptions } = JSON.parse(await readFile(path.join(folder, "tsconfig.json"), "utf8"));
      const options = { ...compilerOptions, experimentalDecorators: true, outDir: "." };
      await writeFile(path.join(place, "tsconfig.json"), JSON.stringify({ compilerOptions: options, files: ["guide.ts"] }));
      await run("node_modules/typescript/bin/tsc", "--project", place).catch((error) => assert.fail(error.stdout));
    }
    return (await run(path.join(place, "guide.js"))).stdout;
  } finally {
    await rm(place, { recursive: true, force: true });
  }
}

test("jobs of one customer run one at a time in BullMQ's worker, those of several customers at the same time", { timeout: 600_000 }, async () => {
  assert.equal(await output("BullMQ", "js"), "imported: 6 most at once for one customer: 1\n");
  assert.equal(await server.info("holders"), 0);
});

test("NestJS's services exclude each other, and a scheduled one runs once a period", { timeout: 600_000 }, async () => {
  assert.equal(await output("NestJS", "ts"), "sold: 3\nreports: 1\n");
  assert.equal(await server.waiters("stock:42"), 0);
});
