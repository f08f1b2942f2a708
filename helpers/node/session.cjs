// What the Locks of one client share, if the same number of replicas confirms them: the servers, with their connections, the requests under
// way, and names that nobody has had.
"use strict";
const { randomUUID } = require("node:crypto");
const { setTimeout: pause } = require("node:timers/promises");
const { CONNECT_TIMEOUT, topologyOf } = require("./connections.cjs");
const { Node } = require("./node.cjs");
const { inTime } = require("./promises.cjs");
const { Unanswered, codeOf } = require("./wire.cjs");

const LEAVE_FOR = 60_000; // ms in which what arrives late of a name that was left changes nothing
const POLL = 20; // ms after which a cluster's client is asked again whether it knows the nodes

const sessions = new WeakMap(); // by client, its sessions by how many replicas confirm

/** The key by which a command is routed. */
const keyOf = (command) => command[command[0] === "LOCK.MACQUIRE" ? 4 : 1];

/** The address in a redirection. A server that does not know its clients' name for it gives the port alone: the host is that of `node`. */
function addressOf(target, node) {
  return /^:\d+$/.test(target) ? node.address.slice(0, node.address.lastIndexOf(":")) + target : target;
}

class Session {
  asked = new Map(); // the tickets of the requests under way, by their owners
  ended = false; // nothing is sent any more
  #client;
  #users = 0; // Locks that are not closed
  #nodes = new Map();
  #refreshing = null;
  #id = randomUUID();
  #count = 0;

  constructor(client, replicas) {
    this.#client = client;
    this.replicas = replicas;
    this.topology = topologyOf(client);
  }

  /** The client's session, for one more of its Locks. */
  static join(client, replicas) {
    const all = sessions.get(client) ?? new Map();
    const session = all.get(replicas) ?? new Session(client, replicas); // refuses what is no client
    sessions.set(client, all.set(replicas, session));
    session.#users++;
    return session;
  }

  /** Closes the connections with the last of the client's Locks. What is left from then on goes with its lease. */
  part() {
    if (--this.#users > 0) return;
    this.ended = true;
    sessions.get(this.#client).delete(this.replicas);
    for (const wire of [...this.#nodes.values()].flatMap((node) => node.wires)) wire.close();
  }

  nodeOf(key) {
    return this.#nodeAt(this.topology.address(key));
  }
  #nodeAt(address) {
    if (!this.#nodes.has(address)) this.#nodes.set(address, new Node(this, address));
    return this.#nodes.get(address);
  }

  /** Lets the client find out again which node serves the key. All who ask at the same time await the same. */
  refresh(key) {
    const done = () => (this.#refreshing = null);
    return (this.#refreshing ??= inTime(Promise.resolve(this.topology.refresh(key)), CONNECT_TIMEOUT).then(done, done));
  }

  /**
   * The reply to a command, or the error in its place, of the node that serves its key. `ticket`: of a request that may be answered by
   * mail.
   */
  async ask(command, ticket) {
    for (let left = CONNECT_TIMEOUT; !this.topology.isReady(); left -= POLL) {
      if (left <= 0) return new Unanswered(new Error("the cluster's client is not connected"), false);
      await pause(POLL);
    }
    const key = keyOf(command);
    let node = this.nodeOf(key);
    let isAsk = false;
    for (let hop = 1; ; hop++) {
      const reply = await node.send(command, ticket, isAsk);
      const code = codeOf(reply);
      if (hop === 5 || node.address === undefined || (code !== "MOVED" && code !== "ASK")) return reply;
      isAsk = code === "ASK";
      if (!isAsk) await this.refresh(key);
      node = isAsk ? this.#nodeAt(this.topology.mapped(addressOf(reply.message.split(" ")[2], node))) : this.nodeOf(key);
    }
  }

  /** The replies to the renewals of one lock, or errors in their place. */
  renew(renewals) {
    return this.replicas === 0 ? Promise.all(renewals.map((renewal) => this.ask(renewal))) : this.nodeOf(keyOf(renewals[0])).confirm(renewals);
  }

  /** Ends everything under that name at the key: repeats LOCK.LEAVE until the server has answered. */
  async leave(key, owner) {
    for (let wait = 20; !this.ended; wait = Math.min(wait * 2, 500)) {
      const reply = await this.ask(["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR]);
      if (!(reply instanceof Error) || codeOf(reply) === "NOPERM") return;
      await this.refresh(key);
      await pause(wait);
    }
  }

  /** A name that nobody has had: `holder` is for people, and by `task` the server finds deadlocks. */
  newName({ task, holder } = {}) {
    const own = `${this.#id}:${this.#count++}`;
    const readable = holder === undefined ? own : `${holder}:${own}`;
    return task === undefined ? readable : `${task}##${readable}`;
  }
}

module.exports = { Session };
