// Locks in the server: what a client requests, relies on and leaves. index.d.cts says what users call.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own. If its outcome is
// unknown, the library repeats LOCK.LEAVE … FOR until the server replies; late requests of that name then change nothing.
"use strict";
const { inspect } = require("node:util");
const { setTimeout: pause } = require("node:timers/promises");
const { now } = require("./clock.cjs");
const { Keeper } = require("./keeper.cjs");
const { Lock, MultiLock } = require("./lock.cjs");
const { NO_ENTRY, PATIENCE, Again, Ticket, fieldsOf } = require("./node.cjs");
const { LATE, abortable, inTime } = require("./promises.cjs");
const { Semaphore } = require("./semaphore.cjs");
const { Session } = require("./session.cjs");
const {
  LEAST_LEASE, time, text, count, known, failure, LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, UnconfirmedError,
} = require("./values.cjs");
const { TooFew, Unanswered, codeOf } = require("./wire.cjs");

const MOST_COUNT = 2 ** 31 - 1;
const ONCE = 1_000; // ms after which a request that does not wait is not sent once more
const COMMANDS = new Map([["write", "LOCK.ACQUIRE"], ["read", "LOCK.RLOCK"]]);
// After these replies a later attempt may succeed, here or elsewhere.
const LATER = new Set([
  "READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT", "NOREPLICAS", "MISCONF", "BUSY",
]);
const SEVERAL = new Set(["wait", "task", "holder", "signal", "renew", "maxHold", "atLeast", "lease"]);
const OPTIONS = new Set([...SEVERAL, "mode"]);
const PERMITS = new Set([...SEVERAL, "permits"]);

/** The error that ends an attempt that got this error in its reply's place. After Again the next attempt may succeed. */
function refusal(reply, name) {
  if (reply instanceof Unanswered) return NO_ENTRY.test(reply.cause.message) ? failure(reply, name) : new Again("", { cause: reply });
  return LATER.has(codeOf(reply)) ? new Again("", { cause: new Unanswered(reply, true) }) : failure(reply, name);
}

/** The error in a grant's place of which nothing was left when its reply was read. */
function tooLate(lasts, took, name) {
  const message = `a hold of ${lasts} ms was over when its reply was read, after ${Math.round(took)} ms: lease and maxHold have to be longer`;
  return new Unanswered(new LockError(message, name), true);
}

function busy(name) {
  throw new BusyError(`the lock '${name}' is held by somebody else`, name);
}

/** Puts the loss of the lock between the error that its work has failed by and the cause of that, which others may share. */
function attach(error, loss) {
  if (!(error instanceof Error) || error === loss || error.cause instanceof LostError) return;
  try {
    error.cause = new loss.constructor(loss.message, loss.key, error.cause);
  } catch {} // it takes none
}

/** The locks of one server or cluster. */
class Locks {
  closed = false; // no lock is taken any more
  keeper = new Keeper();
  #lease;
  #busy = 0; // requests under way, and names that have still to be left

  constructor(client, options = {}) {
    const { lease = 30_000, replicas = 0 } = known(options, new Set(["lease", "replicas"]));
    this.#lease = time("lease", lease);
    this.session = Session.join(client, count("replicas", replicas, 0));
  }

