// Locks in the server: what a client requests, relies on and leaves. index.d.cts says what users call.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own. If its outcome is
// unknown, the library repeats LOCK.LEAVE … FOR until the server replies; late requests of that name then change nothing.
"use strict";
const { inspect } = require("node:util");
const { TooFew, Unanswered, codeOf, inTime } = require("./connections.cjs");
const { Lock, MultiLock } = require("./lock.cjs");
const { Again, Ticket, abortable, fieldsOf, now, pause } = require("./node.cjs");
const { Semaphore } = require("./semaphore.cjs");
const { REFRESH_TIMEOUT, Session } = require("./session.cjs");
const {
  LEAST_LEASE, time, text, count, LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, UnconfirmedError, unasked,
} = require("./values.cjs");

const MOST_COUNT = 2 ** 31 - 1;
const PATIENCE = 10_000; // ms for which an acquisition without a limit goes on trying a server that answers nobody
const COMMANDS = new Map([["write", "LOCK.ACQUIRE"], ["read", "LOCK.RLOCK"]]);
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);
const OPTIONS = new Set(["wait", "mode", "task", "holder", "signal", "renew", "maxHold", "atLeast", "lease", "limit", "permits"]);
const NO_ENTRY = /^(WRONGPASS|NOAUTH|NOPERM|ERR (invalid password|AUTH |Client sent AUTH))/; // no later attempt would succeed
const NO_MODULE =
  "the server does not know LOCK commands: the Mortise module is not loaded. Add `loadmodule …/libmortise.so` to its configuration, " +
  "or send MODULE LOAD …/libmortise.so";

/** What asks for a lock under that name. */
function wordsOf({ several, keys, lease, command, permits, limit }, owner) {
  if (several) return ["LOCK.MACQUIRE", owner, lease, keys.length, ...keys];
  if (limit === undefined) return [command, keys[0], owner, lease, "HOLDS", 1];
  return [command, keys[0], owner, lease, "HOLDS", permits, "LIMIT", limit];
}

const nothing = () => null;
function busy(name) {
  throw new BusyError(`the lock '${name}' is held by somebody else`, name);
}

/** What an error in the reply's place means to a request. */
function refusal(reply, name) {
  if (reply instanceof Unanswered || ELSEWHERE.has(codeOf(reply))) return new Again("", { cause: reply });
  if (/^ERR unknown command/i.test(reply.message)) return new RefusedError(NO_MODULE, name, reply);
  return new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, name, reply);
}

/** Puts the loss of the lock at the end of the causes of the error that its work has failed by. */
function attach(error, loss) {
  for (let depth = 0; error instanceof Error && error !== loss && depth < 100; depth++) {
    if (error.cause === undefined) {
      if (Object.isExtensible(error)) error.cause = loss;
      return;
    }
    error = error.cause;
  }
}

/** The options, if all of their names are known. */
function known(options, names) {
  for (const name of Object.keys(options)) {
    if (!names.has(name)) throw new TypeError(`there is no option '${name}'`);
  }
  return options;
}

/** The locks of one server or cluster. */
class Locks {
  closed = false; // no lock is taken any more
  #busy = 0; // commands in flight that end a hold, or take one over

  constructor(client, options = {}) {
    const { lease = 30_000, replicas = 0 } = known(options, new Set(["lease", "replicas"]));
    this.defaults = { lease: time("lease", lease) };
    this.session = Session.join(client, count("replicas", replicas, 0, MOST_COUNT));
  }

