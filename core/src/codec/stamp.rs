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
    pub(super) fn left(self, remaining: u64, written: &Written, here: &Stamp) -> u64 {
        let stamp = &written.stamp;
        let passed = match self {
            Self::Live => 0,
            _ if stamp.boot_id == here.boot_id => here.boot.millis_since(stamp.boot),
            Self::File if written.shows_clock_of(here) => {
                here.wall_ms.saturating_sub(stamp.wall_ms)
            }
            Self::File | Self::ReplicaFile => 0,
        };
        remaining.saturating_sub(passed)
    }
}

/// A stamp as it was read.
pub(super) struct Written {
    pub(super) stamp: Stamp,
    /// Its version has a field for the machine.
    pub(super) names_machine: bool,
}

impl Written {
    /// Its wall clock is the one `here`. Without a machine it counts as from here.
    fn shows_clock_of(&self, here: &Stamp) -> bool {
        !self.names_machine || (here.machine.is_some() && self.stamp.machine == here.machine)
    }
}
