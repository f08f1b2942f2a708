// Several locks that were granted in one instant: each is a hold of its own, renewed and given back like any other.
"use strict";
const { askedOften } = require("./lock.cjs");

class MultiLock {
  #controller;
  constructor(locks) {
    this.locks = locks;
  }
  get names() {
    return this.locks.map((lock) => lock.name);
  }
  get token() {
    return this.locks[0].token;
  }
  get owner() {
    return this.locks[0].owner;
  }
  get held() {
    return this.locks.every((lock) => lock.held);
  }
  /** Aborts, with a LostError as its reason, as soon as one of them is lost. */
  get signal() {
    if (this.#controller) return this.#controller.signal;
    this.#controller = new AbortController();
    askedOften(this.#controller.signal, () => this.locks.some(({ signal }) => signal.aborted));
    for (const { signal } of this.locks) {
      const abort = () => this.#controller.abort(signal.reason);
      if (signal.aborted) abort();
      else signal.addEventListener("abort", abort, { once: true });
    }
    return this.#controller.signal;
  }
  /** Gives all of them back. Rejects with a LostError if one was lost before. */
  async release() {
    await this.#each((lock) => lock.release());
  }
  /** Holds all of them for `ms` from now on at least. */
  async extend(ms) {
    await this.#each((lock) => lock.extend(ms));
  }
  // All in one pipeline, whatever becomes of the first.
  async #each(work) {
    const ended = await Promise.allSettled(this.locks.map(work));
    const failed = ended.find(({ status }) => status === "rejected");
    if (failed) throw failed.reason;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

module.exports = { MultiLock };
