// Arguments and results of callers: times, names and errors.
"use strict";
const { inspect } = require("node:util");
const { TooFew } = require("./connections.cjs");

const LEAST_LEASE = 3; // ms: of 2 nothing is left, so that no attempt would succeed
const MOST_LEASE = Number.MAX_SAFE_INTEGER;

/** The value, if it is a time in milliseconds within its bounds. */
function time(name, value, least = LEAST_LEASE, most = MOST_LEASE) {
  const isNumber = typeof value === "number" && !Number.isNaN(value);
  if (!isNumber || (value === Infinity && most < Infinity)) throw new TypeError(`${name} is a number of milliseconds, not ${inspect(value)}`);
  if (value < least || value > most) throw new RangeError(`${name} has to be between ${least} and ${most} ms, and is ${value}`);
  return value;
}
/** The value, if it is text: what else there is may be joined to the same text as another one. */
function text(name, value) {
  if (typeof value !== "string") throw new TypeError(`${name} is a string, not ${inspect(value)}`);
  return value;
}

/** The value, if it is a count within its bounds. */
function count(name, value, least, most) {
  if (!Number.isInteger(value)) throw new TypeError(`${name} is a whole number, not ${inspect(value)}`);
  if (value < least || value > most) throw new RangeError(`${name} has to be between ${least} and ${most}, and is ${value}`);
  return value;
}

class LockError extends Error {
  constructor(message, key, cause) {
    super(message, cause && { cause });
    this.name = new.target.name;
    this.key = key;
  }
}
/** Others held it for all of the wait. */
class BusyError extends LockError {}
/** The lock was over before it was released. */
class LostError extends LockError {}
/** The server found that this wait would never end; the text names the keys. */
class DeadlockError extends LockError {}
/** The server refused; the text is its own. */
class RefusedError extends LockError {}
/** The server could not be asked. */
class UnreachableError extends LockError {}
/** Too few replicas had the lock in time: `had` of `needed`. */
class UnconfirmedError extends LockError {
  constructor(key, cause) {
    super(cause.message, key, cause);
    this.needed = cause.needed;
    this.had = cause.had;
  }
}

/** The error of a request without a reply. */
function unasked(cause, key, what = "the server cannot be asked") {
  return cause instanceof TooFew ? new UnconfirmedError(key, cause) : new UnreachableError(`${what}: ${cause.message}`, key, cause);
}

module.exports = {
  LEAST_LEASE, time, text, count, LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError,
  UnconfirmedError, unasked,
};
