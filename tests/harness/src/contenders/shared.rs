//! The shared state of all contending clients, and how each behaves.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::record::Record;

/// Where a client goes when the primary moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It connects to the new primary at once, and renews its hold there.
    Mover,
    /// It stays with the old primary until that refuses it, as a client on the same side of a partition does.
    Loyal,
    /// It connects to the new primary, and after the end of its lease renews there, and believes the
    /// reply.
    Returner,
}

/// How long a client stays inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Mostly for a short time, sometimes for longer than a lease.
    Mixed,
    /// For longer than a lease, renewing: at any moment one reader is inside.
    Renewing,
    /// For as long as the first lease lasts, without a command to the server.
    Silent,
}

/// What the clients share with the test.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) key: String,
    pub(super) lease: Duration,
    /// The port of the primary at the start.
    pub(super) old: u16,
    /// The port of the present primary.
    pub(super) current: AtomicU16,
    pub(super) stay: Stay,
    pub(super) stop: AtomicBool,
    pub(super) record: Mutex<Record>,
}

impl Shared {
    pub(super) fn record(&self) -> MutexGuard<'_, Record> {
        self.record
            .lock()
            .expect("no thread panics with the record in hand")
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}
