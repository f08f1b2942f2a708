// Connections that many calls share, and what came of each call.
"use strict";
const { inTime } = require("./promises.cjs");

const CONFIRM = 1_000; // ms that replicas may take to confirm
const TICK = 200; // ms by which a call's age is counted: the clock costs more than all else that is done for it here
const MOST = 1_000; // calls in flight on a connection

/** A request without a reply. `sent` is false where it surely never left. */
class Unanswered extends Error {
  constructor(cause, sent) {
    super("no reply", { cause });
    this.sent = sent;
  }
}
/** Why a renewal that the server has made does not count. */
class TooFew extends Error {
  constructor(needed, had) {
    super(`${had} replicas have the lock, and ${needed} have to`);
    Object.assign(this, { needed, had });
  }
}
/** The first word of an error that the server has answered with. */
const codeOf = (reply) => (reply instanceof Error ? reply.message.split(" ", 1)[0] : undefined);
// Others are the client library's, about the connection. A bundler may have renamed node-redis's classes: most of the server's errors begin
// with a word in capitals.
const REPLIES = new Set(["ErrorReply", "SimpleError", "BlobError"]);
const isReply = (error) => error?.name === "ReplyError" || REPLIES.has(error?.constructor?.name) || /^[A-Z][A-Z0-9_]+( |$)/.test(error?.message);
/** The replies of a server that is no primary any more. */
const DEMOTED = new Set(["READONLY", "UNBLOCKED"]);

/**
 * One connection that all share, made anew after any trouble. What was on it then is unknown. Calls of one turn of the event
 * loop go to the server together, but never so many that their replies could come late.
 */
class Wire {
  #opening = null;
  #connection = null; // once it is open
  #waiting = []; // calls not sent yet
  #inFlight = new Set(); // calls, the oldest first
  #timer; // one for all calls: most are over long before
  #ticks = 0; // of the timer
  #isDoubtful = false; // another server may be the right one by now

  /** `open` makes a connection, and `timeout` is for how many ms it may answer nothing. */
  constructor(open, timeout) {
    this.open = open;
    this.limit = timeout / TICK;
  }

  /** The reply to a command, or the error in its place: the server's or Unanswered. The server gets the commands in the order of the calls. */
  call(command) {
    return new Promise((resolve) => {
      this.#waiting.push({ command, resolve, sentAt: 0 });
      this.#flush();
    });
  }

  /** Connects anew once no call is in flight, and sends nothing before. What waits now fails: part of its packet may have been sent. */
  doubt() {
    if (this.#connection === null) return;
    this.#isDoubtful = true;
    this.#failWaiting(new Error("another server may be the primary by now"));
  }

  #open() {
    const opening = (this.#opening = Promise.resolve().then(this.open));
    opening.then(
      (connection) => {
        if (this.#opening !== opening) return connection.close(); // closed meanwhile
        this.#connection = connection;
        connection.gone.then((cause) => this.#connection === connection && this.#fail(cause));
        this.#flush();
      },
      (cause) => this.#opening === opening && this.#fail(cause),
    );
  }

  #flush() {
    if (this.#isDoubtful && this.#inFlight.size === 0) this.#hangUp();
    if (this.#opening === null && this.#waiting.length > 0) this.#open();
    while (this.#connection !== null && !this.#isDoubtful && this.#waiting.length > 0 && this.#inFlight.size < MOST) this.#send(this.#waiting.shift());
  }

  #send(call) {
    const connection = this.#connection;
    call.sentAt = this.#ticks;
    this.#inFlight.add(call);
    if (this.#timer === undefined) this.#watch();
    connection.send(call.command).then(
      (reply) => this.#settle(call, reply),
      (error) => {
        if (!isReply(error)) return this.#connection === connection && this.#fail(error);
        if (this.#connection === connection && DEMOTED.has(codeOf(error))) this.doubt();
        this.#settle(call, error);
      },
    );
  }

  #settle(call, reply) {
    if (!this.#inFlight.delete(call)) return; // its connection was given up before
    call.resolve(reply);
    this.#flush();
  }

  // All that is on a connection fails with its first error.
  #fail(cause) {
    const sent = [...this.#inFlight];
    this.#inFlight.clear();
    this.#hangUp();
    for (const { resolve } of sent) resolve(new Unanswered(cause, true));
    this.#failWaiting(cause);
  }
  #failWaiting(cause) {
    for (const { resolve } of this.#waiting.splice(0)) resolve(new Unanswered(cause, false));
  }
  #hangUp() {
    this.#connection?.close();
    this.#opening = this.#connection = null;
    this.#isDoubtful = false;
  }

  // Gives up a connection whose oldest call is too old. A process that was busy or stopped misses ticks, and after the last one it
  // reads what has arrived before it judges.
  #watch() {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#ticks++;
      const [oldest] = this.#inFlight;
      if (oldest === undefined) return;
      this.#watch();
      if (this.#ticks - oldest.sentAt > this.limit) setImmediate(() => this.#inFlight.has(oldest) && this.#fail(new Error("no reply in time")));
    }, TICK);
    this.#timer.unref(); // what is in flight has a socket
  }

  /** Gives the connection up. The next call makes another one, if `open` still does. */
  close() {
    this.#fail(new Error("the connection was given up"));
  }
}

/**
 * Renewals that as many replicas confirm. They go with WAIT over a connection of their own, because WAIT is about what that connection has
 * written, and blocks it. While one WAIT is under way, the next renewals gather.
 */
class Confirmer {
  #gathered = [];
  #isBusy = false;

  constructor(open, replicas, timeout) {
    Object.assign(this, { replicas, timeout, wait: ["WAIT", replicas, CONFIRM] });
    this.wire = new Wire(() => this.#open(open), timeout);
  }

  // Before a connection has written anything, WAIT counts the replicas that are attached.
  async #open(open) {
    const connection = await open();
    const had = await inTime(connection.send(this.wait), this.timeout).catch((error) => error);
    if (had >= this.replicas) return connection;
    connection.close();
    throw typeof had === "number" ? new TooFew(this.replicas, had) : had;
  }

  /** The replies to renewals, or errors in their place: Unanswered for those that too few replicas have. */
  confirm(renewals) {
    return new Promise((resolve) => {
      this.#gathered.push({ renewals, resolve });
      if (!this.#isBusy) this.#send();
    });
  }

  async #send() {
    this.#isBusy = true;
    while (this.#gathered.length > 0) {
      const together = this.#gathered.splice(0);
      const commands = [...together.flatMap(({ renewals }) => renewals), this.wait];
      const replies = await Promise.all(commands.map((command) => this.wire.call(command)));
      const had = replies.pop();
      const problem = typeof had === "number" ? new Unanswered(new TooFew(this.replicas, had), true) : had;
      const counted = (reply) => (typeof reply !== "number" || had >= this.replicas ? reply : problem);
      for (const { renewals, resolve } of together) resolve(replies.splice(0, renewals.length).map(counted));
    }
    this.#isBusy = false;
  }
}

module.exports = { MOST, Confirmer, TooFew, Unanswered, Wire, codeOf };