  // What the options ask for, checked, and the command that asks for it.
  #request(name, options, longest, limit) {
    const several = Array.isArray(name);
    const { lease: asked = this.#lease } = known(options, several ? SEVERAL : limit === undefined ? OPTIONS : PERMITS);
    const { wait = longest, mode = "write", task, holder, signal, renew = true, maxHold = Infinity, atLeast = 0, permits = 1 } = options;
    const names = several ? [...name] : [name];
    for (const one of names) text("the name of a lock", one);
    if (names.length === 0) throw new RangeError("a lock has a name, and several have names");
    if (task !== undefined) text("task", task);
    if (holder !== undefined && !/^(?!.*##)./s.test(text("holder", holder))) throw new RangeError(`holder is a name without ##, not ${inspect(holder)}`);
    time("lease", asked);
    time("wait", wait, -Infinity, Infinity);
    time("maxHold", maxHold, LEAST_LEASE, Infinity);
    if (atLeast !== 0) time("atLeast", atLeast);
    const command = COMMANDS.get(limit === undefined ? mode : "read");
    if (!command) throw new TypeError(`mode is 'read' or 'write', not '${mode}'`);
    const keys = names.map((one) => this.session.topology.prefix + one);
    const lease = Math.floor(Math.max(asked, atLeast));
    const shared = limit === undefined ? ["HOLDS", 1] : ["HOLDS", permits, "LIMIT", limit];
    const words = (owner) => (several ? ["LOCK.MACQUIRE", owner, lease, keys.length, ...keys] : [command, keys[0], owner, lease, ...shared]);
    return { name: several ? names : name, several, keys, words, lease, atLeast, task, holder, signal, renew, maxHold, wait };
  }

  tryAcquire(name, options = {}, limit) {
    return this.#take(name, options, limit, 0, () => null);
  }

  acquire(name, options = {}, limit) {
    return this.#take(name, options, limit, Infinity, busy);
  }

  // `none` makes the result if there is no lock within the wait. If the options name no wait, it is `longest`.
  async #take(name, options, limit, longest, none) {
    const request = this.#request(name, options, longest, limit);
    const { keys, wait, signal } = request;
    const begin = now();
    let failing; // since when attempts fail
    let trouble; // why the last one did
    for (let tries = 1; ; tries++) {
      this.#checkOpen(name);
      signal?.throwIfAborted();
      try {
        return (await this.#attempt(request, wait > 0 ? begin + wait - now() : 0, trouble)) ?? none(name);
      } catch (error) {
        if (!(error instanceof Again)) throw error;
        const { cause, since } = error;
        failing = cause && (cause.cause instanceof TooFew ? now() : failing ?? now()); // a server with too few replicas has answered
        trouble = cause;
        const patience = cause ? (since ?? Math.max(failing, this.session.nodeOf(keys[0]).answeredAt)) + PATIENCE : Infinity;
        const end = wait === Infinity ? patience : begin + (wait > 0 ? wait : ONCE);
        const isLast = () => (wait <= 0 && tries > 1) || now() + 20 >= end;
        if (cause && !isLast()) await abortable(inTime(this.session.refresh(keys[0]), end - now()).catch(() => {}), signal);
        if (isLast() && cause) throw failure(cause, name);
        if (isLast()) return none(name);
        if (cause || tries > 3) await abortable(pause(Math.min(20 * 2 ** Math.min(tries, 5), Math.max(20, end - now()))), signal);
      }
    }
  }

  // One request under one name, for `left` ms. If its outcome is unknown in the end, it is left. After `trouble`, which ended the attempt
  // before, it does not get the whole time of a reply once more.
  async #attempt(request, left, trouble) {
    const { keys, name, lease, signal } = request;
    const { session } = this;
    const owner = session.newName(request);
    const ticket = new Ticket(keys[0], left, this);
    session.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    let known = false;
    this.#busy++;
    try {
      const sent = now();
      const asked = session.ask(request.words(owner), ticket);
      const silent = () => new Unanswered(trouble.cause, true);
      let reply = await abortable(trouble && request.wait > 0 ? inTime(asked, left + LATE).catch(silent) : asked, signal);
      if (Array.isArray(reply)) reply = await abortable(ticket.node.answer(ticket, reply[1], sent + left), signal);
      known = reply === null || (reply instanceof Error && !reply.sent);
      if (reply instanceof Error) throw refusal(reply, name);
      if (reply === null) return null;
      const answered = now();
      const begin = Math.max(sent, ticket.begin);
      const lock = new (request.several ? MultiLock : Lock)(this, request, owner, reply, begin);
      if (session.replicas > 0 || lock.until - answered < Math.min(lease, request.maxHold) / 2) {
        const renewed = await abortable(lock.renew(lease), signal); // false at once if it is over
        if (renewed instanceof Error) throw refusal(renewed, name);
        if (!lock.held) throw refusal(tooLate(Math.min(lease, request.maxHold), now() - begin, name), name);
        if (!renewed) throw new Again(); // it is gone
      }
      ticket.node.answeredAt = answered;
      if (this.closed) throw new Again(); // in the same turn: nobody would give it back
      this.keeper.add(lock);
      known = true;
      return lock;
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      session.asked.delete(owner);
      this.#busy--;
      if (!known) this.leave(keys, owner);
    }
  }

  async using(name, options, work, limit) {
    if (typeof options === "function") [options, work] = [{}, options];
    if (typeof work !== "function") throw new TypeError(`work is a function, not ${inspect(work)}`);
    const lock = await this.acquire(name, options, limit);
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
    return new Semaphore(this, text("the name of a semaphore", name), count("limit", limit, 1));
  }

  async takeOver(name, owner, token, options = {}) {
    text("the name of a lock", name);
    text("owner", owner);
    this.#checkOpen(name);
    const request = this.#request(name, options, 0);
    request.words = (heir) => ["LOCK.PASS", request.keys[0], owner, heir, request.lease, "TOKEN", token];
    return this.#attempt(request, 0).catch((error) => {
      if (!(error instanceof Again)) throw error;
      if (error.cause) throw failure(error.cause, name);
      this.#checkOpen(name);
      return null; // it was gone at once
    });
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

  async #replyTo(command, name) {
    this.#checkOpen(name);
    const reply = await this.session.ask(command);
    if (reply instanceof Error) throw failure(reply, name);
    return reply;
  }

  #checkOpen(name) {
    if (this.closed) throw new UnreachableError("the locks are closed", name);
  }

  /** Returns the promise. `close` waits until it has ended. */
  counted(promise) {
    this.#busy++;
    const done = () => this.#busy--;
    promise.then(done, done);
    return promise;
  }

  /** Ends everything under that name at these keys, in the background. */
  leave(keys, owner) {
    for (const key of keys) this.counted(this.session.leave(key, owner));
  }

  async close(ms = 2_000) {
    time("ms", ms, 0);
    const { session, closed } = this;
    this.closed = true;
    for (const ticket of session.asked.values()) if (ticket.user === this) ticket.settle(new Again());
    for (const lock of this.keeper.locks) lock.lose();
    for (const end = now() + ms; this.#busy > 0 && now() < end; ) await pause(5);
    const confirmed = this.#busy === 0;
    if (!closed) session.part();
    return confirmed;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

module.exports = { LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError, UnconfirmedError, Lock, Locks, MultiLock, Semaphore };
