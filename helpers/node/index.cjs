// Locks in the server: what a client requests, relies on and leaves.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own. If its outcome is
// unknown, the library repeats LOCK.LEAVE … FOR until the server replies; late requests of that name then change nothing.
"use strict";
const { randomUUID } = require("node:crypto");
const { inspect } = require("node:util");
const { Unanswered, codeOf, inTime, topologyOf } = require("./connections.cjs");
const { Lock } = require("./lock.cjs");
const { Again, Node, Ticket, abortable, fieldsOf, keysOf, now, pause } = require("./node.cjs");
const { MultiLock } = require("./multilock.cjs");
const { Semaphore } = require("./semaphore.cjs");
const {
  LEAST_LEASE, time, text, count, LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError,
} = require("./values.cjs");

const LETTER_DELAY = 1_000; // ms past its limit in which a waiter's answer may still come
const REFRESH_TIMEOUT = 2_000; // ms for which a cluster client may take to report its nodes
const MOST_COUNT = 2 ** 31 - 1;
const PATIENCE = 10_000; // ms for which an acquisition without a limit bears a server that answers nobody
const COMMANDS = new Map([["write", "LOCK.ACQUIRE"], ["read", "LOCK.RLOCK"]]);
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);

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
  return new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, name, reply);
}

/** The ms until the next attempt where a string is in the lock's place: what another library took under this name with SET NX. */
function restAfterString(error, { wait, end, poll }) {
  if (!(error instanceof RefusedError) || codeOf(error) !== "WRONGTYPE" || poll === null) throw error;
  return wait === 0 || now() + poll > end ? null : poll;
}

/** The locks of one server or cluster. */
class Locks {
  asked = new Map();
  closed = false; // no lock is taken any more
  ended = false; // nothing is sent any more
  #nodes = new Map();
  #id = randomUUID();
  #count = 0;
  #busy = 0; // commands in flight that end a hold, or take one over

  constructor(client, { lease = 30_000, poll = null } = {}) {
    this.topology = topologyOf(client);
    this.defaults = { lease: time("lease", lease), poll: poll === null ? null : time("poll", poll, 1) };
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
    let reply = await this.nodeOf(key).send(command, ticket);
    for (let hop = 1; hop < 5 && reply instanceof Error; hop++) {
      const code = codeOf(reply);
      if (code === "MOVED") {
        await this.refresh(key);
        reply = await this.nodeOf(key).send(command, ticket);
      } else if (code === "ASK") reply = await this.#nodeAt(reply.message.split(" ")[2]).send(command, ticket, true);
      else break;
    }
    return reply;
  }

