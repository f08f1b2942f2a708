// The user's client, as far as locks need it: which server serves what, and connections of their own, made as the client makes its own.

"use strict";
const CONNECT_TIMEOUT = 2_000; // ms
const LATE = 200; // ms after a limit in which what has come is read first
const MOST = 1_000; // calls in flight on a connection, and commands in a call

/** A request without a reply. `sent` is false where it surely never left. */
class Unanswered extends Error {
  constructor(cause, sent) {
    super("no reply", { cause });
    this.sent = sent;
  }
}
/** The first word of an error that the server has answered with. */
const codeOf = (reply) => (reply instanceof Error ? reply.message.split(" ", 1)[0] : undefined);

/**
 * One connection that all share, made anew after any trouble. What was on it then is unknown. Requests of one turn of the
 * event loop go to the server together, but never so many that their replies could come late.
 */
class Wire {
  #opening = null;
  #connection = null; // once it is open
  #calls = []; // not sent yet
  #inFlight = new Set(); // exchanges, the oldest first
  #count = 0; // calls in flight
  #timer; // one for all exchanges: most are over long before
  constructor(open, timeout) {
    this.open = open;
    this.timeout = timeout;
    this.flush = () => this.#flush();
  }
  /** The replies to some commands, which follow each other on the server. */
  call(commands) {
    return new Promise((resolve, reject) => {
      if (this.#calls.push({ commands, resolve, reject }) === 1) process.nextTick(this.flush);
    });
  }
  #flush() {
    const calls = this.#calls.splice(0, MOST - this.#count);
    if (calls.length > 0) this.#exchange(calls);
  }
  #exchange(calls) {
    this.#count += calls.length;
    const opening = (this.#opening ??= inTime(Promise.resolve().then(this.open)));
    const exchange = { calls, opening, at: 0, late: false, connection: undefined };
    if (this.#connection) return this.#send(exchange, this.#connection);
    opening.then(
      (connection) => {
        if (this.#opening === opening) this.#connection = connection;
        this.#send(exchange, connection);
      },
      (cause) => this.#failed(exchange, cause),
    );
  }
  #send(exchange, connection) {
    const { calls } = exchange;
    exchange.connection = connection;
    exchange.at = performance.now();
    this.#inFlight.add(exchange);
    if (this.#timer === undefined) this.#watch(this.timeout - LATE);
    connection.send(
      calls.length === 1 ? calls[0].commands : calls.flatMap(({ commands }) => commands),
      (replies) => {
        let end = 0;
        for (const { commands, resolve } of calls) resolve(calls.length === 1 ? replies : replies.slice(end, (end += commands.length)));
        this.#over(exchange);
      },
      (cause) => this.#failed(exchange, cause),
    );
  }
  #failed(exchange, cause) {
    if (this.#opening === exchange.opening) this.#opening = this.#connection = null;
    exchange.connection?.close();
    for (const { reject } of exchange.calls) reject(new Unanswered(cause, exchange.connection !== undefined));
    for (const { reject } of this.#calls.splice(0)) reject(new Unanswered(cause, false));
    this.#over(exchange);
  }
  #over(exchange) {
    this.#inFlight.delete(exchange);
    this.#count -= exchange.calls.length;
    if (this.#calls.length > 0) this.#flush();
  }
  // Gives up a connection whose oldest exchange is too old. In two steps, so that a process that was busy or stopped
  // first reads what has arrived.
  #watch(ms) {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      const [oldest] = this.#inFlight;
      if (!oldest) return;
      const left = oldest.at + this.timeout - LATE - performance.now();
      if (left <= 0 && oldest.late) oldest.connection.close(new Error("no reply in time"));
      oldest.late = left <= 0;
      this.#watch(left > 0 ? left + 1 : LATE);
    }, ms);
    this.#timer.unref(); // what is in flight has a socket
  }
  async close() {
    const opening = this.#opening;
    this.#opening = this.#connection = null;
    clearTimeout(this.#timer);
    await opening?.then((connection) => connection.close(), () => {});
  }
}

// Connections of a lock's own, made like those of the client that the user has. None of them ever sends anything twice: each
// ends with its first error, which all requests get.

async function openIoredis(client) {
  const connection = client.duplicate({
    lazyConnect: true, retryStrategy: () => null, sentinelRetryStrategy: () => null, reconnectOnError: null,
    maxRetriesPerRequest: 0, enableOfflineQueue: false, autoResendUnfulfilledCommands: false, enableAutoPipelining: false,
    commandTimeout: undefined, socketTimeout: undefined, connectTimeout: CONNECT_TIMEOUT, keyPrefix: "", readOnly: false,
  });
  return opened(connection, () => connection.connect(), () => connection.disconnect(), (commands) => {
    if (commands.length === 1) return connection.call(...commands[0]);
    return connection.pipeline(commands.map((command) => ["call", ...command])).exec()
      .then((replies) => replies.map(([error, reply]) => (error ? errorReply(error) : reply)));
  });
}

async function openNodeRedis(client) {
  const { socket } = client.options ?? {};
  const connection = client.duplicate({
    socket: { ...socket, reconnectStrategy: false, connectTimeout: CONNECT_TIMEOUT, socketTimeout: undefined },
    disableOfflineQueue: true, readonly: false, pingInterval: undefined,
  });
  const end = () => (connection.destroy ? connection.destroy() : connection.disconnect());
  return opened(connection, () => connection.connect(), end, (commands) => {
    if (commands.length === 1) return connection.sendCommand(commands[0].map(String));
    return Promise.all(commands.map((command) => connection.sendCommand(command.map(String)).catch(errorReply)));
  });
}

// The server's errors begin with a word in capitals; others are the library's, about the connection.
const isReply = (error) => /^[A-Z][A-Z0-9_]+( |$)/.test(error?.message);
function errorReply(error) {
  if (isReply(error)) return error;
  throw error;
}

/** A client may try to connect for ever, as with a node that is gone: the request fails instead. */
async function inTime(connecting, ms = CONNECT_TIMEOUT) {
  let stop;
  const late = new Promise((_, reject) => {
    stop = deadline(ms, () => {
      reject(new Error("no connection in time"));
      connecting.then((connection) => connection?.close?.()).catch(() => {});
    });
  });
  return Promise.race([connecting, late]).finally(() => stop());
}

/**
 * Calls `late` after `ms`, in two steps, so that a process that was busy or stopped first reads what has arrived. The
 * returned function cancels it.
 */
function deadline(ms, late) {
  let timer = setTimeout(() => (timer = setTimeout(late, LATE)), Math.min(ms, 2 ** 31 - 1) - LATE);
  return () => clearTimeout(timer);
}

// `send`: one command's reply, or a list of several commands' replies.
async function opened(connection, connect, end, send) {
  const awaited = new Set(); // requests to fail if the client never settles them
  let failure, ending;
  const fail = (error) => {
    failure ??= error;
    for (const late of awaited) awaited.delete(late) && late(failure);
  };
  const unlessGone = (promise, resolve, reject, refused = reject) => {
    awaited.add(reject);
    promise.then((outcome) => awaited.delete(reject) && resolve(outcome), (error) => awaited.delete(reject) && refused(error));
    if (failure) fail();
  };
  connection.on("error", fail);
  connection.on("end", () => fail(new Error("the connection is closed")));
  const close = (error) => {
    fail(error ?? new Error("the connection was given up"));
    ending ??= Promise.resolve().then(end).catch(() => {});
  };
  try {
    await inTime(new Promise((resolve, reject) => unlessGone(connect(), resolve, reject)));
  } catch (error) {
    close();
    throw error;
  }
  return {
    close,
    send(commands, resolve, reject) {
      try {
        if (commands.length > 1) unlessGone(send(commands), resolve, reject);
        else unlessGone(send(commands), (reply) => resolve([reply]), reject, (error) => (isReply(error) ? resolve([error]) : reject(error)));
      } catch (error) {
        reject(error);
      }
    },
  };
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

// What there is to know of a client: `address` of the node that serves a key (undefined outside of a cluster), `open` for a
// connection to it, `refresh` after it turned out to serve `key` no longer.
function topologyOf(client) {
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
  let becoming;
  const node = (address) => cluster.nodes("master").find(({ options }) => `${options.host}:${options.port}` === address);
  return {
    prefix: cluster.options?.keyPrefix ?? "",
    // Undefined if it is; all that come until then await the same.
    ready: () => cluster.status === "ready" ? undefined : (becoming ??= new Promise((resolve, reject) => {
      cluster.once("ready", resolve).once("end", () => reject(new Error("the cluster client has ended")));
      if (cluster.status === "wait") cluster.connect().catch(reject);
    }).finally(() => (becoming = undefined))),
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

module.exports = { MOST, Unanswered, codeOf, Wire, inTime, slotOf, topologyOf };
