// What all Locks of one client share that as many replicas confirm: the servers, with two connections to each, the requests under way, and names that nobody has had.
"use strict";
const { randomUUID } = require("node:crypto");
const { codeOf, inTime, topologyOf } = require("./connections.cjs");
const { Node, keysOf } = require("./node.cjs");

const REFRESH_TIMEOUT = 2_000; // ms for which a cluster client may take to report its nodes

const sessions = new WeakMap(); // maps by client, from how many replicas confirm

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
  async leave() {
    if (--this.#users > 0) return;
    this.ended = true;
    sessions.get(this.#client).delete(this.replicas);
    for (const node of this.nodes) node.pendingLeaves.clear();
    await Promise.all(this.nodes.map((node) => node.close()));
  }

  get nodes() {
    return [...this.#nodes.values()];
  }
  nodeOf(key) {
    return this.#nodeAt(this.topology.address(key));
  }
  #nodeAt(address) {
    if (!this.#nodes.has(address)) this.#nodes.set(address, new Node(this, address));
    return this.#nodes.get(address);
  }
  async refresh(key) {
    await inTime(Promise.resolve(this.topology.refresh(key)), REFRESH_TIMEOUT).catch(() => {});
  }

  /**
   * The reply to a command, or the error in its place, of the node that serves its key. `ticket`: of a request that may be answered by
   * mail.
   */
  async ask(command, ticket) {
    const key = keysOf(command)[0];
    let node = this.nodeOf(key);
    let reply = await node.send(command, ticket);
    for (let hop = 1; hop < 5 && reply instanceof Error; hop++) {
      const code = codeOf(reply);
      if (code === "MOVED") {
        await this.refresh(key);
        node = this.nodeOf(key);
        reply = await node.send(command, ticket);
      } else if (code === "ASK") {
        node = this.#nodeAt(addressOf(reply.message.split(" ")[2], node));
        reply = await node.send(command, ticket, true);
      } else break;
    }
    return reply;
  }

  /** The replies to the renewals of one lock, or errors in their place. */
  renew(renewals) {
    if (this.replicas === 0 || renewals.length === 0) return Promise.all(renewals.map((renewal) => this.ask(renewal)));
    return this.nodeOf(keysOf(renewals[0])[0]).confirm(renewals);
  }

  /** A name that nobody has had: `holder` is for people, and by `task` the server finds deadlocks. */
  newName({ task, holder } = {}) {
    const own = `${this.#id}:${this.#count++}`;
    const readable = holder === undefined ? own : `${holder}:${own}`;
    return task === undefined ? readable : `${task}##${readable}`;
  }
}

module.exports = { REFRESH_TIMEOUT, Session };
