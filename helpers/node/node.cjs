// One server as its locks see it: who waits there for letters, what is held and what is left.
// Knows nothing of how a lock is acquired: that is index.cjs, which uses this.
"use strict";
const { randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { performance } = require("node:perf_hooks");
const { Confirmer, LATE, MOST, TooFew, Unanswered, Wire, codeOf } = require("./connections.cjs");

const COMMAND_TIMEOUT = 2_000; // ms without a reply after which all that is in flight on a connection is unknown
const MAIL_WAIT = 2_000; // ms for which one LOCK.MAIL waits
const LEAVE_FOR = 60_000; // ms in which what arrives late of a name that was left changes nothing
const TICK = 1_000; // ms after which held locks are checked, at the latest: timers stop while the machine sleeps

const FORBIDDEN = /^(NOPERM|NOAUTH|ERR unknown command)\b/;

/** This attempt came to nothing, the next one may not. */
class Again extends Error {}

/**
 * Milliseconds that go on while the machine sleeps. On macOS and Windows performance.now() does (mach_continuous_time,
 * QueryPerformanceCounter). On Linux it stands still then, and the wall clock does not. If the two differ, the machine slept or the wall
 * clock was set, and only then it asks the system which.
 */
function bootClock(monotonic, wall, uptime, platform) {
  if (platform === "darwin" || platform === "win32") return monotonic;
  let [slept, apart] = [0, wall() - monotonic()];
  const booted = uptime() - monotonic();
  return () => {
    const at = monotonic();
    if (Math.abs(wall() - at - apart) > 20) {
      apart = wall() - at;
      const since = uptime() - at - booted;
      if (since > slept + 20) slept = since;
    }
    return at + slept;
  };
}

// Without Linux's /proc a wall clock that is set forward counts as a sleep: belief ends too early, never too late.
function uptime() {
  try {
    return parseFloat(readFileSync("/proc/uptime", "latin1")) * 1000;
  } catch {
    return Date.now();
  }
}
const now = bootClock(() => performance.now(), () => Date.now(), uptime, process.platform);
function fieldsOf(map) {
  if (map instanceof Map) return Object.fromEntries(map);
  if (!Array.isArray(map)) return map;
  const fields = {};
  for (let index = 0; index < map.length; index += 2) fields[map[index]] = map[index + 1];
  return fields;
}

/** Something that can be waited for, for a while. */
class Bell {
  rung = false;
  #ring;
  #rings; // made where somebody waits: most are told before
  clear() {
    this.rung = false;
    this.#rings = undefined;
  }
  ring() {
    this.rung = true;
    this.#ring?.();
  }
  async wait(ms) {
    if (this.rung) return true;
    this.#rings ??= new Promise((resolve) => (this.#ring = resolve));
    if (ms === Infinity) return this.#rings.then(() => this.rung);
    const late = new Promise((resolve) => (this.timer = setTimeout(resolve, Math.min(Math.max(0, ms), 2 ** 31 - 1))));
    await Promise.race([this.#rings, late]);
    clearTimeout(this.timer);
    return this.rung;
  }
}
const pause = (ms) => new Bell().wait(ms);

/** The keys that a command is about; it is routed by the first. */
const keysOf = (command) => (command[0] === "LOCK.MACQUIRE" ? command.slice(4, 4 + command[3]) : [command[1]]);

/** The waits that an aborted signal ends. Node warns of many listeners, and searches all of them for each: it has one. */
const listeners = new WeakMap();

/** The promise's outcome, or the signal's reason as soon as that is aborted. */
function abortable(promise, signal) {
  if (!signal) return promise;
  promise.catch(() => {});
  if (signal.aborted) return Promise.reject(signal.reason);
  const all = listeners.get(signal) ?? Object.assign(new Set(), { tell: () => all.forEach((reject) => reject(signal.reason)) });
  if (all.size === 0) {
    listeners.set(signal, all);
    signal.addEventListener("abort", all.tell, { once: true });
  }
  let stop;
  const aborted = new Promise((_, reject) => all.add((stop = reject)));
  return Promise.race([promise, aborted]).finally(() => {
    all.delete(stop);
    if (all.size === 0) signal.removeEventListener("abort", all.tell);
  });
}

/** A request that may be answered by letter within `left` ms. `node`: the one that it was sent to last; `user`: whose it is. */
class Ticket {
  #bell; // made where somebody waits: most are answered by the reply
  node = undefined;
  settled = false;
  answer = undefined;
  since = undefined; // of the box that it was put into
  begin = -Infinity;
  constructor(key, left, signal, user) {
    Object.assign(this, { key, left, signal, user });
  }
  settle(answer, begin = -Infinity) {
    if (this.settled) return;
    this.settled = true;
    this.answer = answer;
    this.begin = begin;
    this.#bell?.ring();
  }
  /** Whether it is settled, within `ms`. */
  wait(ms) {
    if (this.settled) return true;
    this.#bell ??= new Bell();
    return abortable(this.#bell.wait(ms), this.signal);
  }
}

/** One server: who waits there, what is held there, and what has to be left there. */
class Node {
  queued = new Set();
  holds = new Set();
  pendingLeaves = new Set(); // each has a key, the command that ends a name there, and a user, whose it was
  answeredAt = -Infinity; // when it last gave a request a useful answer
  #doubt = false; // whether somebody may wait in a box that is gone
  #awake = { listen: false, keep: false };
  #toKeep = new Bell();
  #keepsAt = Infinity;
  #isIdle = false; // no process stays for the keeper's timer

  constructor(session, address) {
    Object.assign(this, { session, address });
    this.wire = new Wire(() => session.topology.open(address), COMMAND_TIMEOUT);
    this.mailWire = new Wire(() => session.topology.open(address), COMMAND_TIMEOUT + MAIL_WAIT);
    this.confirmer = new Confirmer(() => session.topology.open(address), session.replicas, COMMAND_TIMEOUT);
    this.#newBox();
  }

  // In a cluster LOCK.MAIL is routed by the box's name: a hash tag that the node serves.
  #newBox() {
    const { topology } = this.session;
    let tag = "";
    for (let n = 0; this.address !== undefined && topology.address((tag = `{${n}}`)) !== this.address && n < 1 << 18; n++);
    Object.assign(this, { box: randomUUID() + tag, since: undefined, number: 0 });
  }

  // `work` calls `rest` when it finds nothing to do: what comes from then on, if only in the same turn, starts it again.
  async #work(kind, work) {
    if (this.#awake[kind]) return;
    this.#awake[kind] = true;
    const rest = () => (this.#awake[kind] = false);
    await work(rest).catch((error) => {
      rest();
      throw error;
    });
  }

  /**
   * The reply to a command, or the error in its place. The server gets the LEAVEs for the same keys first, and then ASKING
   * where it has asked for that.
   */
  send(command, ticket, asking) {
    const { size } = this.pendingLeaves; // many are left to the keeper
    if (size > 0 && size <= 100) this.#leaveFirst(keysOf(command));
    if (asking) this.wire.call(["ASKING"]);
    if (ticket === undefined) return this.wire.call(command);
    ticket.node = this;
    const { left } = ticket;
    const full = left > 0 ? [...command, "WAIT", left === Infinity ? 0 : Math.max(1, Math.ceil(left)), "MAIL", this.box] : command;
    return abortable(this.wire.call(full), ticket.signal);
  }

  #leaveFirst(keys) {
    for (const pending of this.pendingLeaves) {
      if (keys.includes(pending.key)) this.wire.call(pending.command).then((reply) => this.left(pending, reply));
    }
  }

  /** Waits for the letter to a request that was queued, until `ends` at the latest. */
  async answer(ticket, since, ends) {
    ticket.since = since;
    this.queued.add(ticket);
    this.#doubt ||= since !== this.since;
    this.#listen();
    try {
      while (!(await ticket.wait(ends - now())) && now() < ends);
      if (!(await ticket.wait(LATE))) throw new Again(); // a process that was busy reads first what has come
    } finally {
      this.queued.delete(ticket);
    }
    if (ticket.answer instanceof Again) throw ticket.answer;
    return ticket.answer;
  }

  /** Collects the letters of all that wait at this node. */
  #listen() {
    return this.#work("listen", async (rest) => {
      while (this.queued.size > 0 && !this.session.ended) {
        const sent = now();
        const after = this.since === undefined ? [] : ["AFTER", this.since, this.number];
        const reply = await this.mailWire.call(["LOCK.MAIL", this.box, ...after, "WAIT", MAIL_WAIT]);
        if (reply instanceof Error) await this.#mailFailed(reply);
        else this.#deliver(sent, ...reply);
      }
      rest();
    });
  }

  async #mailFailed(error) {
    // The server does not let this user wait. Whether the requests are gone is unknown.
    if (FORBIDDEN.test(error.message)) {
      for (const ticket of this.queued) ticket.settle(Object.assign(new Error(error.message), { sent: true }));
      this.queued.clear();
      return;
    }
    await pause(50);
    const [first] = this.queued;
    if (first) await this.session.refresh(first.key);
    const moved = codeOf(error) === "MOVED";
    this.#askAgain((ticket) => moved || this.session.nodeOf(ticket.key) !== this);
    if (moved) this.#newBox();
  }

  #deliver(sent, since, waited, letters) {
    if (since !== this.since) [this.since, this.number, this.#doubt] = [since, 0, true];
    for (const { number, owner, result, token, age, error } of letters.map(fieldsOf)) {
      this.number = Math.max(this.number, number);
      const ticket = this.session.asked.get(owner); // none where nobody wants it any more: its name was left
      if (result === "granted") ticket?.settle(token, sent + waited - age);
      else ticket?.settle(result === "refused" ? new Error(error) : null);
    }
    if (!this.#doubt) return;
    this.#doubt = false;
    this.#askAgain((ticket) => ticket.since !== since); // what was put into another box is gone
  }

  #askAgain(which) {
    for (const ticket of this.queued) {
      if (which(ticket) && this.queued.delete(ticket)) ticket.settle(new Again());
    }
  }

  /** Renews held locks, reports lost ones, and leaves those of unknown outcome, in one pipeline. */
  #keep() {
    return this.#work("keep", async (rest) => {
      this.#isIdle = false;
      for (let wait = 20; ; ) {
        this.#toKeep.clear();
        const sent = now();
        for (const hold of this.holds) if (sent >= hold.until) hold.lose();
        const holds = [...this.holds];
        const pendingLeaves = [...this.pendingLeaves];
        const renewals = []; // and what takes the reply to each of them: whether it has to be sent again
        for (const hold of holds) {
          if (hold.renewAt > sent + hold.lease / 10 || sent >= hold.last) continue;
          for (const command of hold.renewals(Math.min(hold.lease, hold.last - sent))) {
            renewals.push({ command, take: (reply) => hold.renewed(command[1], reply, sent) });
          }
        }
        const leaves = pendingLeaves.map((pending) => ({ command: pending.command, take: (reply) => this.left(pending, reply) }));
        if (renewals.length + leaves.length > 0) {
          const failed = await this.#exchange(renewals, leaves);
          if (failed) {
            await this.#rehome();
            await pause(holds.reduce((least, hold) => Math.min(least, hold.lease / 10), wait));
          }
          wait = failed ? Math.min(wait * 2, 500) : 20;
        } else {
          if (this.#isIdle && holds.length === 0) return rest(); // and not at once: the next lock may be taken in a moment
          this.#keepsAt = holds.reduce((least, hold) => Math.min(least, hold.dueAt), sent + TICK);
          const rung = this.#toKeep.wait(Math.max(1, this.#keepsAt - sent));
          this.#rest(holds.length === 0);
          await rung;
        }
      }
    });
  }

  /** Sends the commands, and lets their replies be taken. Whether one of them has to be sent again. */
  async #exchange(renewals, leaves) {
    const isConfirming = this.session.replicas > 0;
    const [confirmed, replies] = await Promise.all([
      isConfirming && renewals.length > 0 ? this.confirm(renewals.map(({ command }) => command)) : [],
      this.#answers((isConfirming ? leaves : [...renewals, ...leaves]).map(({ command }) => command)),
    ]);
    let failed = false;
    for (const [index, { command, take }] of [...renewals, ...leaves].entries()) {
      let reply = index < confirmed.length ? confirmed[index] : replies[index - confirmed.length];
      if (codeOf(reply) === "ASK" && index >= confirmed.length) reply = await this.session.ask(command);
      failed = take(reply) || failed;
    }
    return failed;
  }

  /** The replies to renewals, or errors in their place, once the replicas have confirmed them. */
  async confirm(renewals) {
    const replies = await this.confirmer.confirm(renewals);
    if (replies.some((reply) => reply?.cause instanceof TooFew)) {
      for (const wire of [this.wire, this.mailWire, this.confirmer.wire]) wire.doubt(); // a primary without replicas may have a successor
    }
    return replies;
  }

  // In portions, so that other calls need not wait for all of them.
  async #answers(commands) {
    const replies = [];
    while (replies.length < commands.length) {
      const portion = commands.slice(replies.length, replies.length + MOST);
      replies.push(...(await Promise.all(portion.map((command) => this.wire.call(command)))));
      const last = replies[replies.length - 1];
      if (last instanceof Unanswered) replies.push(...commands.slice(replies.length).fill(last));
    }
    return replies;
  }

  left(pending, reply) {
    if (reply instanceof Error && codeOf(reply) !== "NOPERM" && codeOf(reply) !== "WRONGTYPE") return true;
    this.pendingLeaves.delete(pending);
    return false;
  }

  // Moves locks to the nodes that serve them by now.
  async #rehome() {
    const keys = [...[...this.holds].map((hold) => hold.key), ...[...this.pendingLeaves].map((pending) => pending.key)];
    if (keys.length > 0) await this.session.refresh(keys[0]);
    for (const hold of this.holds) {
      const node = this.session.nodeOf(hold.key);
      if (node !== this && this.holds.delete(hold)) node.hold(hold);
    }
    for (const pending of this.pendingLeaves) {
      const node = this.session.nodeOf(pending.key);
      if (node !== this && this.pendingLeaves.delete(pending)) node.#addPending(pending);
    }
  }

  hold(hold) {
    this.holds.add(hold);
    hold.node = this;
    if (hold.dueAt < this.#keepsAt) this.#toKeep.ring();
    if (!this.#awake.keep) this.#keep();
    else if (this.#isIdle) this.#rest(false);
  }

  drop(hold) {
    this.holds.delete(hold);
  }

  // No process stays for the timer while nothing is held. Set when the timer starts, not for each release: that costs a call into the
  // event loop.
  #rest(isIdle) {
    this.#isIdle = isIdle;
    if (isIdle) this.#toKeep.timer?.unref();
    else this.#toKeep.timer?.ref();
  }

  close() {
    this.#rest(true);
    return Promise.all([this.wire, this.mailWire, this.confirmer.wire].map((wire) => wire.close()));
  }

  /** Whether something of that user has still to be left. */
  hasPending(user) {
    for (const pending of this.pendingLeaves) if (pending.user === user) return true;
    return false;
  }

  /** Ends everything under that name at the key: repeats LOCK.LEAVE until the server replies. */
  leave(key, owner, user) {
    this.#addPending({ key, user, command: ["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR] });
  }
  #addPending(pending) {
    if (this.session.ended) return;
    this.pendingLeaves.add(pending);
    this.#toKeep.ring();
    this.#keep();
  }
}

module.exports = { Again, bootClock, now, pause, abortable, fieldsOf, keysOf, Ticket, Node };
