// The same tests for both libraries: how each makes its clients, and the set-up of every test.
import { afterEach, beforeEach } from "node:test";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { Locks } from "../index.cjs";
import { Relay } from "./servers.js";

export const libraries = {
  ioredis: {
    async connect(port, options = {}) {
      const client = new Redis({ port, host: "127.0.0.1", ...options });
      client.on("error", () => {});
      return client;
    },
    end: (client) => client.disconnect(),
    impatient: { commandTimeout: 300, socketTimeout: 300 },
  },
  "node-redis": {
    async connect(port, { socket, ...options } = {}) {
      const client = createClient({ socket: { port, host: "127.0.0.1", ...socket }, ...options });
      client.on("error", () => {});
      await client.connect();
      return client;
    },
    end: (client) => client.destroy(),
    impatient: { socket: { socketTimeout: 300 }, commandOptions: { timeout: 300 } },
  },
};

/**
 * Before each test, empties the server, puts a relay before it, and calls `use` with the relay, a client and its locks; closes all of
 * them after the test. Returns a function that makes locks of another client, by default behind the relay.
 */
export function fresh({ connect, end }, server, use) {
  const open = [];
  let relay;
  async function more(port = relay.port, options = {}, lockOptions = {}) {
    const client = await connect(port, options);
    const locks = new Locks(client, lockOptions);
    open.push({ client, locks });
    return locks;
  }
  beforeEach(async () => {
    await server().admin.flushall();
    relay = await Relay.start(server().port);
    await more(server().port);
    use({ relay, ...open[0] });
  });
  afterEach(async () => {
    relay.pass();
    for (const { client, locks } of open.splice(0).reverse()) {
      await locks.close();
      end(client);
    }
    relay.close();
  });
  return more;
}
