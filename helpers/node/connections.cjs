// The user's client, as far as locks need it: which server serves what, and connections of their own, made as the client makes its own.

"use strict";
const CONNECT_TIMEOUT = 2_000; // ms
const LATE = 200; // ms after a limit in which what has come is read first
const CONFIRM = 1_000; // ms that replicas may take to confirm
const TICK = 200; // ms by which a call's age is counted: the clock costs more than all else that is done for it here
const MOST = 1_000; // calls in flight on a connection
const TOGETHER = 16; // calls at most in one packet: the server works on it while the next one is filled

/** A request without a reply. `sent` is false where it surely never left. */
class Unanswered extends Error {
  constructor(cause, sent) {
    super("no reply", { cause });
    this.sent = sent;
  }
}
/** Why a renewal does not count that the server has made. */
class TooFew extends Error {
  constructor(needed, had) {
    super(`${had} replicas have the lock, and ${needed} have to`);
    Object.assign(this, { needed, had });
  }
}
/** The first word of an error that the server has answered with. */
const codeOf = (reply) => (reply instanceof Error ? reply.message.split(" ", 1)[0] : undefined);

/**
 * One connection that all share, made anew after any trouble. What was on it then is unknown. Calls of one turn of the event
 * loop go to the server together, but never so many that their replies could come late.
 */
