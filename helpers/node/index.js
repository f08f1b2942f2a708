// Locks that the server knows: what a client asks, believes and leaves.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own, and one
// of which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered; whatever still arrives of it
// then changes nothing.
import { randomUUID } from "node:crypto";
import { topologyOf } from "./connections.js";

const COMMAND_TIMEOUT = 2_000; // ms without a reply after which all that is in flight on a connection is unknown
const MAIL_WAIT = 2_000; // ms for which one LOCK.MAIL waits
const LETTER_DELAY = 1_000; // ms past its limit in which a waiter's answer may still come
const LEAVE_FOR = 60_000; // ms in which what arrives late of a name that was left changes nothing
const PATIENCE = 10_000; // ms for which an acquisition without a limit bears a server that cannot be reached
const LONGEST_TIMER = 2 ** 31 - 1;

export class LockError extends Error {
  constructor(message, key, cause) {
    super(message, cause && { cause });
    this.name = new.target.name;
    this.key = key;
  }
}
/** Somebody else held it for as long as this one was ready to wait. */
export class BusyError extends LockError {}
/** The lock was over before it was released. */
export class LostError extends LockError {}
/** The server found that this wait would never end; the text names the keys. */
export class DeadlockError extends LockError {}
/** The server refused; the text is its own. */
export class RefusedError extends LockError {}
/** The server could not be asked. */
export class UnreachableError extends LockError {}

/** A request without a reply. `sent` is false where it surely never left. */
class Unanswered extends Error {
  constructor(cause, sent) {
    super("no reply", { cause });
    this.sent = sent;
  }
}
/** This attempt came to nothing, the next one may not. */
class Again extends Error {}

const now = () => performance.now();
const codeOf = (error) => String(error?.message).split(" ", 1)[0];
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);

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
const pause = (ms) => new Bell().wait(ms);

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
class Node {
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
    this.debts.set(owner, ["LOCK.LEAVE", key, owner, "FOR", LEAVE_FOR]);
    this.keep();
  }
}

/** A request that may be answered by letter. */
class Ticket {
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

/** A lock that was granted. */
export class Lock {
  #locks;
  #controller = new AbortController();
  #timer;
  #over = false;
  until = -Infinity;
  deadline = -Infinity;

