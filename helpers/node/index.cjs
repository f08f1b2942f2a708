// Locks that the server knows: what a client asks, believes and leaves.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own, and one
// of which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered; whatever still arrives of it
// then changes nothing.
"use strict";
const { randomUUID } = require("node:crypto");
const { inspect } = require("node:util");
const { Unanswered, codeOf, inTime, topologyOf } = require("./connections.cjs");
const { Again, Node, Ticket, abortable, now, pause } = require("./node.cjs");

const LETTER_DELAY = 1_000; // ms past its limit in which a waiter's answer may still come
const REFRESH_TIMEOUT = 2_000; // ms for which a cluster client may take to say who serves what
const LEAST_LEASE = 3; // ms: of 2 nothing is left to believe in, so that no attempt would ever do
const MOST_LEASE = Number.MAX_SAFE_INTEGER;
const PATIENCE = 10_000; // ms for which an acquisition without a limit bears a server that answers nobody
const COMMANDS = new Map([["write", "LOCK.ACQUIRE"], ["read", "LOCK.RLOCK"]]);
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);

/** The value, if it is a time in milliseconds within its bounds. */
function time(name, value, least = LEAST_LEASE, most = MOST_LEASE) {
  const isNumber = typeof value === "number" && !Number.isNaN(value);
  if (!isNumber || (value === Infinity && most < Infinity)) throw new TypeError(`${name} is a number of milliseconds, not ${inspect(value)}`);
  if (value < least || value > most) throw new RangeError(`${name} has to be between ${least} and ${most} ms, and is ${value}`);
  return value;
}
/** The value, if it is text: what else there is may be joined to the same text as another one. */
function text(name, value) {
  if (typeof value !== "string") throw new TypeError(`${name} is a string, not ${inspect(value)}`);
  return value;
}

class LockError extends Error {
  constructor(message, key, cause) {
    super(message, cause && { cause });
    this.name = new.target.name;
    this.key = key;
  }
}
/** Somebody else held it for as long as this one was ready to wait. */
class BusyError extends LockError {}
/** The lock was over before it was released. */
class LostError extends LockError {}
/** The server found that this wait would never end; the text names the keys. */
class DeadlockError extends LockError {}
/** The server refused; the text is its own. */
class RefusedError extends LockError {}
/** The server could not be asked. */
class UnreachableError extends LockError {}

/** A lock that was granted. */
class Lock {
  #locks;
  #controller;
  #lost; // the error that says so
  #over = false;
  until = -Infinity;

