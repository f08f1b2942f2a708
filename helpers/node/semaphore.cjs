// Permits: up to a limit of them are out at the same time, in all processes together.
// A permit is a shared hold, so all of this is a lock's doing; here are only the words.
"use strict";
const { inspect } = require("node:util");

class Semaphore {
  #locks;
  constructor(locks, name, limit) {
    this.#locks = locks;
    this.name = name;
    this.limit = limit;
  }
  #asked(options) {
    if (typeof options !== "object" || options === null) throw new TypeError(`options are an object, not ${inspect(options)}`);
    return { ...options, limit: this.limit };
  }
  /** A Lock that stands for `permits` of them, 1 if not given. Rejects with a BusyError if there are not as many within `wait`. */
  async acquire(options = {}) {
    return this.#locks.acquire(this.name, this.#asked(options));
  }
  /** The same, or null if there are not as many within `wait`. */
  async tryAcquire(options = {}) {
    return this.#locks.tryAcquire(this.name, this.#asked(options));
  }
  /** Runs `work` with its permits, and gives them back. `options` may be left out. */
  async using(options, work) {
    if (work === undefined) [options, work] = [{}, options];
    return this.#locks.using(this.name, this.#asked(options), work);
  }
  /** How many permits are free now. */
  async available() {
    const taken = (await this.#locks.holds(this.name)).reduce((sum, hold) => sum + hold.read, 0);
    return Math.max(0, this.limit - taken);
  }
}

module.exports = { Semaphore };
