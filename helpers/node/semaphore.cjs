// Permits: up to a limit of them are out at the same time, in all processes together.
// A permit is a shared hold, so all of this is a lock's doing; here are only the words. index.d.cts says what users call.
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
  async acquire(options = {}) {
    return this.#locks.acquire(this.name, this.#asked(options));
  }
  async tryAcquire(options = {}) {
    return this.#locks.tryAcquire(this.name, this.#asked(options));
  }
  async using(options, work) {
    if (work === undefined) [options, work] = [{}, options];
    return this.#locks.using(this.name, this.#asked(options), work);
  }
  async available() {
    const taken = (await this.#locks.holds(this.name)).reduce((sum, hold) => sum + hold.read, 0);
    return Math.max(0, this.limit - taken);
  }
}

module.exports = { Semaphore };
