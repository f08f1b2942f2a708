// The clock by which locks are believed, when the machine sleeps and when the wall clock is set.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bootClock, now } from "../clock.cjs";

function machine(platform = "linux") {
  const time = { monotonic: 1_000, wall: 50_000, boot: 7_000, looks: 0 };
  time.now = bootClock(() => time.monotonic, () => time.wall, () => (time.looks++, time.boot), platform);
  time.run = (ms) => Object.assign(time, { monotonic: time.monotonic + ms, wall: time.wall + ms, boot: time.boot + ms });
  return time;
}

test("time goes on while the machine sleeps", () => {
  const time = machine();
  time.run(100);
  assert.equal(time.now(), 1_100);
  Object.assign(time, { wall: time.wall + 60_000, boot: time.boot + 60_000 });
  assert.equal(time.now(), 61_100);
  time.run(50);
  Object.assign(time, { wall: time.wall + 5_000, boot: time.boot + 5_000 });
  assert.equal(time.now(), 66_150);
});

test("setting the wall clock does not move it, and only then is the system asked", () => {
  const time = machine();
  for (const step of [3_600_000, -7_200_000]) {
    time.wall += step;
    time.run(10);
    time.now();
  }
  assert.equal(time.now(), 1_020);
  assert.equal(time.looks, 3); // at the beginning, and after each step
});

for (const platform of ["darwin", "win32"]) {
  test(`a wall clock that is set does not move it on ${platform}, where the monotonic clock goes on in a sleep`, () => {
    const time = machine(platform);
    time.wall += 3_600_000;
    time.run(10);
    Object.assign(time, { boot: time.wall }); // as without /proc
    assert.equal(time.now(), 1_010);
    time.run(60_000); // a sleep
    assert.equal(time.now(), 61_010);
  });
}

test("setting the wall clock forward ends belief too early, not too late, when the system's uptime is unknown", () => {
  const time = { monotonic: 1_000, wall: 50_000 };
  time.now = bootClock(() => time.monotonic, () => time.wall, () => time.wall, "freebsd");
  time.wall += 60_000; // a sleep, or set forward: both look the same
  assert.equal(time.now(), 61_000);
  time.wall -= 60_000; // set back
  assert.equal(time.now(), 61_000);
});

test("it agrees with the system's monotonic clock while nothing happens", () => {
  const [before, at, after] = [performance.now(), now(), performance.now()];
  assert.ok(before - 1 < at && at < after + 1);
});