  // The checked options of a request. `longest`: its wait, if they say nothing of it.
  #request(name, options, longest = 0) {
    const { wait = longest, mode = "write", task, holder, signal, renew = true, maxHold = Infinity, atLeast = 0, limit, permits = 1 } = options;
    const { lease = this.defaults.lease, poll = this.defaults.poll } = options;
    const several = Array.isArray(name);
    const names = several ? name : [name];
    for (const one of names) text("the name of a lock", one);
    if (names.length === 0) throw new RangeError("a lock has a name, and several have names");
    if (several && (mode !== "write" || limit !== undefined)) throw new TypeError("several locks are taken to write only");
    if (task !== undefined) text("task", task);
    if (holder !== undefined && !/^(?!.*##)./s.test(text("holder", holder))) throw new RangeError(`holder is a name without ##, not ${inspect(holder)}`);
    time("lease", lease);
    time("wait", wait, -Infinity, Infinity);
    time("maxHold", maxHold, LEAST_LEASE, Infinity);
    if (atLeast !== 0) time("atLeast", atLeast);
    if (poll !== null) time("poll", poll, 1);
    const command = COMMANDS.get(limit === undefined ? mode : "read");
    if (!command) throw new TypeError(`mode is 'read' or 'write', not '${mode}'`);
    count("permits", permits, 1, limit === undefined ? 1 : count("limit", limit, 1, MOST_COUNT));
    const { prefix } = this.topology;
    const keys = several ? names.map((one) => prefix + one) : [prefix + name];
    return {
      name, names, several, keys, command, permits, limit, lease: Math.floor(Math.max(lease, atLeast)), atLeast, poll, task, holder, signal, renew,
      maxHold, wait, end: wait === Infinity ? Infinity : now() + wait,
    };
  }

  /** A lock, or null if there is none within `wait`. With several names all of their locks at once: a MultiLock. */
  tryAcquire(name, options = {}) {
    return this.#take(name, options, 0, nothing);
  }

  /** A lock. Rejects with a BusyError if there is none within `wait`, which has no end if it is not given. */
  acquire(name, options = {}) {
    return this.#take(name, options, Infinity, busy);
  }

  // `none`: what it results in if there is no lock within the wait.
  async #take(name, options, longest, none) {
    const request = this.#request(name, options, longest);
    const { wait, end, signal } = request;
    signal?.throwIfAborted();
    const ready = this.topology.ready?.();
    if (ready) await this.#inTime(ready, request);
    for (let tries = 1; ; tries++) {
      try {
        return (await this.#attempt(request, wait === 0 || wait === Infinity ? wait : end - now())) ?? none(name);
      } catch (error) {
        const rest = error instanceof Again ? await this.#restAfter(error, request, tries) : restAfterString(error, request);
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
    const silent = cause instanceof Unanswered && cause.cause?.message === "no reply in time";
    const borne = Math.max(request.failing ?? Infinity, this.nodeOf(keys[0]).heard) + PATIENCE;
    const last = wait === 0 ? tries > 1 || silent : wait === Infinity ? now() > borne : now() + 20 >= end;
    if (last && !cause) return null;
    if (last) throw new UnreachableError(`the server cannot be asked: ${(cause.cause ?? cause).message}`, name, cause.cause ?? cause);
    if (!cause && tries < 4) return 0;
    if (cause) await this.refresh(keys[0]);
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

  /** Runs `work(lock)` under the lock, and gives it back. `options` may be left out. */
  async using(name, options, work) {
    if (work === undefined) [options, work] = [{}, options];
    if (typeof work !== "function") throw new TypeError(`work is a function, not ${inspect(work)}`);
    const lock = await this.acquire(name, options);
    let result;
    try {
      result = await work(lock);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  /** The semaphore of `limit` permits on this name. */
  semaphore(name, limit) {
    return new Semaphore(this, text("the name of a semaphore", name), count("limit", limit, 1, MOST_COUNT));
  }

  /**
   * The lock that is held under the name `owner` by that token, or null if it is not, or no longer: of several that try, one gets
   * it. A reply that was lost is asked for again: nobody works under the new name before.
   */
  async takeOver(name, owner, token, options = {}) {
    text("the name of a lock", name);
    const request = this.#request(name, options);
    const { lease } = request;
    const [key] = request.keys;
    const heir = this.newName(request);
    text("owner", owner);
    this.#checkOpen(name);
    let known = false;
    this.#busy++;
    try {
      for (let [tries, end] = [1, now() + PATIENCE]; ; tries++) {
        let sent = now();
        let reply = await this.ask(["LOCK.PASS", key, owner, heir, lease, "TOKEN", token]);
        if (reply === null && tries > 1) {
          sent = now(); // or the one before has done it
          reply = await this.ask(["LOCK.RENEW", key, heir, lease]);
        }
        if (!(reply instanceof Error)) {
          known = reply === null ? tries === 1 : !this.closed;
          if (reply === null) return null;
          if (this.closed) throw new UnreachableError("the locks are closed", name);
          return this.#hold(this.nodeOf(key), new Lock(this, request, 0, heir, reply, sent));
        }
        known = tries === 1 && !(reply instanceof Unanswered);
        const passes = reply instanceof Unanswered || ELSEWHERE.has(codeOf(reply));
        if (!passes) throw new RefusedError(reply.message, name, reply);
        if (this.closed || now() > end) throw new UnreachableError(`the server cannot be asked: ${(reply.cause ?? reply).message}`, name, reply.cause ?? reply);
        await this.refresh(key);
        await pause(Math.min(50 * tries, 500));
      }
    } finally {
      if (!known) this.nodeOf(key).leave(key, heir);
      this.#busy--;
    }
  }

  /** The milliseconds until the last of the lock's holds, or that of `owner`, is over, which nothing extends any more; null if there is none. */
  async revoke(name, owner) {
    const key = this.topology.prefix + text("the name of a lock", name);
    if (owner !== undefined) text("owner", owner);
    const owners = owner === undefined ? (await this.holds(name)).map((hold) => hold.owner) : [owner];
    const left = await Promise.all(owners.map((one) => this.#told(["LOCK.REVOKE", key, one], name)));
    return left.reduce((most, ms) => (ms === null ? most : Math.max(most, ms)), null);
  }

  /** The holders, by the server. */
  async holds(name) {
    const info = await this.#told(["LOCK.INFO", this.topology.prefix + name, "COUNT", MOST_COUNT], name);
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

  async #told(command, name) {
    this.#checkOpen(name);
    const reply = await this.ask(command);
    if (reply instanceof Unanswered) throw new UnreachableError(`the server cannot be asked: ${reply.cause.message}`, name, reply.cause);
    if (reply instanceof Error) throw new RefusedError(reply.message, name, reply);
    return reply;
  }

  #hold(node, lock) {
    node.hold(lock);
    return lock;
  }

  /** A name that nobody has had: `holder` is for people, and by `task` the server finds deadlocks. */
  newName({ task, holder } = {}) {
    const own = `${this.#id}:${this.#count++}`;
    const readable = holder === undefined ? own : `${holder}:${own}`;
    return task === undefined ? readable : `${task}##${readable}`;
  }

  // One request under one name, for `left` ms. If its outcome is unknown in the end, it is left.
  async #attempt(request, left) {
    const { keys } = request;
    const owner = this.newName(request);
    const ticket = new Ticket(keys[0], left, request.signal);
    this.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    let known = this.closed;
    try {
      if (this.closed) throw new Again();
      const sent = now();
      let reply = await this.ask(wordsOf(request, owner), ticket);
      if (Array.isArray(reply)) reply = await ticket.node.answer(ticket, reply[1], now() + left + LETTER_DELAY);
      known = reply === null || (reply instanceof Error && !reply.sent);
      if (reply instanceof Error) throw refusal(reply, request.name);
      const answered = now();
      ticket.node.heard = answered;
      if (reply === null) return null;
      const begin = Math.max(sent, ticket.begin);
      const locks = [];
      for (let index = 0; index < keys.length; index++) locks.push(new Lock(this, request, index, owner, reply, begin));
      if (locks[0].until - answered < request.lease / 2) await this.#confirm(locks, request);
      if (this.closed) throw new Again(); // in the same turn: nobody would give it back
      known = true;
      for (const lock of locks) ticket.node.hold(lock);
      return request.several ? new MultiLock(locks) : locks[0];
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      this.asked.delete(owner);
      if (!known) for (const key of keys) this.nodeOf(key).leave(key, owner);
    }
  }

  // A grant came late: whether the locks are held is asked anew.
  async #confirm(locks, { lease, signal }) {
    const held = await Promise.all(locks.map((lock) => lock.confirm(lease, signal))).catch((error) => {
      throw error instanceof Unanswered ? new Again("", { cause: error }) : error;
    });
    if (held.includes(false)) throw new Again();
  }

  /** Whether it was held to the end. If that is unknown, its name leaves in the background. */
  release(lock) {
    return this.#counted(this.#release(lock));
  }
  async #release(lock) {
    const held = lock.end();
    let reply = lock.rests ? await this.ask(lock.farewell()) : null;
    if (reply === null) {
      lock.forgetRest(); // nothing has to rest, or what was revoked cannot
      reply = await this.ask(["LOCK.RELEASE", lock.key, lock.owner, "ALL", "TOKEN", lock.token]);
    }
    if (!(reply instanceof Error)) return held && reply !== null;
    if (codeOf(reply) === "NOPERM") throw new RefusedError(reply.message, lock.name, reply);
    if (codeOf(reply) === "WRONGTYPE") return false;
    this.nodeOf(lock.key).owe(lock);
    return held;
  }

  /** The token by which another name holds it from now on; null where it was lost. An error that came as a reply has changed nothing. */
  handOver(lock, heir, lease) {
    return this.#counted(this.#handOver(lock, heir, lease));
  }
  async #handOver(lock, heir, lease) {
    const node = lock.node;
    node.drop(lock);
    const reply = await this.ask(lock.handover(heir, lease));
    const isUnknown = reply instanceof Unanswered && reply.sent;
    if (reply instanceof Error && !isUnknown && codeOf(reply) !== "WRONGTYPE") {
      if (this.closed) lock.lose();
      else if (!lock.over) node.hold(lock); // it may have been released meanwhile
      if (reply instanceof Unanswered) throw new UnreachableError(`the server cannot be asked: ${reply.cause.message}`, lock.name, reply.cause);
      throw new RefusedError(reply.message, lock.name, reply);
    }
    lock.forgetRest();
    lock.end();
    if (!isUnknown) return typeof reply === "number" ? reply : null;
    for (const owner of [lock.owner, heir]) this.nodeOf(lock.key).leave(lock.key, owner);
    throw new UnreachableError(`nobody knows whether the lock was passed on: ${reply.cause.message}`, lock.name, reply.cause);
  }

  /** Leaves all locks that it waits for or holds. Returns whether the server has confirmed all within `ms`. */
  async close(ms = 2_000) {
    time("ms", ms, 0);
    this.closed = true;
    const nodes = () => [...this.#nodes.values()]; // a lock may move to one more
    for (const ticket of this.asked.values()) ticket.settle(new Again("", { cause: new Error("closed") }));
    for (const node of nodes()) for (const lock of node.holds) lock.lose();
    const isSaid = () => this.asked.size + this.#busy === 0 && nodes().every((node) => node.debts.size === 0);
    for (const end = now() + ms; !isSaid() && now() < end; ) await pause(5);
    const said = isSaid();
    this.ended = true; // what is left from now on goes with its lease
    for (const node of nodes()) node.debts.clear();
    await Promise.all(nodes().map((node) => node.close()));
    return said;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

module.exports = { LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, Lock, Locks, MultiLock, Semaphore };
