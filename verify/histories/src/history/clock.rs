//! The clock of all histories: time since boot, suspension included.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds since boot.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Boottime))
}

fn nanos(time: Timespec) -> u64 {
    let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanos
}

/// How far this clock is ahead of the monotonic one, which other languages read, as two bounds. It changes only when the
/// machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offset {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

impl Offset {
    pub(crate) fn measure() -> Offset {
        let monotonic = || nanos(clock_gettime(ClockId::Monotonic));
        let before = monotonic();
        let boot = now();
        let after = monotonic();
        Offset {
            low: boot.saturating_sub(after),
            high: boot.saturating_sub(before),
        }
    }

    /// A moment on this clock, at the earliest.
    pub(crate) fn earliest(self, monotonic: u64) -> u64 {
        monotonic + self.low
    }

    /// A moment on this clock, at the latest.
    pub(crate) fn latest(self, monotonic: u64) -> u64 {
        monotonic + self.high
    }
}
