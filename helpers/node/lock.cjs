// A granted lock, of one key or several: how long it counts as held, and how it ends. index.d.cts says what users call.
"use strict";
const { now } = require("./clock.cjs");
const { LockError, LostError, failure, text, time, word } = require("./values.cjs");
const { codeOf } = require("./wire.cjs");

const PAUSE = 500; // ms from a renewal that failed to the next; for a short lease a tenth of it
const LONGEST_NAME = 255; // bytes

/** Whether the reply says that there is no such hold. A key of another type has none. */
const isGone = (reply) => reply === null || codeOf(reply) === "WRONGTYPE";

/** Calls `notice`, which aborts the signal if it is time, before the signal says whether it is aborted. */
function askedOften(signal, notice) {
  const { get } = Object.getOwnPropertyDescriptor(AbortSignal.prototype, "aborted");
  Object.defineProperty(signal, "aborted", { get: () => (notice(), get.call(signal)) });
  signal.throwIfAborted = () => {
    if (signal.aborted) throw signal.reason;
  };
}

/** A lock that was granted. */
class Lock {
  #locks;
  #controller;
  #lost; // the error of its loss
  #over = false;
  #released; // the promise, once it is being released
  #passing = false; // nobody may rely on it meanwhile
  #restsUntil; // it stays taken until then, however early it is released
  #early; // ms before `renewAt` from which it may be renewed together with others; 0 after a renewal that failed
  until = -Infinity;