class Wire {
  #opening = null;
  #connection = null; // once it is open
  #waiting = []; // calls not sent yet
  #inFlight = new Set(); // calls, the oldest first
  #timer; // one for all calls: most are over long before
  #ticks = 0; // of the timer
  #closed = false; // it opens no connection any more
  #isDoubtful = false; // another server may be the right one by now
  constructor(open, timeout) {
    this.open = open;
    this.limit = timeout / TICK;
  }
  /** The reply to a command, or the error in its place: the server's or Unanswered. The server gets the commands in the order of the calls. */
  call(command) {
    return new Promise((resolve) => {
      if (this.#closed) return resolve(new Unanswered(new Error("the locks are closed"), false));
      if (this.#isDoubtful && this.#inFlight.size === 0) this.#fail(new Error("another server may be the primary by now"));
      const call = { command, resolve, sentAt: 0 };
      if (this.#connection !== null && this.#waiting.length === 0 && this.#inFlight.size < MOST) return this.#send(call);
      this.#waiting.push(call);
      if (this.#opening === null) this.#open();
    });
  }
  /** Connects anew once no call is in flight. */
  doubt() {
    this.#isDoubtful = true;
  }
  #open() {
    this.#isDoubtful = false;
    const opening = (this.#opening = inTime(Promise.resolve().then(this.open)));
    opening.then(
      (connection) => {
        if (this.#opening !== opening) return;
        this.#connection = connection;
        connection.gone.then((cause) => this.#lose(connection, cause));
        this.#flush();
      },
      (cause) => this.#opening === opening && this.#fail(cause),
    );
  }
  #flush() {
    while (this.#connection !== null && this.#waiting.length > 0 && this.#inFlight.size < MOST) this.#send(this.#waiting.shift());
  }
  #send(call) {
    const connection = this.#connection;
    call.sentAt = this.#ticks;
    const isAlone = this.#inFlight.size === 0;
    this.#inFlight.add(call);
    if (this.#timer === undefined) this.#watch();
    try {
      connection.send(call.command, isAlone).then(
        (reply) => this.#settle(call, reply),
        (error) => (isReply(error) ? this.#settle(call, error) : this.#lose(connection, error)),
      );
    } catch (error) {
      this.#fail(error);
    }
  }
  #settle(call, reply) {
    if (!this.#inFlight.delete(call)) return; // its connection was given up before
    call.resolve(reply);
    if (this.#waiting.length > 0) this.#flush();
  }
  // All that is on a connection fails with its first error.
  #lose(connection, cause) {
    if (this.#connection === connection) this.#fail(cause);
  }
  #fail(cause) {
    const sent = [...this.#inFlight];
    this.#inFlight.clear();
    this.#connection?.close();
    this.#opening = this.#connection = null;
    for (const { resolve } of sent) resolve(new Unanswered(cause, true));
    for (const { resolve } of this.#waiting.splice(0)) resolve(new Unanswered(cause, false));
  }
  // Gives up a connection whose oldest call is too old. A process that was busy or stopped misses ticks, and after the last one it
  // reads what has arrived before it judges.
  #watch() {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#ticks++;
      const [oldest] = this.#inFlight;
      if (oldest === undefined) return;
      this.#watch();
      if (this.#ticks - oldest.sentAt > this.limit) setImmediate(() => this.#inFlight.has(oldest) && this.#fail(new Error("no reply in time")));
    }, TICK);
    this.#timer.unref(); // what is in flight has a socket
  }
  async close() {
    this.#closed = true;
    const opening = this.#opening;
    this.#fail(new Error("the connection was given up"));
    this.#timer = clearTimeout(this.#timer);
    await opening?.then((connection) => connection.close(), () => {});
  }
}

/**
 * Renewals that as many replicas confirm. They go with WAIT over a connection of their own, because WAIT is about what that connection has
 * written, and blocks it. While one WAIT is under way, the next renewals gather.
 */
class Confirmer {
  #gathered = [];
  #isBusy = false;
  constructor(open, replicas, timeout) {
    this.replicas = replicas;
    this.wait = ["WAIT", replicas, CONFIRM];
    this.wire = new Wire(() => this.#open(open), timeout);
  }
  // Before a connection has written anything, WAIT counts the replicas that are attached.
  async #open(open) {
    const connection = await open();
    const had = await connection.send(this.wait, true).catch((error) => error);
    if (had >= this.replicas) return connection;
    connection.close();
    throw typeof had === "number" ? new TooFew(this.replicas, had) : had;
  }
  /** The replies to renewals, or errors in their place: Unanswered for those that too few replicas have. */
  confirm(renewals) {
    return new Promise((resolve) => {
      this.#gathered.push({ renewals, resolve });
      if (!this.#isBusy) this.#send();
    });
  }
  async #send() {
    this.#isBusy = true;
    while (this.#gathered.length > 0) {
      const together = this.#gathered.splice(0);
      const commands = [...together.flatMap(({ renewals }) => renewals), this.wait];
      const replies = await Promise.all(commands.map((command) => this.wire.call(command)));
      const had = replies.pop();
      const problem = typeof had === "number" ? new Unanswered(new TooFew(this.replicas, had), true) : had;
      const counted = (reply) => (typeof reply !== "number" || had >= this.replicas ? reply : problem);
      for (const { renewals, resolve } of together) resolve(replies.splice(0, renewals.length).map(counted));
    }
    this.#isBusy = false;
  }
}

// Connections of a lock's own, made like those of the client that the user has. None of them ever sends anything twice: each
// ends with its first error, which all requests get.

async function openIoredis(client) {
  const connection = client.duplicate({
    lazyConnect: true, retryStrategy: () => null, sentinelRetryStrategy: () => null, reconnectOnError: null,
    maxRetriesPerRequest: 0, enableOfflineQueue: false, autoResendUnfulfilledCommands: false, enableAutoPipelining: false,
    commandTimeout: undefined, socketTimeout: undefined, connectTimeout: CONNECT_TIMEOUT, keyPrefix: "", readOnly: false,
    stringNumbers: false,
  });
  // By name, in lower case: ioredis makes a name so anew for each of its checks.
  const names = new Map();
  const senderOf = (name) => names.get(name) ?? names.set(name, connection.createBuiltinCommand(name.toLowerCase()).string).get(name);
  let corked = null; // the socket while it gathers what one turn of the event loop sends
  let gathered = 0;
  const uncork = () => {
    corked.uncork();
    corked = null;
  };
  const gather = () => {
    if (corked === null) {
      corked = connection.stream;
      setImmediate(uncork);
    } else if (++gathered < TOGETHER) return;
    else corked.uncork();
    corked.cork();
    gathered = 0;
  };
  return opened(connection, () => connection.connect(), () => connection.disconnect(), (command, isAlone) => {
    if (!isAlone && connection.stream) gather();
    return senderOf(command[0]).apply(connection, command.slice(1));
  });
}

async function openNodeRedis(client) {
  const { socket } = client.options ?? {};
  const connection = client.duplicate({
    socket: { ...socket, reconnectStrategy: false, connectTimeout: CONNECT_TIMEOUT, socketTimeout: undefined },
    disableOfflineQueue: true, readonly: false, pingInterval: undefined, commandOptions: {},
  });
  const end = () => (connection.destroy ? connection.destroy() : connection.disconnect());
  return opened(connection, () => connection.connect(), end, (command) => connection.sendCommand(command.map((word) => (Buffer.isBuffer(word) ? word : String(word)))));
}

// The server's errors begin with a word in capitals; others are the library's, about the connection.
const isReply = (error) => /^[A-Z][A-Z0-9_]+( |$)/.test(error?.message);

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

// `send` sends a command, and returns the promise of its reply; `isAlone`: nothing else is in flight. `gone` is the promise of the first error.
async function opened(connection, connect, end, send) {
  let fail, ending;
  const gone = new Promise((resolve) => (fail = resolve));
  connection.on("error", fail);
  connection.on("end", () => fail(new Error("the connection is closed")));
  const close = () => (ending ??= Promise.resolve().then(end).catch(() => {}));
  try {
    await inTime(Promise.race([connect(), gone.then((error) => Promise.reject(error))]));
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

module.exports = { LATE, MOST, Confirmer, TooFew, Unanswered, codeOf, Wire, inTime, slotOf, topologyOf };
