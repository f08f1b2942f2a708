// One server as its locks see it: what is on its connections, who waits for letters, what is renewed and what is left.
// Knows nothing of how a lock is acquired: that is index.js, which uses this.
import { randomUUID } from "node:crypto";

const COMMAND_TIMEOUT = 2_000; // ms without a reply after which all that is in flight on a connection is unknown
const MAIL_WAIT = 2_000; // ms for which one LOCK.MAIL waits
const LEAVE_FOR = 60_000; // ms in which what arrives late of a name that was left changes nothing
export const LONGEST_TIMER = 2 ** 31 - 1;

/** A request without a reply. `sent` is false where it surely never left. */
export class Unanswered extends Error {
  constructor(cause, sent) {
    super("no reply", { cause });
    this.sent = sent;
  }
}
/** This attempt came to nothing, the next one may not. */
export class Again extends Error {}

export const now = () => performance.now();
export const codeOf = (error) => String(error?.message).split(" ", 1)[0];

function fieldsOf(map) {
  if (map instanceof Map) return Object.fromEntries(map);
  if (!Array.isArray(map)) return map;
  return Object.fromEntries(Array.from({ length: map.length / 2 }, (_, index) => [map[2 * index], map[2 * index + 1]]));
}

/** Something that can be waited for, for a while. */
class Bell {
  #ring;
  constructor() {
    this.clear();
  }
  clear() {
    this.rung = false;
    this.promise = new Promise((resolve) => (this.#ring = resolve));
  }
  ring() {
    this.rung = true;
    this.#ring();
  }
  async wait(ms) {
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, Math.min(Math.max(0, ms), LONGEST_TIMER))));
    await Promise.race([this.promise, late]);
    clearTimeout(timer);
    return this.rung;
  }
}
export const pause = (ms) => new Bell().wait(ms);

/** A request that may be answered by letter. */
export class Ticket {
  bell = new Bell();
  knownAt = Infinity;
  constructor(key, node) {
    Object.assign(this, { key, node });
  }
  settle(answer, begin = -Infinity) {
    if (this.bell.rung) return;
    Object.assign(this, { answer, begin });
    this.bell.ring();
  }
}

/** One connection that all share, made anew after any trouble. What was on it then is unknown. */
class Wire {
  #opening = null;
  constructor(open, timeout) {
    this.open = open;
    this.timeout = timeout;
  }
  async call(commands) {
    let connection;
    const opening = (this.#opening ??= Promise.resolve().then(this.open));
    try {
      connection = await opening;
    } catch (cause) {
      this.#forget(opening);
      throw new Unanswered(cause, false);
    }
    const timer = setTimeout(() => connection.close(new Error("no reply in time")), this.timeout);
    try {
      return await connection.send(commands);
    } catch (cause) {
      this.#forget(opening);
      connection.close();
      throw new Unanswered(cause, true);
    } finally {
      clearTimeout(timer);
    }
  }
  #forget(opening) {
    if (this.#opening === opening) this.#opening = null;
  }
  async close() {
    const opening = this.#opening;
    this.#opening = null;
    await opening?.then((connection) => connection.close(), () => {});
  }
}

/** One server: who waits there, what is held there, and what has to be left there. */
export class Node {
  queued = new Set();
  doubted = new Set(); // queued in a box that may not be the one that is asked for
  holds = new Set();
  debts = new Map();
  #awake = { listen: false, keep: false };
  #toKeep = new Bell();

  constructor(locks, address) {
    this.locks = locks;
    this.address = address;
    this.wire = new Wire(() => locks.topology.open(address), COMMAND_TIMEOUT);
    this.ear = new Wire(() => locks.topology.open(address), COMMAND_TIMEOUT + MAIL_WAIT);
    this.#newBox();
  }

  // In a cluster LOCK.MAIL is routed by the box's name: a hash tag that the node serves.
  #newBox() {
    const { topology } = this.locks;
    let tag = "";
    for (let n = 0; this.address !== undefined && topology.address((tag = `{${n}}`)) !== this.address && n < 1 << 18; n++);
    Object.assign(this, { box: randomUUID() + tag, since: undefined, number: 0 });
  }

  async #work(kind, work) {
    if (this.#awake[kind]) return;
    this.#awake[kind] = true;
    try {
      await work();
    } finally {
      this.#awake[kind] = false;
    }
  }

