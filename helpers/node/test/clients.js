// The same tests for either library: how each makes its clients.
import { Redis } from "ioredis";
import { createClient } from "redis";

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
