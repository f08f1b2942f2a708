// One server as its locks see it: its connections, and who waits there for letters.
// Knows nothing of how a lock is acquired: that is index.cjs, which uses this.
"use strict";
const { randomUUID } = require("node:crypto");
const { setTimeout: pause } = require("node:timers/promises");
const { now } = require("./clock.cjs");
const { LATE, inTime } = require("./promises.cjs");
const { Confirmer, TooFew, Unanswered, Wire, codeOf } = require("./wire.cjs");

const COMMAND_TIMEOUT = 2_000; // ms without a reply after which all that is in flight on a connection is unknown
const MAIL_WAIT = 2_000; // ms for which one LOCK.MAIL waits
const PATIENCE = 10_000; // ms for which an acquisition without a limit goes on trying a server that answers nobody

// Errors of the server, or of a connection to it, after which no later attempt would succeed.
const NO_ENTRY = /^(WRONGPASS|NOAUTH|NOPERM|ERR (unknown command|invalid password|AUTH |Client sent AUTH))/;

/**
 * This attempt came to nothing, the next one may not. `cause`: the error in a reply's place, if there was one. `since`: since when no
 * letters can be collected, if it is that.
 */
class Again extends Error {}

function fieldsOf(map) {
  if (!Array.isArray(map)) return map;
  const fields = {};
  for (let index = 0; index < map.length; index += 2) fields[map[index]] = map[index + 1];
  return fields;
}

/** A request that may be answered by letter within `left` ms. `user`: whose it is. */
class Ticket {
  node; // the one that it was sent to last
  since; // of the box that it was put into
  begin = -Infinity; // of the lease, by the letter
  constructor(key, left, user) {
    Object.assign(this, { key, left, user });
    this.answered = new Promise((resolve) => (this.settle = resolve));
  }
}

class Node {
  queued = new Set();
  answeredAt = -Infinity; // when it last gave somebody a useful answer
  #trouble; // why no letters can be collected now: what waiters get at the end of their patience
  #isListening = false;

  constructor(session, address) {
    Object.assign(this, { session, address });
    const open = async () => {
      if (session.ended) throw new Error("the locks are closed");
      return session.topology.open(address);
    };
    this.wire = new Wire(open, COMMAND_TIMEOUT);
    this.mailWire = new Wire(open, COMMAND_TIMEOUT + MAIL_WAIT);
    this.confirmer = new Confirmer(open, session.replicas, COMMAND_TIMEOUT);
    this.wires = [this.wire, this.mailWire, this.confirmer.wire];
    this.#newBox();
  }

  // In a cluster LOCK.MAIL is routed by the box's name: a hash tag that the node serves.
  #newBox() {
    const { topology } = this.session;
    let tag = "";
    for (let n = 0; this.address !== undefined && topology.address((tag = `{${n}}`)) !== this.address && n < 1 << 18; n++);
    Object.assign(this, { box: randomUUID() + tag, since: undefined, number: 0 });
  }

  /** The reply to a command, or the error in its place. The server gets ASKING first where it has asked for that. */
  send(command, ticket, asking) {
    if (asking) this.wire.call(["ASKING"]);
    if (ticket === undefined) return this.wire.call(command);
    ticket.node = this;
    const { left } = ticket;
    return this.wire.call(left > 0 ? [...command, "WAIT", left === Infinity ? 0 : Math.max(1, Math.ceil(left)), "MAIL", this.box] : command);
  }

  /** The replies to renewals, or errors in their place, once the replicas have confirmed them. */
  async confirm(renewals) {
    const replies = await this.confirmer.confirm(renewals);
    const isLonely = replies.some((reply) => reply?.cause instanceof TooFew); // a primary without replicas may have a successor
    if (isLonely) for (const wire of this.wires) wire.doubt();
    return replies;
  }

  /** The answer by letter to a request that was queued, until `ends` at the latest. */
  async answer(ticket, since, ends) {
    ticket.since = since;
    this.queued.add(ticket);
    if (since !== this.since) this.since = undefined; // whoever does not wait in the box of the next letters then asks again
    this.#listen();
    const late = () => this.#trouble ?? new Again();
    const answer = await inTime(ticket.answered, ends - now() + LATE).catch(late).finally(() => this.queued.delete(ticket));
    if (answer instanceof Again) throw answer;
    return answer;
  }

  /** Collects the letters of all that wait at this node. */
  async #listen() {
    if (this.#isListening) return;
    this.#isListening = true;
    while (this.queued.size > 0 && !this.session.ended) {
      const sent = now();
      const after = this.since === undefined ? [] : ["AFTER", this.since, this.number];
      const wait = this.#trouble ? [] : ["WAIT", MAIL_WAIT]; // after an error a reply at once shows whether it is over
      const reply = await this.mailWire.call(["LOCK.MAIL", this.box, ...after, ...wait]);
      if (reply instanceof Error) await this.#mailFailed(reply, Math.min(now(), sent + MAIL_WAIT));
      else this.#deliver(sent, ...reply);
    }
    this.#trouble = undefined;
    this.#isListening = false;
  }

  async #mailFailed(error, at) {
    const cause = error instanceof Unanswered ? error : new Unanswered(error, true);
    // The server does not let this user wait. Whether the requests are gone is unknown.
    if (NO_ENTRY.test(cause.cause.message)) return this.#settle(() => true, Object.assign(error, { sent: true }));
    const since = this.#trouble?.since ?? at;
    const trouble = (this.#trouble = Object.assign(new Again("", { cause }), { since }));
    await pause(50);
    const [first] = this.queued;
    if (first) await this.session.refresh(first.key);
    const moved = codeOf(error) === "MOVED";
    this.#settle((ticket) => moved || this.session.nodeOf(ticket.key) !== this);
    if (moved) this.#newBox();
    const isLong = now() >= since + PATIENCE;
    this.#settle((ticket) => isLong && ticket.left === Infinity, trouble);
  }

  #deliver(sent, since, waited, letters) {
    this.#trouble = undefined;
    const isNew = since !== this.since;
    if (isNew) [this.since, this.number] = [since, 0];
    for (const { number, owner, result, token, age, error } of letters.map(fieldsOf)) {
      this.number = Math.max(this.number, number);
      const ticket = this.session.asked.get(owner); // none where nobody wants it any more: its name was left
      if (ticket === undefined) continue;
      if (result === "granted") ticket.begin = sent + waited - age;
      ticket.settle(result === "granted" ? token : result === "refused" ? new Error(error) : null);
    }
    if (isNew) this.#settle((ticket) => ticket.since !== since); // what was put into another box is gone
  }

  #settle(which, outcome = new Again()) {
    for (const ticket of this.queued) {
      if (which(ticket) && this.queued.delete(ticket)) ticket.settle(outcome);
    }
  }
}

module.exports = { NO_ENTRY, PATIENCE, Again, Node, Ticket, fieldsOf };
