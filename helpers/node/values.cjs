// Arguments of callers, and the errors that they get.
"use strict";
const { inspect } = require("node:util");
const { TooFew, Unanswered, codeOf } = require("./wire.cjs");

const LEAST_LEASE = 3; // ms: of 2 nothing is left, so that no attempt would succeed
const NO_MODULE = "the server has not loaded the Mortise module: configure `loadmodule …/libmortise.so`, or send MODULE LOAD …/libmortise.so";

/** The value, if it is a time in milliseconds of at least `least`, and `most` at most. */
function time(name, value, least = LEAST_LEASE, most = Number.MAX_SAFE_INTEGER) {
  const isNumber = typeof value === "number" && !Number.isNaN(value);
  if (!isNumber || (value === Infinity && most < Infinity)) throw new TypeError(`${name} is a number of milliseconds, not ${inspect(value)}`);
  if (value < least || value > most) throw new RangeError(`${name} has to be between ${least} and ${most} ms, and is ${value}`);
  return value;
}

/** The value, if it is text. As part of a name, other values may look the same: 1 and "1". */
function text(name, value) {
  if (typeof value !== "string") throw new TypeError(`${name} is a string, not ${inspect(value)}`);
  return value;
}

/** What is sent for the value, if that is plain. */
function word(value) {
  if (Buffer.isBuffer(value)) return value;
  if (!["string", "number", "bigint"].includes(typeof value)) throw new TypeError(`a command has strings, numbers and Buffers, not ${inspect(value)}`);
  return String(value);
}

/** The value, if it is a whole number of at least `least`. The server checks the upper bound. */
function count(name, value, least) {
  if (!Number.isInteger(value)) throw new TypeError(`${name} is a whole number, not ${inspect(value)}`);
  if (value < least) throw new RangeError(`${name} has to be ${least} at least, and is ${value}`);
  return value;
}

/** The options, if they are an object all of whose names are known. */
function known(options, names) {
  if (typeof options !== "object" || options === null) throw new TypeError(`options are an object, not ${inspect(options)}`);
  const other = Object.keys(options).find((name) => !names.has(name));
  if (other !== undefined) throw new TypeError(`there is no option '${other}'`);
  return options;
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
/** The server could not be asked, or refused for as long as this one was ready to wait. */
class UnreachableError extends LockError {}
/** Too few replicas had the lock in time: `had` of `needed`. */
class UnconfirmedError extends LockError {}

/** The error that a caller gets for an error in a reply's place. */
function failure(reply, key, unanswered = "the server cannot be asked") {
  const { cause } = reply;
  if (cause instanceof TooFew) return Object.assign(new UnconfirmedError(cause.message, key, cause), { needed: cause.needed, had: cause.had });
  if (cause instanceof LockError) return cause;
  if (reply instanceof Unanswered) return new UnreachableError(`${unanswered}: ${cause.message}`, key, cause);
  if (/^ERR unknown command .?LOCK\./i.test(reply.message)) return new RefusedError(NO_MODULE, key, reply);
  return new (codeOf(reply) === "DEADLOCK" ? DeadlockError : RefusedError)(reply.message, key, reply);
}

module.exports = {
  LEAST_LEASE, time, text, word, count, known, failure, LockError, BusyError, LostError, DeadlockError, RefusedError, UnreachableError,
  UnconfirmedError,
};