  constructor(locks, { name, key, lease, maxHold }, owner, token, begin) {
    this.#locks = locks;
    Object.assign(this, { name, key, lease, owner, token, last: begin + maxHold, renewAt: begin + lease / 3 });
    this.believe(begin, lease);
  }
  /** Aborts, with a LostError as its reason, in the moment in which the lock is lost. */
  get signal() {
    return this.#controller.signal;
  }
  get held() {
    return !this.#over && now() < this.until;
  }
  believe(begin, lease) {
    this.deadline = Math.max(this.deadline, begin + lease);
    this.until = Math.max(this.until, Math.min(begin + lease - lease / 100 - 2, this.last));
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#check(), Math.min(Math.max(0, this.until - now()), LONGEST_TIMER));
  }
  #check() {
    if (now() >= this.until) this.lose();
    else this.#timer = setTimeout(() => this.#check(), Math.min(this.until - now() + 1, LONGEST_TIMER));
  }
  renewal(lease) {
    return ["LOCK.RENEW", this.key, this.owner, Math.max(1, Math.floor(lease)), "TOKEN", this.token];
  }
  /** Takes the reply to a renewal; whether it has to be asked again. */
  renewed(reply, sent) {
    if (this.#over) return false;
    if (reply === null || codeOf(reply) === "WRONGTYPE") this.lose();
    else if (reply !== this.token) return true;
    else if (now() < this.until) {
      this.believe(sent, Math.min(this.lease, this.last - sent)); // a belief that has run out is never taken up again
      this.renewAt = sent + this.lease / 3;
    }
    return false;
  }
  /** Ends it here. Whether it was held until now. */
  end() {
    const { held } = this;
    clearTimeout(this.#timer);
    this.node?.drop(this);
    this.#over = true;
    return held;
  }
  lose() {
    if (this.#over) return;
    this.end();
    this.#controller.abort(new LostError(`the lock '${this.name}' was lost`, this.name));
    this.#locks.nodeOf(this.key).leave(this.key, this.owner);
  }
  /** Gives it back. Rejects with a LostError if it was lost before. */
  async release() {
    if (this.#over && !this.signal.aborted) return; // once is enough
    if (!this.#over && !(await this.#locks.release(this))) this.#controller.abort(new LostError(`the lock '${this.name}' was lost`, this.name));
    this.signal.throwIfAborted();
  }
  /** Holds it for `ms` from now on at least. */
  async extend(ms) {
    const sent = now();
    const reply = this.held ? await this.#locks.ask(this.renewal(ms)) : null;
    if (reply instanceof Error && codeOf(reply) !== "WRONGTYPE") throw new RefusedError(reply.message, this.name, reply);
    if (reply !== this.token || !this.held) this.lose();
    else this.believe(sent, ms);
    this.signal.throwIfAborted();
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

/** The locks of one server or cluster. */
export class Locks {
  asked = new Map();
  closed = false;
  #nodes = new Map();
  #id = randomUUID();
  #count = 0;

  constructor(client, { lease = 30_000, poll = null } = {}) {
    this.topology = topologyOf(client);
    this.defaults = { lease, poll };
  }

  nodeOf(key) {
    return this.#nodeAt(this.topology.address(key));
  }
  #nodeAt(address) {
    if (!this.#nodes.has(address)) this.#nodes.set(address, new Node(this, address));
    return this.#nodes.get(address);
  }
  async refresh(key) {
    await Promise.race([Promise.resolve(this.topology.refresh(key)).catch(() => {}), pause(COMMAND_TIMEOUT)]);
  }

  /** One command, followed to where its key is served. */
  async ask(command) {
    let [node, asking, reply] = [this.nodeOf(command[1]), []];
    for (let hop = 0; hop < 5; hop++) {
      reply = (await node.wire.call([...asking, command])).at(-1);
      if (codeOf(reply) === "MOVED") {
        await this.refresh(command[1]);
        [node, asking] = [this.nodeOf(command[1]), []];
      } else if (codeOf(reply) === "ASK") [node, asking] = [this.#nodeAt(reply.message.split(" ")[2]), [["ASKING"]]];
      else break;
    }
    return reply;
  }

  /** A lock, or null if there is none within `wait`. */
  async tryAcquire(name, options = {}) {
    const { wait = 0, mode = "write", task, signal, renew = true, maxHold = Infinity, lease, poll } = { ...this.defaults, ...options };
    if (!["read", "write"].includes(mode)) throw new TypeError(`mode is 'read' or 'write', not '${mode}'`);
    const key = this.topology.prefix + name;
    const request = { name, key, lease, wait, task, signal, renew, maxHold, command: mode === "read" ? "LOCK.RLOCK" : "LOCK.ACQUIRE" };
    const [start, end] = [now(), now() + wait];
    signal?.throwIfAborted();
    await this.topology.ready?.();
    for (let [tries, failing] = [1, null]; ; tries++) {
      let rest = 20;
      try {
        return await this.#attempt(request, wait === 0 ? 0 : end - now());
      } catch (error) {
        const { cause } = error;
        if (error instanceof Again) {
          failing = cause ? (failing ?? now()) : null;
          if (this.closed) throw new UnreachableError("the locks are closed", name);
          const silent = cause instanceof Unanswered && cause.cause?.message === "no reply in time";
          const last = wait === 0 ? tries > 1 || silent : wait === Infinity ? failing && now() > failing + PATIENCE : now() + rest >= end;
          if (last && !cause) return null;
          if (last) throw new UnreachableError(`the server cannot be asked: ${(cause.cause ?? cause).message}`, name, cause.cause ?? cause);
          if (!cause) continue;
          await this.refresh(key);
          rest = Math.min(20 * 2 ** Math.min(tries, 5), Math.max(20, end - now()));
        } else {
          if (!(error instanceof RefusedError) || codeOf(error) !== "WRONGTYPE" || poll === null) throw error;
          if (wait === 0 || now() + poll > end) return null;
          rest = poll; // what another library took under this name with SET NX
        }
      }
      await abortable(pause(rest), signal);
    }
  }

  /** A lock. Rejects with a BusyError if there is none within `wait`, which has no end if it is not given. */
  async acquire(name, options = {}) {
    const lock = await this.tryAcquire(name, { wait: Infinity, ...options });
    if (lock === null) throw new BusyError(`the lock '${name}' is held by somebody else`, name);
    return lock;
  }

  /** Runs `work(lock)` under the lock, and gives it back. */
  async using(name, options, work) {
    const lock = await this.acquire(name, options);
    let result;
    try {
      result = await work(lock);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  // One request under one name. Whatever is not known of it in the end is left.
  async #attempt(request, left) {
    const { key, name, command, lease, signal } = request;
    const own = `${this.#id}:${this.#count++}`;
    const owner = request.task === undefined ? own : `${request.task}##${own}`;
    let [node, asking, known, reply, sent] = [this.nodeOf(key), [], true];
    const ticket = new Ticket(key, node);
    this.asked.set(owner, ticket); // before it is sent: a letter may overtake the reply
    try {
      for (let hop = 0; hop < 3; hop++) {
        const waiting = left > 0 ? ["WAIT", left === Infinity ? 0 : Math.max(1, Math.ceil(left)), "MAIL", node.box] : [];
        const debts = [...node.debts].filter(([, debt]) => debt[1] === key); // nobody waits for what he left himself
        [sent, known, ticket.node] = [now(), false, node];
        const acquire = [command, key, owner, lease, "HOLDS", 1, ...waiting];
        const replies = await abortable(node.wire.call([...debts.map(([, debt]) => debt), ...asking, acquire]), signal);
        debts.forEach(([debt], index) => node.paid(debt, replies[index]));
        reply = replies.at(-1);
        if (codeOf(reply) !== "ASK") break;
        [node, asking] = [this.#nodeAt(reply.message.split(" ")[2]), [["ASKING"]]];
      }
      if (Array.isArray(reply)) {
        [ticket.since, ticket.knownAt] = [reply[1], now()];
        node.queued.add(ticket);
        if (ticket.since !== node.since) node.doubted.add(ticket);
        node.listen();
        const ends = now() + left + LETTER_DELAY;
        while (!(await abortable(ticket.bell.wait(ends - now()), signal))) if (now() >= ends) throw new Again();
        [reply, sent] = [ticket.answer, Math.max(sent, ticket.begin)];
        if (reply instanceof Again) throw reply;
      }
      known = reply === null || reply instanceof Error;
      if (reply === null) return null;
      if (reply instanceof Error) {
        if (ELSEWHERE.has(codeOf(reply))) throw new Again("", { cause: reply });
        throw new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, name, reply);
      }
      const lock = new Lock(this, request, owner, reply, sent);
      if (lock.until - now() < lease / 2) {
        sent = now();
        const confirmed = await abortable(this.ask(lock.renewal(lease)), signal);
        if (confirmed !== lock.token || !lock.held) throw lock.end(), new Again();
        lock.believe(sent, lease);
      }
      known = true;
      if (request.renew) node.hold(lock);
      return lock;
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      known ||= !error.sent;
      throw new Again("", { cause: error });
    } finally {
      ticket.settle(null); // nobody waits for it any more, nor does a timer
      node.queued.delete(ticket);
      node.doubted.delete(ticket);
      this.asked.delete(owner);
      if (!known) node.leave(key, owner);
    }
  }

  /** Whether it was held to the end. What is not known of it is left, without anybody waiting for that. */
  async release(lock) {
    const held = lock.end();
    const reply = await this.ask(["LOCK.RELEASE", lock.key, lock.owner, "ALL", "TOKEN", lock.token]).catch((error) => error);
    if (!(reply instanceof Error)) return held && reply !== null;
    if (codeOf(reply) === "NOPERM") throw new RefusedError(reply.message, lock.name, reply);
    if (codeOf(reply) === "WRONGTYPE") return false;
    this.nodeOf(lock.key).leave(lock.key, lock.owner);
    return held;
  }

  /** Leaves all that is waited for and all that is renewed. Whether the server has heard all of it within `ms`. */
  async close(ms = 2_000) {
    this.closed = true;
    const nodes = [...this.#nodes.values()];
    for (const ticket of this.asked.values()) ticket.settle(new Again("", { cause: new Error("closed") }));
    for (const node of nodes) for (const lock of node.holds) lock.lose();
    for (const end = now() + ms; nodes.some((node) => node.debts.size > 0) && now() < end; ) await pause(5);
    const said = nodes.every((node) => node.debts.size === 0);
    for (const node of nodes) node.debts.clear();
    await Promise.all(nodes.flatMap((node) => [node.wire.close(), node.ear.close()]));
    return said;
  }
  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.close();
  }
}

/** The promise's outcome, or the signal's reason as soon as that is aborted. */
function abortable(promise, signal) {
  if (!signal) return promise;
  let onAbort;
  const aborted = new Promise((_, reject) => {
    onAbort = () => reject(signal.reason);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
  promise.catch(() => {});
  return Promise.race([promise, aborted]).finally(() => signal.removeEventListener("abort", onAbort));
}
