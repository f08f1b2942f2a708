//! The clock of all histories: time since boot, suspension included.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since boot.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000_000_000 + nanos
}