  /** Collects the letters of all that wait at this node. */
  listen() {
    return this.#work("listen", async () => {
      while (this.queued.size > 0 && !this.locks.closed) {
        const sent = now();
        const after = this.since === undefined ? [] : ["AFTER", this.since, this.number];
        const reply = await this.ear.call([["LOCK.MAIL", this.box, ...after, "WAIT", MAIL_WAIT]]).then(([first]) => first, (error) => error);
        if (reply instanceof Error) await this.#deaf(reply);
        else this.#deliver(sent, ...reply);
      }
    });
  }

  async #deaf(error) {
    await pause(50);
    const [first] = this.queued;
    if (first) await this.locks.refresh(first.key);
    const moved = codeOf(error) === "MOVED";
    for (const ticket of this.queued) if (moved || this.locks.nodeOf(ticket.key) !== this) ticket.settle(new Again());
    if (moved) this.#newBox();
  }

  #deliver(sent, since, waited, letters) {
    if (since !== this.since) Object.assign(this, { since, number: 0, doubted: new Set(this.queued) });
    for (const { number, key, owner, result, token, age, error } of letters.map(fieldsOf)) {
      this.number = Math.max(this.number, number);
      const ticket = this.locks.asked.get(owner);
      if (!ticket) {
        if (result === "granted") this.leave(key, owner); // nobody wants it any more
      } else if (result === "granted") ticket.settle(token, sent + waited - age);
      else ticket.settle(result === "refused" ? new Error(error) : null);
    }
    // What was asked for with another box than this one is gone.
    for (const ticket of this.doubted) {
      if (ticket.since !== since && ticket.knownAt >= sent) continue; // the next answer will tell
      this.doubted.delete(ticket);
      if (ticket.since !== since) ticket.settle(new Again());
    }
  }

  /** Renews what is held, and leaves what is not known: both in one pipeline. */
  keep() {
    this.#toKeep.ring();
    return this.#work("keep", async () => {
      for (let wait = 20; this.holds.size > 0 || this.debts.size > 0; ) {
        this.#toKeep.clear();
        const sent = now();
        const holds = [...this.holds];
        const due = holds.filter((hold) => hold.renewAt <= sent + hold.lease / 10 && sent < hold.until && sent < hold.last);
        const debts = [...this.debts.keys()].slice(0, 1_000);
        if (due.length + debts.length > 0) {
          const commands = [...due.map((hold) => hold.renewal(Math.min(hold.lease, hold.last - sent))), ...debts.map((debt) => this.debts.get(debt))];
          const replies = await this.wire.call(commands).catch(() => []);
          let failed = replies.length === 0;
          due.forEach((hold, index) => (failed = hold.renewed(replies[index], sent) || failed));
          debts.forEach((debt, index) => (failed = this.paid(debt, replies[due.length + index]) || failed));
          if (failed) {
            await this.#rehome();
            await pause(Math.min(wait, ...holds.map((hold) => hold.lease / 10)));
          }
          wait = failed ? Math.min(wait * 2, 500) : 20;
        } else {
          const next = holds.map((hold) => (sent < hold.last ? Math.min(hold.renewAt, hold.until) : hold.until));
          await this.#toKeep.wait(Math.max(1, Math.min(...next) - sent));
        }
      }
    });
  }

  paid(debt, reply) {
    if (reply === undefined || (reply instanceof Error && codeOf(reply) !== "NOPERM")) return true;
    this.debts.delete(debt);
    return false;
  }

  // Gives what another node serves by now to that one.
  async #rehome() {
    const keys = [...[...this.holds].map((hold) => hold.key), ...[...this.debts.values()].map((command) => command[1])];
    if (keys.length > 0) await this.locks.refresh(keys[0]);
    for (const hold of this.holds) {
      const node = this.locks.nodeOf(hold.key);
      if (node !== this && this.holds.delete(hold)) node.hold(hold);
    }
    for (const [debt, [, key, owner]] of this.debts) {
      const node = this.locks.nodeOf(key);
      if (node !== this && this.debts.delete(debt)) node.leave(key, owner);
    }
  }

  hold(hold) {
    this.holds.add(hold);
    hold.node = this;
    this.keep();
  }

  drop(hold) {
    if (this.holds.delete(hold) && this.holds.size === 0) this.#toKeep.ring();
  }

  leave(key, owner) {
    if (this.locks.ended) return;
    this.debts.set(owner, ["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR]);
    this.keep();
  }
}
