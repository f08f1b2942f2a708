//! When and where bytes were written, and how much of that their reader may trust.

use std::num::NonZeroU64;

use crate::types::Instant;

/// Which boot of which machine: the kernel's boot id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BootId(pub [u8; 16]);

/// Which machine, across its boots: a number that no other machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineId(pub NonZeroU64);

/// When and where bytes were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The machine and boot.
    pub boot_id: BootId,
    /// The machine whose wall clock it is; `None` if unknown.
    pub machine: Option<MachineId>,
    /// Its boot-time clock.
    pub boot: Instant,
    /// Its wall clock, milliseconds since 1970.
    pub wall_ms: u64,
}

impl Stamp {
    /// Whether both were made on the same machine; false if either machine is unknown.
    fn shares_machine_with(&self, other: &Self) -> bool {
        self.machine.is_some() && self.machine == other.machine
    }
}

/// How the bytes reached the reader. It decides which clock shows how much of a lease is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Straight from a live server (effect on a replica, full sync, RESTORE, slot import): the
    /// remaining time counts from receipt, so that skewed clocks cannot shorten a lease.
    Live,
    /// From a file, after a pause of unknown length: by the boot-time clock if this is the same
    /// boot, by the wall clock if it is the same machine, else as from a live server; and never
    /// more than remained. A file may have come from a primary on another machine.
    File,
    /// From a file of a server that is, or may be, a replica, which may have another machine's stamps: the same, but the wall clock is not
    /// trusted at all.
    ReplicaFile,
}

impl Arrival {
    /// How much of `remaining` milliseconds is left `here`, of bytes stamped `written`.
    pub(super) fn left(self, remaining: u64, written: &Stamp, here: &Stamp) -> u64 {
        let passed = match self {
            Self::Live => 0,
            _ if written.boot_id == here.boot_id => here.boot.millis_since(written.boot),
            Self::File if written.shares_machine_with(here) => {
                here.wall_ms.saturating_sub(written.wall_ms)
            }
            Self::File | Self::ReplicaFile => 0,
        };
        remaining.saturating_sub(passed)
    }
}
