//! The clocks as the core wants them.

use mortise_core::codec::{BootId, MachineId, Stamp};
use mortise_core::{Instant, Micros};

use crate::ffi;

/// Now, on the boot-time clock.
pub(crate) fn now() -> Instant {
    Instant::from_millis(ffi::boot_millis())
}

/// Now, on the boot-time clock, in microseconds.
pub(crate) fn now_micros() -> u64 {
    ffi::boot_micros()
}

/// Now, on the wall clock.
pub(crate) fn wall() -> Micros {
    Micros(ffi::wall_micros())
}

/// The wall clock when the command that runs now was called. Tokens need no better one.
pub(crate) fn command_wall() -> Micros {
    Micros(ffi::command_wall_micros())
}

/// Here and now, for bytes that leave or reach the process.
pub(crate) fn stamp() -> Stamp {
    stamp_at(now())
}

/// Here, and the moment `now`.
pub(crate) fn stamp_at(now: Instant) -> Stamp {
    Stamp {
        boot_id: BootId(ffi::boot_id()),
        machine: ffi::machine_id().map(MachineId),
        boot: now,
        wall_ms: ffi::wall_micros() / 1_000,
    }
}
