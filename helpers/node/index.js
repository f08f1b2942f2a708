// Locks that the server knows: what a client asks, believes and leaves.
//
// One rule stands above the others: a hold whose state is unknown is never kept. Every attempt has a name of its own, and one
// of which it is not known what became of it is left (LOCK.LEAVE … FOR) until that is answered; whatever still arrives of it
// then changes nothing.
import { randomUUID } from "node:crypto";
import { topologyOf } from "./connections.js";
import { Again, LONGEST_TIMER, Node, Ticket, Unanswered, codeOf, now, pause } from "./node.js";

const LETTER_DELAY = 1_000; // ms past its limit in which a waiter's answer may still come
const REFRESH_TIMEOUT = 2_000; // ms for which a cluster client may take to say who serves what
const PATIENCE = 10_000; // ms for which an acquisition without a limit bears a server that cannot be reached
const ELSEWHERE = new Set(["READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "UNBLOCKED", "LEFT"]);

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
  closed = false; // nothing is taken any more
  ended = false; // nothing is sent any more
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
    await Promise.race([Promise.resolve(this.topology.refresh(key)).catch(() => {}), pause(REFRESH_TIMEOUT)]);
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
    const isSaid = () => this.asked.size === 0 && nodes.every((node) => node.debts.size === 0);
    for (const end = now() + ms; !isSaid() && now() < end; ) await pause(5);
    const said = isSaid();
    this.ended = true; // what is left from now on goes with its lease
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