  constructor(locks, { name, key, lease, maxHold, renew }, owner, token, begin) {
    this.#locks = locks;
    Object.assign(this, { name, key, lease, owner, token, last: begin + maxHold, renewAt: renew ? begin + lease / 3 : Infinity });
    this.believe(begin, lease);
  }
  /** Aborts, with a LostError as its reason, in the moment in which the lock is lost. */
  get signal() {
    this.#controller ??= new AbortController();
    if (this.#lost) this.#controller.abort(this.#lost);
    return this.#controller.signal;
  }
  get held() {
    return !this.#over && now() < this.until;
  }
  /** When there is something to do about it. */
  get dueAt() {
    return Math.min(this.until, this.renewAt < this.last ? this.renewAt : Infinity);
  }
  believe(begin, lease) {
    this.until = Math.max(this.until, Math.min(begin + lease - lease / 100 - 2, this.last));
  }
  renewal(lease) {
    return ["LOCK.RENEW", this.key, this.owner, Math.max(1, Math.floor(lease)), "TOKEN", this.token];
  }
  /** Takes the reply to a renewal; whether it has to be asked again. */
  renewed(reply, sent) {
    if (this.#over) return false;
    if (reply === null || codeOf(reply) === "WRONGTYPE") this.lose();
    else if (reply !== this.token) return true;
    else if (now() < this.until) {
      this.believe(sent, Math.min(this.lease, this.last - sent)); // a belief that has run out is never taken up again
      this.renewAt = sent + this.lease / 3;
    }
    return false;
  }
  /** Ends it here. Whether it was held until now. */
  end() {
    const { held } = this;
    this.node?.drop(this);
    this.#over = true;
    return held;
  }
  lose() {
    if (this.#over) return;
    this.end();
    this.#tell();
    this.#locks.nodeOf(this.key).leave(this.key, this.owner);
  }
  #tell() {
    this.#lost ??= new LostError(`the lock '${this.name}' was lost`, this.name);
    this.#controller?.abort(this.#lost);
  }
  /** Gives it back. Rejects with a LostError if it was lost before. */
  async release() {
    if (!this.#over && !(await this.#locks.release(this))) this.#tell();
    if (this.#lost) throw this.#lost; // and once is enough
  }
  /** Holds it for `ms` from now on at least. */
  async extend(ms) {
    time("ms", ms);
    if (!(await this.confirm(ms))) this.lose();
    if (this.#lost) throw this.#lost;
  }
  /** Asks for `ms` from now on. Whether it is held. */
  async confirm(ms, signal) {
    const sent = now();
    const reply = this.held ? (await this.#locks.ask(this.renewal(ms), 0, signal))[1] : null;
    if (reply instanceof Error && codeOf(reply) !== "WRONGTYPE") throw new RefusedError(reply.message, this.name, reply);
    if (reply !== this.token || !this.held) return false;
    this.believe(sent, ms);
    return true;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

/** The locks of one server or cluster. */
class Locks {
  asked = new Map();
  closed = false; // nothing is taken any more
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
   * One command about a key, followed to where that is served; what is to be left there is said before it. The node and its
   * reply. `left`: for so many ms, by mail.
   */
  async ask(command, left = 0, signal = undefined) {
    const key = command[1];
    let [node, asking] = [this.nodeOf(key), []];
    for (let hop = 1; ; hop++) {
      const { size } = node.debts; // many are for the keeper to say
      const debts = size === 0 || size > 100 ? [] : [...node.debts].filter(([, debt]) => debt[1] === key);
      const mail = left > 0 ? ["WAIT", left === Infinity ? 0 : Math.max(1, Math.ceil(left)), "MAIL", node.box] : [];
      const replies = await abortable(node.wire.call([...debts.map(([, debt]) => debt), ...asking, [...command, ...mail]]), signal);
      debts.forEach(([debt], index) => node.paid(debt, replies[index]));
      const reply = replies.at(-1);
      const code = codeOf(reply);
      if (hop === 5 || (code !== "MOVED" && code !== "ASK")) return [node, reply];
      if (code === "MOVED") {
        await this.refresh(key);
        [node, asking] = [this.nodeOf(key), []];
      } else [node, asking] = [this.#nodeAt(reply.message.split(" ")[2]), [["ASKING"]]];
    }
  }

  /** A lock, or null if there is none within `wait`. */
  async tryAcquire(name, options = {}) {
    const { wait = 0, mode = "write", task, signal, renew = true, maxHold = Infinity } = options;
    const { lease = this.defaults.lease, poll = this.defaults.poll } = options;
    text("the name of a lock", name);
    if (task !== undefined) text("task", task);
    time("lease", lease);
    time("wait", wait, -Infinity, Infinity);
    time("maxHold", maxHold, LEAST_LEASE, Infinity);
    if (poll !== null) time("poll", poll, 1);
    const command = COMMANDS.get(mode);
    if (!command) throw new TypeError(`mode is 'read' or 'write', not '${mode}'`);
    const key = this.topology.prefix + name;
    const request = { name, key, lease: Math.floor(lease), wait, task, signal, renew, maxHold, command };
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

  /** A lock. Rejects with a BusyError if there is none within `wait`, which has no end if it is not given. */
  async acquire(name, options = {}) {
    const { wait = Infinity } = options;
    const lock = await this.tryAcquire(name, { ...options, wait });
    if (lock === null) throw new BusyError(`the lock '${name}' is held by somebody else`, name);
    return lock;
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

  // One request under one name. Whatever is not known of it in the end is left.
  async #attempt(request, left) {
    const { key, name, command, lease, signal } = request;
    const own = `${this.#id}:${this.#count++}`;
    const owner = request.task === undefined ? own : `${request.task}##${own}`;
    const ticket = new Ticket(key);
    this.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    let [known, lock] = [this.closed];
    try {
      const sent = now();
      if (this.closed) throw new Again();
      let [node, reply] = await this.ask([command, key, owner, lease, "HOLDS", 1], left, signal);
      if (Array.isArray(reply)) reply = await node.answer(ticket, reply[1], now() + left + LETTER_DELAY, signal);
      known = reply === null || reply instanceof Error;
      if (!(reply instanceof Error)) node.heard = now();
      if (reply === null) return null;
      if (reply instanceof Error) {
        if (ELSEWHERE.has(codeOf(reply))) throw new Again("", { cause: reply });
        throw new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, name, reply);
      }
      lock = new Lock(this, request, owner, reply, Math.max(sent, ticket.begin));
      if (lock.until - now() < lease / 2 && !(await lock.confirm(lease, signal))) throw new Again();
      if (this.closed) throw new Again(); // in the same turn: nobody would give it back
      known = true;
      node.hold(lock);
      return lock;
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      known = !lock && !error.sent;
      throw new Again("", { cause: error });
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      this.asked.delete(owner);
      if (!known) this.nodeOf(key).leave(key, owner);
    }
  }

  /** Whether it was held to the end. What is not known of it is left, without anybody waiting for that. */
  async release(lock) {
    const held = lock.end();
    const asked = this.ask(["LOCK.RELEASE", lock.key, lock.owner, "ALL", "TOKEN", lock.token]);
    const reply = await asked.then(([, said]) => said, (error) => error);
    if (!(reply instanceof Error)) return held && reply !== null;
    if (codeOf(reply) === "NOPERM") throw new RefusedError(reply.message, lock.name, reply);
    if (codeOf(reply) === "WRONGTYPE") return false;
    this.nodeOf(lock.key).leave(lock.key, lock.owner);
    return held;
  }

  /** Leaves all that is waited for and all that is held. Whether the server has heard all of it within `ms`. */
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

module.exports = { LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, Lock, Locks };