  // The checked options of a request. `longest`: its wait, if they say nothing of it.
  #request(name, options, longest = 0) {
    const { wait = longest, mode = "write", task, holder, signal, renew = true, maxHold = Infinity, atLeast = 0, limit, permits = 1 } = options;
    const { lease = this.defaults.lease } = known(options, OPTIONS);
    const several = Array.isArray(name);
    const names = several ? [...name] : [name];
    for (const one of names) text("the name of a lock", one);
    if (names.length === 0) throw new RangeError("a lock has a name, and several have names");
    if (several && (mode !== "write" || limit !== undefined)) throw new TypeError("several locks are taken to write only");
    if (task !== undefined) text("task", task);
    if (holder !== undefined && !/^(?!.*##)./s.test(text("holder", holder))) throw new RangeError(`holder is a name without ##, not ${inspect(holder)}`);
    time("lease", lease);
    time("wait", wait, -Infinity, Infinity);
    time("maxHold", maxHold, LEAST_LEASE, Infinity);
    if (atLeast !== 0) time("atLeast", atLeast);
    if (limit !== undefined && options.mode !== undefined) throw new TypeError("permits have no mode");
    const command = COMMANDS.get(limit === undefined ? mode : "read");
    if (!command) throw new TypeError(`mode is 'read' or 'write', not '${mode}'`);
    count("permits", permits, 1, limit === undefined ? 1 : count("limit", limit, 1, MOST_COUNT));
    const { prefix } = this.session.topology;
    const keys = several ? names.map((one) => prefix + one) : [prefix + name];
    return {
      name: several ? names : name, several, keys, command, permits, limit, lease: Math.floor(Math.max(lease, atLeast)), atLeast, task, holder, signal, renew,
      maxHold, wait, end: wait === Infinity ? Infinity : now() + wait,
    };
  }

  tryAcquire(name, options = {}) {
    return this.#take(name, options, 0, nothing);
  }

  acquire(name, options = {}) {
    return this.#take(name, options, Infinity, busy);
  }

  // `none`: what it results in if there is no lock within the wait.
  async #take(name, options, longest, none) {
    const request = this.#request(name, options, longest);
    const { wait, end, signal } = request;
    signal?.throwIfAborted();
    const ready = this.session.topology.ready?.();
    if (ready) await this.#inTime(ready, request);
    for (let tries = 1; ; tries++) {
      try {
        return (await this.#attempt(request, wait === 0 || wait === Infinity ? wait : end - now())) ?? none(name);
      } catch (error) {
        if (!(error instanceof Again)) throw error;
        const rest = await this.#restAfter(error, request, tries);
        if (rest === null) return none(name);
        if (rest > 0) await abortable(pause(rest), signal);
      }
    }
  }

  // The ms until the next attempt, or null if the wait is over before.
  async #restAfter({ cause }, request, tries) {
    const { name, keys, wait, end } = request;
    request.failing = cause ? (request.failing ?? now()) : null;
    this.#checkOpen(name);
    const reason = cause && (cause.cause ?? cause).message;
    const until = Math.max(request.failing ?? Infinity, this.session.nodeOf(keys[0]).answeredAt) + PATIENCE;
    const isOnce = reason === "no reply in time" || cause?.cause instanceof TooFew;
    const late = wait === 0 ? tries > 1 || isOnce : wait === Infinity ? now() > until : now() + 20 >= end;
    const last = late || NO_ENTRY.test(reason);
    if (last && !cause) return null;
    if (last) throw unasked(cause.cause ?? cause, name);
    if (!cause && tries < 4) return 0;
    if (cause) await this.session.refresh(keys[0]);
    return Math.min(20 * 2 ** Math.min(tries, 5), Math.max(20, end - now()));
  }

