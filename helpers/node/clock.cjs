// The clock by which locks are believed.
"use strict";
const { readFileSync } = require("node:fs");
const { performance } = require("node:perf_hooks");

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

module.exports = { bootClock, now: bootClock(() => performance.now(), () => Date.now(), uptime, process.platform) };
