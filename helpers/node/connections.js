// Connections of a lock's own, made like those of the client that the user has: ioredis or node-redis, one server, Cluster
// or Sentinel. None of them ever sends anything twice: each ends with its first trouble, and whoever asked is told.

// Redis Cluster's hash of a key, over what stands between its first { and the next } if that is not empty.
export function slotOf(key) {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  let crc = 0;
  for (const byte of Buffer.from(open >= 0 && close > open + 1 ? key.slice(open + 1, close) : key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

// What there is to know of a client: `address` of the node that serves a key (undefined outside of a cluster), `open` for a
// connection to it, `refresh` after it turned out not to serve `key` any more.
export function topologyOf(client) {
  if (typeof client?.refreshSlotsCache === "function") return ioredisCluster(client);
  if (typeof client?.call === "function" && typeof client?.duplicate === "function") return single(() => openIoredis(client), client.options?.keyPrefix);
  if (typeof client?.nodeClient === "function") return nodeRedisCluster(client);
  if (typeof client?.getMasterNode === "function") {
    return single(() => client._execute(false, async (master) => openNodeRedis(master)));
  }
  if (typeof client?.sendCommand === "function" && typeof client?.duplicate === "function") return single(() => openNodeRedis(client));
  throw new TypeError("a client of ioredis or node-redis is needed");
}

const single = (open, prefix = "") => ({ prefix, address: () => undefined, open, refresh: async () => {} });

function ioredisCluster(cluster) {
  const node = (address) => cluster.nodes("master").find(({ options }) => `${options.host}:${options.port}` === address);
  return {
    prefix: cluster.options?.keyPrefix ?? "",
    ready: () => cluster.status === "ready" || new Promise((resolve, reject) => {
      cluster.once("ready", resolve).once("end", () => reject(new Error("the cluster client has ended")));
      if (cluster.status === "wait") cluster.connect().catch(reject);
    }),
    address: (key) => cluster.slots[slotOf(key)]?.[0],
    open: (address) => {
      const found = node(address);
      if (!found) throw new Error(`the cluster knows no primary ${address}`);
      return openIoredis(found);
    },
    refresh: () => new Promise((resolve) => cluster.refreshSlotsCache(resolve)),
  };
}

function nodeRedisCluster(cluster) {
  return {
    prefix: "",
    address: (key) => cluster.slots[slotOf(key)]?.master?.address,
    open: async (address) => {
      const found = cluster.masters.find((master) => master.address === address);
      if (!found) throw new Error(`the cluster knows no primary ${address}`);
      return openNodeRedis(await cluster.nodeClient(found));
    },
    // Its own client reads the slots anew when a command of its own is sent elsewhere.
    refresh: (key) => cluster.sendCommand(key, false, ["LOCK.INFO", key]).catch(() => {}),
  };
}

const CONNECT_TIMEOUT = 2_000;

async function openIoredis(client) {
  const connection = client.duplicate({
    lazyConnect: true, retryStrategy: () => null, reconnectOnError: null, maxRetriesPerRequest: 0, enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false, enableAutoPipelining: false, commandTimeout: undefined, socketTimeout: undefined,
    connectTimeout: CONNECT_TIMEOUT, keyPrefix: "", readOnly: false,
  });
  return opened(connection, () => connection.connect(), () => connection.disconnect(), async (commands) => {
    if (commands.length === 1) return [await connection.call(...commands[0]).catch(errorReply)];
    const replies = await connection.pipeline(commands.map((command) => ["call", ...command])).exec();
    return replies.map(([error, reply]) => (error ? errorReply(error) : reply));
  });
}

async function openNodeRedis(client) {
  const { socket } = client.options ?? {};
  const connection = client.duplicate({
    socket: { ...socket, reconnectStrategy: false, connectTimeout: CONNECT_TIMEOUT, socketTimeout: undefined },
    disableOfflineQueue: true, readonly: false, pingInterval: undefined,
  });
  const end = () => (connection.destroy ? connection.destroy() : connection.disconnect());
  return opened(connection, () => connection.connect(), end, (commands) =>
    Promise.all(commands.map((command) => connection.sendCommand(command).catch(errorReply))));
}

// What the server says begins with a word in capitals; anything else is the library's, about the connection.
function errorReply(error) {
  if (/^[A-Z][A-Z0-9_]+( |$)/.test(error?.message)) return error;
  throw error;
}

async function opened(connection, connect, end, send) {
  let fail;
  const gone = new Promise((_, reject) => (fail = reject));
  gone.catch(() => {});
  connection.on("error", (error) => fail(error));
  connection.on("end", () => fail(new Error("the connection is closed")));
  const close = (error) => {
    fail(error ?? new Error("the connection was given up"));
    Promise.resolve().then(end).catch(() => {});
  };
  const timer = setTimeout(() => close(new Error("no connection in time")), CONNECT_TIMEOUT);
  try {
    await Promise.race([connect(), gone]);
  } catch (error) {
    close();
    throw error;
  } finally {
    clearTimeout(timer);
  }
  // A client may leave what it will never answer unsettled: whoever asked is told by `gone`.
  return { close, send: (commands) => Promise.race([gone, send(commands.map((command) => command.map(String)))]) };
}
