// Locks in the server: what a client requests, relies on and leaves.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own. If its outcome is
// unknown, the library repeats LOCK.LEAVE … FOR until the server replies; late requests of that name then change nothing.
"use strict";
const { randomUUID } = require("node:crypto");
const { inspect } = require("node:util");
const { Unanswered, codeOf, inTime, topologyOf } = require("./connections.cjs");
const { Lock } = require("./lock.cjs");
const { Again, Node, Ticket, abortable, fieldsOf, now, pause } = require("./node.cjs");
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
const NONE = [];
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);

/** The keys that a command is about; it is routed by the first. */
const keysOf = (command) => (command[0] === "LOCK.MACQUIRE" ? command.slice(4, 4 + command[3]) : [command[1]]);

/** What asks for a lock under that name. */
function wordsOf({ several, keys, lease, command, permits, limit }, owner) {
  if (several) return ["LOCK.MACQUIRE", owner, lease, keys.length, ...keys];
  if (limit === undefined) return [command, keys[0], owner, lease, "HOLDS", 1];
  return [command, keys[0], owner, lease, "HOLDS", permits, "LIMIT", limit];
}

/** The locks of one server or cluster. */
class Locks {
  asked = new Map();
  closed = false; // no lock is taken any more
  ended = false; // nothing is sent any more
  #nodes = new Map();
  #id = randomUUID();
  #count = 0;

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
    await Promise.race([Promise.resolve(this.topology.refresh(key)).catch(() => {}), pause(REFRESH_TIMEOUT)]);
  }

  /**
   * One command about a key, sent to the node that serves it, after the LEAVEs for that node. The node and its
   * reply. `left`: for so many ms, by mail.
   */
  async ask(command, left = 0, signal = undefined) {
    const key = command[command[0] === "LOCK.MACQUIRE" ? 4 : 1];
    let [node, asking] = [this.nodeOf(key), NONE];
    for (let hop = 1; ; hop++) {
      const { size } = node.debts; // many are left to the keeper
      const debts = size === 0 || size > 100 ? NONE : [...node.debts].filter((debt) => keysOf(command).includes(debt.key));
      const full = left > 0 ? [...command, "WAIT", left === Infinity ? 0 : Math.max(1, Math.ceil(left)), "MAIL", node.box] : command;
      const before = debts === NONE ? asking : [...debts.map((debt) => debt.farewell()), ...asking];
      const replies = await abortable(node.wire.call(before.length > 0 ? [...before, full] : [full]), signal);
      if (debts !== NONE) debts.forEach((debt, index) => node.paid(debt, replies[index]));
      const reply = replies[replies.length - 1];
      const code = codeOf(reply);
      if (hop === 5 || (code !== "MOVED" && code !== "ASK")) return [node, reply];
      if (code === "MOVED") {
        await this.refresh(key);
        [node, asking] = [this.nodeOf(key), NONE];
      } else [node, asking] = [this.#nodeAt(reply.message.split(" ")[2]), [["ASKING"]]];
    }
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
    return { name, names, several, keys, command, permits, limit, lease: Math.floor(Math.max(lease, atLeast)), atLeast, wait, poll, task, holder, signal, renew, maxHold };
  }

  /** A lock, or null if there is none within `wait`. With several names all of their locks at once: a MultiLock. */
  tryAcquire(name, options = {}) {
    return this.#take(name, options, 0);
  }

  /** A lock. Rejects with a BusyError if there is none within `wait`, which has no end if it is not given. */
  async acquire(name, options = {}) {
    const lock = await this.#take(name, options, Infinity);
    if (lock === null) throw new BusyError(`the lock '${name}' is held by somebody else`, name);
    return lock;
  }

  async #take(name, options, longest) {
    const request = this.#request(name, options, longest);
    const { keys, wait, poll, signal } = request;
    const [key] = keys;
    const end = now() + wait;
    signal?.throwIfAborted();
    const ready = this.topology.ready?.();
    if (ready) await this.#inTime(ready, request);
    for (let [tries, failing] = [1, null]; ; tries++) {
      let rest = 20;
      try {
        return await this.#attempt(request, wait === 0 ? 0 : end - now());
      } catch (error) {
        const { cause } = error;
        if (error instanceof Again) {
          failing = cause ? (failing ?? now()) : null;
          if (this.closed) throw new UnreachableError("the locks are closed", name);
          const silent = cause instanceof Unanswered && cause.cause?.message === "no reply in time";
          const borne = Math.max(failing ?? Infinity, this.nodeOf(key).heard) + PATIENCE;
          const last = wait === 0 ? tries > 1 || silent : wait === Infinity ? now() > borne : now() + rest >= end;
          if (last && !cause) return null;
          if (last) throw new UnreachableError(`the server cannot be asked: ${(cause.cause ?? cause).message}`, name, cause.cause ?? cause);
          if (!cause && tries < 4) continue;
          if (cause) await this.refresh(key);
          rest = Math.min(20 * 2 ** Math.min(tries, 5), Math.max(20, end - now()));
        } else {
          if (!(error instanceof RefusedError) || codeOf(error) !== "WRONGTYPE" || poll === null) throw error;
          if (wait === 0 || now() + poll > end) return null;
          rest = poll; // what another library took under this name with SET NX
        }
      }
      await abortable(pause(rest), signal);
    }
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
    let known = false;
    try {
      for (let [tries, end] = [1, now() + PATIENCE]; ; tries++) {
        let sent = now();
        let reply = await this.#reply(["LOCK.PASS", key, owner, heir, lease, "TOKEN", token]);
        if (reply === null && tries > 1) {
          sent = now(); // or the one before has done it
          reply = await this.#reply(["LOCK.RENEW", key, heir, lease]);
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

  // The reply, or the error in its place.
  #reply(command) {
    return this.ask(command).then(([, reply]) => reply, (error) => error);
  }
  async #told(command, name) {
    const reply = await this.#reply(command);
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
    const own = `${holder === undefined ? "" : `${holder}:`}${this.#id}:${this.#count++}`;
    return task === undefined ? own : `${task}##${own}`;
  }

  // One request under one name. If its outcome is unknown in the end, it is left.
  async #attempt(request, left) {
    const { name, keys, lease, signal } = request;
    const owner = this.newName(request);
    const ticket = new Ticket(keys[0]);
    this.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    let [known, locks] = [this.closed];
    try {
      const sent = now();
      if (this.closed) throw new Again();
      let [node, reply] = await this.ask(wordsOf(request, owner), left, signal);
      if (Array.isArray(reply)) reply = await node.answer(ticket, reply[1], now() + left + LETTER_DELAY, signal);
      known = reply === null || reply instanceof Error;
      if (!(reply instanceof Error)) node.heard = now();
      if (reply === null) return null;
      if (reply instanceof Error) {
        if (ELSEWHERE.has(codeOf(reply))) throw new Again("", { cause: reply });
        throw new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, name, reply);
      }
      const begin = Math.max(sent, ticket.begin);
      locks = keys.map((_, index) => new Lock(this, request, index, owner, reply, begin));
      if (locks[0].until - now() < lease / 2) {
        const held = await Promise.all(locks.map((lock) => lock.confirm(lease, signal)));
        if (held.includes(false)) throw new Again();
      }
      if (this.closed) throw new Again(); // in the same turn: nobody would give it back
      known = true;
      for (const lock of locks) node.hold(lock);
      return request.several ? new MultiLock(locks) : locks[0];
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      known = !locks && !error.sent;
      throw new Again("", { cause: error });
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      this.asked.delete(owner);
      if (!known) for (const key of keys) this.nodeOf(key).leave(key, owner);
    }
  }

  /** Whether it was held to the end. If that is unknown, its name leaves in the background. */
  async release(lock) {
    const held = lock.end();
    let reply = lock.rests ? await this.#reply(lock.farewell()) : null;
    if (reply === null) {
      lock.forgetRest(); // nothing has to rest, or what was revoked cannot
      reply = await this.#reply(["LOCK.RELEASE", lock.key, lock.owner, "ALL", "TOKEN", lock.token]);
    }
    if (!(reply instanceof Error)) return held && reply !== null;
    if (codeOf(reply) === "NOPERM") throw new RefusedError(reply.message, lock.name, reply);
    if (codeOf(reply) === "WRONGTYPE") return false;
    this.nodeOf(lock.key).owe(lock);
    return held;
  }

  /** The token by which another name holds it from now on; null where it was lost. An error that came as a reply has changed nothing. */
  async handOver(lock, heir, lease) {
    const node = lock.node;
    node.drop(lock);
    const reply = await this.#reply(lock.handover(heir, lease));
    const isUnknown = reply instanceof Unanswered && reply.sent;
    if (reply instanceof Error && !isUnknown && codeOf(reply) !== "WRONGTYPE") {
      node.hold(lock);
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
    const nodes = [...this.#nodes.values()];
    for (const ticket of this.asked.values()) ticket.settle(new Again("", { cause: new Error("closed") }));
    for (const node of nodes) for (const lock of node.holds) lock.lose();
    const isSaid = () => this.asked.size === 0 && nodes.every((node) => node.debts.size === 0);
    for (const end = now() + ms; !isSaid() && now() < end; ) await pause(5);
    const said = isSaid();
    this.ended = true; // what is left from now on goes with its lease
    for (const node of nodes) node.debts.clear();
    await Promise.all(nodes.flatMap((node) => [node.wire.close(), node.ear.close()]));
    return said;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

module.exports = { LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, Lock, Locks, MultiLock, Semaphore };
