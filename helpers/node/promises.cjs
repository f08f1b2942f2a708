// Promises that end in time, or when a signal is aborted.
"use strict";
const LATE = 200; // ms after a limit in which what has come is read first
const LONGEST = 2 ** 31 - 1; // ms of a timer

/** The promise's outcome, or an error after `ms`. A process that was busy or stopped first reads what has arrived. */
async function inTime(promise, ms) {
  if (ms > LONGEST) return promise;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => (timer = setTimeout(() => reject(new Error("no answer in time")), LATE)), ms - LATE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The promises that a signal ends. Node warns of many listeners, and searches all of them for each: a signal has one. */
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

module.exports = { LATE, inTime, abortable };
