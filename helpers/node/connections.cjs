// The user's client, as far as locks need it: which server serves what, and connections of their own, made as the client makes its own.
"use strict";
const { inTime } = require("./promises.cjs");

const CONNECT_TIMEOUT = 2_000; // ms
const TOGETHER = 16; // calls at most in one packet: the server works on it while the next one is filled

// Connections of a lock's own, made like those of the client that the user has. None of them ever sends anything twice: each
// ends with its first error, which all requests get.

async function openIoredis(client, options) {
  const connection = client.duplicate({
    ...options, sentinelCommandTimeout: CONNECT_TIMEOUT / 2, lazyConnect: true, retryStrategy: () => null, sentinelRetryStrategy: () => null, reconnectOnError: null,
    maxRetriesPerRequest: 0, enableOfflineQueue: false, autoResendUnfulfilledCommands: false, enableAutoPipelining: false,
    commandTimeout: undefined, socketTimeout: undefined, connectTimeout: CONNECT_TIMEOUT, keyPrefix: "", readOnly: false,
    stringNumbers: false,
  });
  let packet = ""; // what one turn of the event loop sends
  let size = 0; // the commands in it
  const flush = () => {
    if (size > 0) connection.stream?.write(packet);
    packet = "";
    size = 0;
  };
  const stream = {
    write(command) {
      if (typeof command !== "string") {
        flush();
        return connection.stream.write(command); // with a Buffer in it
      }
      if (size === 0) process.nextTick(flush);
      packet += command;
      if (++size === TOGETHER) flush();
    },
  };
  // All that call() uses of a client: this one's commands go into the packet.
  const sender = { options: connection.options, sendCommand: (command) => connection.sendCommand(command, stream) };
  const send = (command) => connection.call.apply(sender, command);
  return opened(connection, send);
}

async function openNodeRedis(client) {
  const { socket } = client.options ?? {};
  const connection = client.duplicate({
    socket: { ...socket, reconnectStrategy: false, connectTimeout: CONNECT_TIMEOUT, socketTimeout: undefined },
    disableOfflineQueue: true, commandsQueueMaxLength: undefined, legacyMode: false, readonly: false, pingInterval: undefined, commandOptions: {},
  });
  return opened(connection, (command) => connection.sendCommand(command.map((word) => (Buffer.isBuffer(word) ? word : String(word)))));
}

// `send` sends a command, and returns the promise of its reply. `gone` is the promise of the first error.
async function opened(connection, send) {
  let fail;
  const gone = new Promise((resolve) => (fail = resolve));
  connection.on("error", fail);
  connection.on("end", () => fail(new Error("the connection is closed")));
  const end = () => (connection.destroy ? connection.destroy() : connection.disconnect()); // node-redis 5 has both
  const close = () => Promise.resolve().then(end).catch(() => {});
  try {
    await inTime(Promise.race([connection.connect(), gone.then((error) => Promise.reject(error))]), CONNECT_TIMEOUT);
  } catch (error) {
    close();
    throw error;
  }
  return { send, close, gone };
}

// Redis Cluster's hash of a key, over what stands between its first { and the next } if that is not empty.
function slotOf(key) {
  const open = key.indexOf("{");
  const close = key.indexOf("}", open + 1);
  let crc = 0;
  for (const byte of Buffer.from(open >= 0 && close > open + 1 ? key.slice(open + 1, close) : key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

// What there is to know of a client: `address` of the node that serves a key (undefined outside of a cluster), `mapped` for the
// client's own address of a node, `open` for a connection to it, `refresh` after it turned out to serve `key` no longer, and `isReady`
// once it knows the nodes.
function topologyOf(client) {
  if (typeof client?.refreshSlotsCache === "function") return ioredisCluster(client);
  if (typeof client?.call === "function" && typeof client?.duplicate === "function") return ioredis(client);
  if (typeof client?.nodeClient === "function") return nodeRedisCluster(client);
  if (typeof client?.getMasterNode === "function") {
    return single(async () => openNodeRedis(await inTime(client._execute(false, async (master) => master), CONNECT_TIMEOUT)));
  }
  if (typeof client?.select === "function" && typeof client?.duplicate === "function") return single(() => openNodeRedis(client));
  throw new TypeError("a client of ioredis 5 or node-redis 4 (clusters: 4.6) or later is needed");
}

const single = (open, prefix = "") => ({ prefix, isReady: () => true, address: () => undefined, open, refresh: async () => {} });

function ioredis(client) {
  let opened = 0; // each connection asks another sentinel first, because some may be down
  const open = () => {
    const { sentinels } = client.options;
    const begin = opened++;
    return openIoredis(client, { sentinels: sentinels?.map((_, n) => sentinels[(begin + n) % sentinels.length]) });
  };
  return single(open, client.options?.keyPrefix);
}

function ioredisCluster(cluster) {
  const addressOf = ({ host, port }) => `${host}:${port}`;
  return {
    prefix: cluster.options?.keyPrefix ?? "",
    isReady: () => {
      if (cluster.status === "wait") cluster.connect().catch(() => {});
      return cluster.status === "ready";
    },
    address: (key) => cluster.slots[slotOf(key)]?.[0],
    mapped: (address) => addressOf(cluster.natMapper(address)),
    open: (address) => {
      const nodes = cluster.nodes("all");
      const like = nodes.find(({ options }) => addressOf(options) === address) ?? nodes[0]; // the client lists no node without slots
      if (!like) throw new Error("the cluster's client knows no node");
      const colon = address.lastIndexOf(":");
      return openIoredis(like, { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) });
    },
    refresh: () => new Promise((resolve) => cluster.refreshSlotsCache(resolve)),
  };
}

function nodeRedisCluster(cluster) {
  return {
    prefix: "",
    isReady: () => true,
    address: (key) => cluster.slots[slotOf(key)]?.master?.address,
    mapped: (address) => address,
    open: async (address) => {
      const found = cluster.masters.find((master) => master.address === address);
      if (!found) throw new Error(`the cluster knows no primary ${address}`);
      return openNodeRedis(await inTime(cluster.nodeClient(found), CONNECT_TIMEOUT)); // which is waited for without an end if the node is gone
    },
    // Its own client reads the slots anew when a command of its own is sent elsewhere.
    refresh: (key) => cluster.sendCommand(key, false, ["LOCK.INFO", key]).catch(() => {}),
  };
}

module.exports = { CONNECT_TIMEOUT, slotOf, topologyOf };