  constructor(locks, { name, keys, lease, maxHold, renew, atLeast }, owner, token, begin) {
    this.#locks = locks;
    Object.assign(this, { name, keys, lease, owner, token });
    this.last = begin + maxHold;
    this.renewAt = renew ? begin + lease / 3 : Infinity;
    this.#early = lease / 10;
    this.#restsUntil = atLeast > 0 ? now() + atLeast : -Infinity;
    this.#believe(begin, lease);
  }
  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      // After a long computation no timer has run yet that would have noticed the end of the lease.
      askedOften(this.#controller.signal, () => !this.#over && now() >= this.until && this.lose());
    }
    if (this.#lost) this.#controller.abort(this.#lost);
    return this.#controller.signal;
  }
  get held() {
    return !this.#over && !this.#passing && now() < this.until;
  }
  /** When it has to be renewed, or is over. */
  get dueAt() {
    return this.#passing ? Infinity : Math.min(this.until, this.renewAt);
  }
  #believe(begin, lease) {
    this.until = Math.max(this.until, Math.min(begin + lease - lease / 100 - 2, this.last));
  }

  /**
   * Asks for `ms` from now on: true if it is held for as long, false if it is not held, and otherwise the error in a reply's place. A
   * lock that has run out is never held again.
   */
  async renew(ms) {
    if (!this.held) return false;
    const sent = now();
    const lease = Math.max(1, Math.floor(ms));
    const replies = await this.#locks.session.renew(this.keys.map((key) => ["LOCK.RENEW", key, this.owner, lease, "TOKEN", this.token]));
    if (replies.some(isGone)) this.#restsUntil = -Infinity;
    else if (!this.#over && now() < this.until) {
      const error = replies.find((reply) => reply instanceof Error);
      if (!error) this.#believe(sent, lease);
      return error ?? true;
    }
    return false;
  }
  /** Renews it if that is due, and ends it if it is over. Whether something was sent. */
  keep(at) {
    if (this.#passing) return false;
    if (at >= this.until) this.lose();
    else if (at + this.#early >= this.renewAt) {
      this.#keepRenewed(at);
      return true;
    }
    return false;
  }
  async #keepRenewed(at) {
    this.renewAt = Infinity; // until the reply
    const renewed = await this.renew(Math.min(this.lease, this.last - at));
    if (renewed instanceof Error) {
      await this.#locks.session.refresh(this.keys[0]);
      this.renewAt = at + Math.min(PAUSE, this.lease / 10);
      this.#early = 0;
    } else {
      this.renewAt = at + this.lease / 3;
      this.#early = this.lease / 10;
    }
    if (this.#over || this.#passing) return;
    if (renewed) this.#locks.keeper.add(this);
    else this.lose();
  }

  #end() {
    this.#over = true;
    this.#locks.keeper.locks.delete(this);
  }
  #reportLoss() {
    this.#lost ??= new LostError(`the lock '${this.name}' was lost`, this.name);
    this.#controller?.abort(this.#lost);
  }
  lose() {
    if (this.#over) return;
    this.#end();
    this.#leave(); // before a listener of the loss closes the locks
    this.#reportLoss();
  }
  // What has to stay taken for a while stays until its lease is over.
  #leave() {
    if (now() >= this.#restsUntil) this.#locks.leave(this.keys, this.owner);
  }

  async release() {
    if (!this.#over) this.#released = this.#locks.counted(this.#release());
    await this.#released;
    if (this.#lost) throw this.#lost; // and once is enough
  }
  async #release() {
    const { held } = this;
    this.#end();
    const isKept = now() < this.#restsUntil;
    const readable = `rest:${this.owner}`;
    const rest = Buffer.byteLength(readable) > LONGEST_NAME ? `rest:${this.#locks.session.newName()}` : readable;
    const replies = await Promise.all(this.keys.map((key) => this.#giveBack(key, rest)));
    const errors = replies.filter((reply) => reply instanceof Error && !isGone(reply));
    const barred = errors.find((error) => codeOf(error) === "NOPERM");
    if (barred) throw failure(barred, this.name);
    if (errors.length > 0) this.#leave();
    const isLost = replies.some(isGone);
    if (isLost && isKept && this.keys.length > 1) this.#locks.leave(this.keys, rest); // all are kept, or none
    if (!held || isLost) this.#reportLoss();
  }
  // The reply, or error, to what gives a key back, or what is left of `atLeast` to the name `rest`, which nobody uses.
  async #giveBack(key, rest) {
    const { session } = this.#locks;
    const ms = Math.ceil(this.#restsUntil - now());
    const passed = ms > 0 ? await session.ask(["LOCK.PASS", key, this.owner, rest, ms, "TOKEN", this.token]) : null;
    if (passed !== null) return passed;
    this.#restsUntil = -Infinity; // there is none, or it was revoked
    return session.ask(["LOCK.RELEASE", key, this.owner, "ALL", "TOKEN", this.token]);
  }

  async extend(ms) {
    time("ms", ms);
    this.#checkOpen();
    if (now() + ms > this.last) throw new RangeError(`maxHold ends in ${Math.floor(this.last - now())} ms, before ${ms} ms are over`);
    const extended = await this.renew(ms);
    if (extended instanceof Error) throw failure(extended, this.name);
    if (extended) return;
    this.lose();
    this.#checkOpen();
  }
  async passTo(owner, lease) {
    text("owner", owner);
    time("lease", lease);
    this.#checkOpen();
    return this.#locks.counted(this.#pass(owner, Math.ceil(lease)));
  }
  async #pass(heir, lease) {
    const { keeper, session } = this.#locks;
    this.#passing = true;
    const reply = await session.ask(["LOCK.PASS", this.keys[0], this.owner, heir, lease, "TOKEN", this.token]);
    this.#passing = false;
    if (typeof reply === "number") {
      this.#end();
      return reply;
    }
    if (isGone(reply)) throw this.#gone();
    if (reply.sent) {
      this.#gone();
      this.#locks.leave(this.keys, heir);
      throw failure(reply, this.name, "nobody knows whether the lock was passed on");
    }
    if (!this.#over) keeper.add(this); // it may have been released meanwhile
    throw failure(reply, this.name);
  }
  async guard(...command) {
    if (command.length === 0) throw new TypeError("a command to guard is missing");
    this.#checkOpen();
    const words = command.map(word);
    const reply = await this.#locks.session.ask(["LOCK.GUARD", this.keys[0], this.owner, this.token, ...words]);
    if (!(reply instanceof Error)) return reply;
    throw codeOf(reply) === "NOTHELD" ? this.#gone() : failure(reply, this.name, "nobody knows whether the command ran");
  }
  #checkOpen() {
    if (this.#passing && !this.#over) throw new LockError(`the lock '${this.name}' is being passed on`, this.name);
    if (!this.held) this.lose();
    if (this.#over) throw this.#lost ?? new LostError(`the lock '${this.name}' is not held any more`, this.name);
  }
  // Loses a lock that is gone at the server, or was revoked, and leaves it.
  #gone() {
    this.#restsUntil = -Infinity;
    this.lose();
    this.#reportLoss(); // also where it was released meanwhile
    return this.#lost;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

/** Several that were taken at once. */
class MultiLock extends Lock {
  names = this.name;
  async passTo() {
    throw new TypeError("only a lock of one name is passed on");
  }
}

module.exports = { Lock, MultiLock };
