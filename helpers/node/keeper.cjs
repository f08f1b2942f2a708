// Lets held locks renew themselves, and end when they are over, in time.
"use strict";
const { now } = require("./clock.cjs");
const { MOST } = require("./wire.cjs");

const TICK = 1_000; // ms after which held locks are checked, at the latest: timers stop while the machine sleeps

class Keeper {
  locks = new Set();
  #timer;
  #wakesAt = Infinity;

  /** Looks after a lock, from its next due time on. */
  add(lock) {
    this.locks.add(lock);
    if (lock.dueAt < this.#wakesAt) this.#sleepUntil(lock.dueAt);
  }

  // What is due goes to the server together, but never so much at once that the program stands still meanwhile.
  #wake() {
    const at = now();
    this.#wakesAt = Infinity; // while no lock is held there is no timer
    let due = 0;
    let next = at + TICK;
    for (const lock of this.locks) {
      if (due < MOST && lock.keep(at)) due++;
      next = Math.min(next, lock.dueAt);
    }
    if (this.locks.size > 0) this.#sleepUntil(next);
  }

  // No process stays for this timer: what is held has connections.
  #sleepUntil(time) {
    clearTimeout(this.#timer);
    const at = now();
    this.#wakesAt = Math.min(time, at + TICK);
    this.#timer = setTimeout(() => this.#wake(), Math.max(1, this.#wakesAt - at)).unref();
  }
}

module.exports = { Keeper };
