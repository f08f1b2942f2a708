// A granted lock, of one key or several: how long it counts as held, and how it ends. index.d.cts says what users call.
"use strict";
const { Unanswered, codeOf } = require("./connections.cjs");
const { abortable, now } = require("./node.cjs");
const { LostError, RefusedError, text, time, unasked } = require("./values.cjs");

/** Lets the signal `notice`, whenever it is asked, whether it has to be aborted. */
function askedOften(signal, notice) {
  const { get } = Object.getOwnPropertyDescriptor(AbortSignal.prototype, "aborted");
  const isAborted = () => (notice(), get.call(signal));
  Object.defineProperties(signal, {
    aborted: { get: isAborted },
    throwIfAborted: {
      value() {
        if (isAborted()) throw signal.reason;
      },
    },
  });
}

/** A lock that was granted. */
class Lock {
  #locks;
  #controller;
  #lost; // the error of its loss
  #over = false;
  #passing = false; // nobody may rely on it meanwhile
  #restsUntil = -Infinity;
  node; // that serves it, since it is held
  until = -Infinity;

  #renewing = new Set(); // the keys whose renewal is not confirmed yet
  #renewedAt = Infinity; // when the first of its renewals was sent

  constructor(locks, { name, keys, lease, maxHold, renew, atLeast }, owner, token, begin) {
    this.#locks = locks;
    this.name = name;
    this.keys = keys;
    this.lease = lease;
    this.owner = owner;
    this.token = token;
    this.last = begin + maxHold;
    this.renewAt = renew ? begin + lease / 3 : Infinity;
    if (atLeast > 0) this.#restsUntil = now() + atLeast;
    this.believe(begin, lease);
  }
  /** Its key, or the first of several: all of them are served by one server. */
  get key() {
    return this.keys[0];
  }
  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      askedOften(this.#controller.signal, () => this.#notice());
    }
    if (this.#lost) this.#controller.abort(this.#lost);
    return this.#controller.signal;
  }
  // After a long computation no timer has run yet that would have noticed the end of the lease.
  #notice() {
    if (!this.#over && now() >= this.until) this.lose();
  }
  get held() {
    return !this.#over && !this.#passing && now() < this.until;
  }
  get over() {
    return this.#over;
  }
  /** The Locks that it was taken with. */
  get user() {
    return this.#locks;
  }
  /** When there is something to do about it. */
  get dueAt() {
    return Math.min(this.until, this.renewAt < this.last ? this.renewAt : Infinity);
  }
  believe(begin, lease) {
    this.until = Math.max(this.until, Math.min(begin + lease - lease / 100 - 2, this.last));
  }
  #renewal(key, lease) {
    return ["LOCK.RENEW", key, this.owner, Math.max(1, Math.floor(lease)), "TOKEN", this.token];
  }
  /** The commands that renew all of its keys. It counts as renewed with the last reply, from the first request on. */
  renewals(lease) {
    this.#renewing = new Set(this.keys);
    this.#renewedAt = Infinity;
    return this.keys.map((key) => this.#renewal(key, lease));
  }
  /** Takes the reply to the renewal of a key; whether it has to be asked again. */
  renewed(key, reply, sent) {
    if (this.#over) return false;
    if (reply === null || codeOf(reply) === "WRONGTYPE") this.#lose();
    else if (reply !== this.token) return true;
    else if (now() < this.until) {
      this.#renewing.delete(key);
      this.#renewedAt = Math.min(this.#renewedAt, sent);
      if (this.#renewing.size > 0) return false;
      this.believe(this.#renewedAt, Math.min(this.lease, this.last - this.#renewedAt)); // a lock that has run out is never held again
      this.renewAt = this.#renewedAt + this.lease / 3;
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
    this.#reportLoss();
    this.leave(this.keys);
  }
  /** Leaves its name at these keys. What has to stay taken for a while stays until its lease is over. */
  leave(keys) {
    const node = this.#locks.session.nodeOf(this.key);
    if (!this.rests) for (const key of keys) node.leave(key, this.owner, this.#locks);
  }
  // Loses a lock that is gone at the server, or was revoked, and leaves it.
  #lose() {
    this.forgetRest();
    this.lose();
  }
  /** Whether the lock has to stay taken for a while after this. */
  get rests() {
    return this.#restsUntil !== -Infinity && now() < this.#restsUntil;
  }
  forgetRest() {
    this.#restsUntil = -Infinity;
  }
  /** The command that gives it to another name, with that lease. */
  handover(key, heir, lease) {
    return ["LOCK.PASS", key, this.owner, heir, Math.max(1, Math.ceil(lease)), "TOKEN", this.token];
  }
  /** The command that gives the rest of `atLeast` to a name that nobody uses. */
  resting(key) {
    const own = Buffer.byteLength(this.owner) <= 250 ? this.owner : this.#locks.session.newName();
    return this.handover(key, `rest:${own}`, this.#restsUntil - now());
  }
  #reportLoss() {
    this.#lost ??= new LostError(`the lock '${this.name}' was lost`, this.name);
    this.#controller?.abort(this.#lost);
  }
  async release() {
    if (!this.#over && !(await this.#locks.release(this))) this.#reportLoss();
    if (this.#lost) throw this.#lost; // and once is enough
  }
  async extend(ms) {
    time("ms", ms);
    const extended = await this.confirm(ms).catch((error) => {
      throw error instanceof Unanswered ? unasked(error.cause, this.name) : error;
    });
    if (!extended) this.#lose();
    if (this.#lost) throw this.#lost;
  }
  async passTo(owner, lease) {
    text("owner", owner);
    time("lease", lease);
    if (this.#over && !this.#lost) throw new LostError(`the lock '${this.name}' is not held any more`, this.name);
    let token = null;
    if (this.held) {
      this.#passing = true;
      token = await this.#locks.handOver(this, owner, lease).finally(() => (this.#passing = false));
    } else this.lose();
    if (token === null) this.#reportLoss();
    if (this.#lost) throw this.#lost;
    return token;
  }
  async guard(...command) {
    if (command.length === 0) throw new TypeError("a command to guard is missing");
    if (this.#over) throw this.#lost ?? new LostError(`the lock '${this.name}' is not held any more`, this.name);
    const reply = await this.#locks.session.ask(["LOCK.GUARD", this.key, this.owner, this.token, ...command]);
    if (!(reply instanceof Error)) return reply;
    if (reply instanceof Unanswered) throw unasked(reply.cause, this.name, "nobody knows whether the command ran");
    if (codeOf(reply) !== "NOTHELD") throw new RefusedError(reply.message, this.name, reply);
    this.#lose();
    throw this.#lost;
  }
  /** Asks for `ms` from now on. Whether it is held. */
  async confirm(ms, signal) {
    const sent = now();
    const renewals = this.held ? this.keys.map((key) => this.#renewal(key, ms)) : [];
    const replies = await abortable(this.#locks.session.renew(renewals), signal);
    for (const reply of replies) {
      if (reply instanceof Unanswered) throw reply;
      if (reply instanceof Error && codeOf(reply) !== "WRONGTYPE") throw new RefusedError(reply.message, this.name, reply);
    }
    if (!this.held || replies.some((reply) => reply !== this.token)) return false;
    this.believe(sent, ms);
    return true;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

/** Several that were taken at once. */
class MultiLock extends Lock {
  get names() {
    return this.name;
  }
  async passTo() {
    throw new TypeError("only a lock of one name is passed on");
  }
}

module.exports = { Lock, MultiLock };
