// Permits: up to a limit of them are out at the same time, in all processes together.
// A permit is a shared hold, so all of this is a lock's doing; here are only the words. index.d.cts says what users call.
"use strict";

class Semaphore {
  #locks;
  constructor(locks, name, limit) {
    this.#locks = locks;
    this.name = name;
    this.limit = limit;
  }
  acquire(options = {}) {
    return this.#locks.acquire(this.name, options, this.limit);
  }
  tryAcquire(options = {}) {
    return this.#locks.tryAcquire(this.name, options, this.limit);
  }
  using(options, work) {
    return this.#locks.using(this.name, options, work, this.limit);
  }
  async available() {
    const holds = await this.#locks.holds(this.name);
    const taken = holds.reduce((sum, hold) => sum + (hold.write > 0 ? this.limit : hold.read), 0); // a writer keeps all out
    return Math.max(0, this.limit - taken);
  }
}

module.exports = { Semaphore };
