// The same tests for either library: how each makes its clients, and what every test begins with.
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
 * Before each test the server is empty, with a relay before it, and `use` is given that, a client and its locks; after it all are
 * closed. What comes back makes locks of another client, behind the relay unless told otherwise.
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