  // A cluster's client that finds none goes on trying for ever: nobody waits for it longer than for the lock.
  async #inTime(ready, { name, wait, signal }) {
    const limit = wait === Infinity ? PATIENCE : Math.max(wait, REFRESH_TIMEOUT);
    await abortable(inTime(ready, limit), signal).catch((error) => {
      signal?.throwIfAborted();
      throw new UnreachableError(`the cluster cannot be asked: ${error.message}`, name, error);
    });
  }

  async using(name, options, work) {
    if (work === undefined) [options, work] = [{}, options];
    if (typeof work !== "function") throw new TypeError(`work is a function, not ${inspect(work)}`);
    const lock = await this.acquire(name, options);
    let result;
    try {
      result = await work(lock);
    } catch (error) {
      await lock.release().catch((loss) => attach(error, loss));
      throw error;
    }
    await lock.release();
    return result;
  }

  semaphore(name, limit) {
    return new Semaphore(this, text("the name of a semaphore", name), count("limit", limit, 1, MOST_COUNT));
  }

  async takeOver(name, owner, token, options = {}) {
    text("the name of a lock", name);
    const request = this.#request(name, options);
    const { lease } = request;
    const [key] = request.keys;
    const heir = this.session.newName(request);
    text("owner", owner);
    this.#checkOpen(name);
    let known = false;
    this.#busy++;
    try {
      const sent = now();
      const reply = await this.session.ask(["LOCK.PASS", key, owner, heir, lease, "TOKEN", token]);
      known = reply === null || (reply instanceof Error && !reply.sent);
      if (reply === null) return null;
      if (reply instanceof Unanswered || ELSEWHERE.has(codeOf(reply))) throw unasked(reply.cause ?? reply, name);
      if (reply instanceof Error) throw new RefusedError(reply.message, name, reply);
      const lock = new Lock(this, request, heir, reply, sent);
      if (this.session.replicas > 0) await lock.extend(lease);
      this.#checkOpen(name);
      known = true;
      return this.#hold(this.session.nodeOf(key), lock);
    } finally {
      if (!known) this.session.nodeOf(key).leave(key, heir, this);
      this.#busy--;
    }
  }

  async revoke(name, owner) {
    const key = this.session.topology.prefix + text("the name of a lock", name);
    if (owner !== undefined) text("owner", owner);
    const owners = owner === undefined ? (await this.holds(name)).map((hold) => hold.owner) : [owner];
    const left = await Promise.all(owners.map((one) => this.#replyTo(["LOCK.REVOKE", key, one], name)));
    return left.reduce((most, ms) => (ms === null ? most : Math.max(most, ms)), null);
  }

  /** The holders, by the server. */
  async holds(name) {
    const info = await this.#replyTo(["LOCK.INFO", this.session.topology.prefix + name, "COUNT", MOST_COUNT], name);
    return info === null ? [] : fieldsOf(info).holds.map(fieldsOf);
  }

  // `close` waits until the promise has settled.
  async #counted(promise) {
    this.#busy++;
    try {
      return await promise;
    } finally {
      this.#busy--;
    }
  }

  #checkOpen(name) {
    if (this.closed) throw new UnreachableError("the locks are closed", name);
  }

  async #replyTo(command, name) {
    this.#checkOpen(name);
    const reply = await this.session.ask(command);
    if (reply instanceof Unanswered) throw unasked(reply.cause, name);
    if (reply instanceof Error) throw new RefusedError(reply.message, name, reply);
    return reply;
  }

  #hold(node, lock) {
    node.hold(lock);
    return lock;
  }

  // One request under one name, for `left` ms. If its outcome is unknown in the end, it is left.
  async #attempt(request, left) {
    const { keys } = request;
    const owner = this.session.newName(request);
    const ticket = new Ticket(keys[0], left, request.signal, this);
    this.session.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    let known = this.closed;
    try {
      if (this.closed) throw new Again();
      const sent = now();
      let reply = await this.session.ask(wordsOf(request, owner), ticket);
      if (Array.isArray(reply)) reply = await ticket.node.answer(ticket, reply[1], now() + left);
      known = reply === null || (reply instanceof Error && !reply.sent);
      if (reply instanceof Error) throw refusal(reply, request.name);
      const answered = now();
      if (reply === null) return null;
      const lock = new (request.several ? MultiLock : Lock)(this, request, owner, reply, Math.max(sent, ticket.begin));
      if (this.session.replicas > 0 || lock.until - answered < request.lease / 2) await this.#confirm(lock, request);
      ticket.node.answeredAt = answered;
      if (this.closed) throw new Again(); // in the same turn: nobody would give it back
      known = true;
      return this.#hold(ticket.node, lock);
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      this.session.asked.delete(owner);
      if (!known) for (const key of keys) this.session.nodeOf(key).leave(key, owner, this);
    }
  }

  // A grant came late, or replicas have to confirm it: whether the lock is held is asked anew.
  async #confirm(lock, { lease, signal }) {
    const held = await lock.confirm(lease, signal).catch((error) => {
      throw error instanceof Unanswered || ELSEWHERE.has(codeOf(error.cause)) ? new Again("", { cause: error }) : error;
    });
    if (!held) throw new Again();
  }

  /** Whether it was held to the end. If that is unknown, its name leaves in the background. */
  release(lock) {
    return this.#counted(this.#release(lock));
  }
  async #release(lock) {
    const held = lock.end();
    const replies = await Promise.all(lock.keys.map((key) => this.#end(lock, key)));
    const isGone = (reply) => reply === null || codeOf(reply) === "WRONGTYPE";
    const isUnknown = (reply) => reply instanceof Error && !isGone(reply) && codeOf(reply) !== "NOPERM";
    lock.leave(lock.keys.filter((_, index) => isUnknown(replies[index])));
    const barred = replies.find((reply) => codeOf(reply) === "NOPERM");
    if (barred) throw new RefusedError(barred.message, lock.name, barred);
    return held && !replies.some(isGone);
  }
  // The reply, or error, to what gives a key back, or what is left of `atLeast` to a name that nobody uses.
  async #end(lock, key) {
    const reply = lock.rests ? await this.session.ask(lock.resting(key)) : null;
    if (reply !== null) return reply;
    lock.forgetRest(); // there is none, or it was revoked
    return this.session.ask(["LOCK.RELEASE", key, lock.owner, "ALL", "TOKEN", lock.token]);
  }

  /** The token by which another name holds it from now on; null where it was lost. An error that came as a reply has changed nothing. */
  handOver(lock, heir, lease) {
    return this.#counted(this.#handOver(lock, heir, lease));
  }
  async #handOver(lock, heir, lease) {
    const node = lock.node;
    node.drop(lock);
    const reply = await this.session.ask(lock.handover(lock.key, heir, lease));
    const isUnknown = reply instanceof Unanswered && reply.sent;
    if (reply instanceof Error && !isUnknown && codeOf(reply) !== "WRONGTYPE") {
      if (this.closed) lock.lose();
      else if (!lock.over) node.hold(lock); // it may have been released meanwhile
      if (reply instanceof Unanswered) throw unasked(reply.cause, lock.name);
      throw new RefusedError(reply.message, lock.name, reply);
    }
    lock.forgetRest();
    lock.end();
    if (!isUnknown) return typeof reply === "number" ? reply : null;
    for (const owner of [lock.owner, heir]) this.session.nodeOf(lock.key).leave(lock.key, owner, this);
    throw new UnreachableError(`nobody knows whether the lock was passed on: ${reply.cause.message}`, lock.name, reply.cause);
  }

  async close(ms = 2_000) {
    time("ms", ms, 0);
    const { session } = this;
    const isFirst = !this.closed;
    this.closed = true;
    const waiting = () => [...session.asked.values()].filter((ticket) => ticket.user === this);
    for (const ticket of waiting()) ticket.settle(new Again("", { cause: new Error("closed") }));
    for (const node of session.nodes) for (const lock of node.holds) if (lock.user === this) lock.lose();
    const isConfirmed = () => waiting().length + this.#busy === 0 && session.nodes.every((node) => !node.hasPending(this)); // a lock may move to a new node
    for (const end = now() + ms; !isConfirmed() && now() < end; ) await pause(5);
    const confirmed = isConfirmed();
    if (isFirst) await session.leave();
    return confirmed;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

module.exports = { LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, UnconfirmedError, Lock, Locks, MultiLock, Semaphore };
