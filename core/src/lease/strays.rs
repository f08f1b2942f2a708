//! Held locks whose keys are unknown. RENAME and MOVE take a lock from its key, and the server does not say where it goes. The
//! lock counts here until a command names its new key.
//!
//! A stray keeps its entry until the caller removes it, even when it does not count any more. So its id stays valid.

use super::{LeaseId, LeaseOrder};
use crate::lock::Lock;
use crate::observed::{Observed, ObservedReaders};
use crate::types::Instant;

/// Locks whose keys are not known.
#[derive(Debug)]
pub struct Strays {
    order: LeaseOrder<Stray>,
    locks: u64,
    holders: u64,
    /// How often all strays were forgotten.
    forgotten: u32,
}

/// Where a stray is kept. Valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayId(LeaseId);

#[derive(Debug)]
struct Stray {
    /// With how many holders it is counted, 0 if it is not.
    holders: u32,
    /// `None` where one held.
    readers: Option<ObservedReaders>,
    /// How often all strays had been forgotten when this one was added.
    forgotten: u32,
}

impl Default for Strays {
    fn default() -> Self {
        Self::new()
    }
}

impl Strays {
    /// No strays.
    pub const fn new() -> Self {
        Self {
            order: LeaseOrder::sparse(),
            locks: 0,
            holders: 0,
            forgotten: 0,
        }
    }

    /// How many locks count.
    pub fn locks(&self) -> u64 {
        self.locks
    }

    /// How many hold them.
    pub fn holders(&self) -> u64 {
        self.holders
    }

    /// The lock has lost its key. `None` if nobody holds it at `now`.
    pub fn insert(&mut self, lock: &Lock, now: Instant) -> Option<StrayId> {
        let deadline = lock.next_live_deadline(now)?;
        let holders = lock.live_len(now) as u32;
        let stray = Stray {
            holders,
            readers: match lock.observe() {
                Observed::Many(readers) => Some(readers),
                Observed::One { .. } | Observed::Free => None,
            },
            forgotten: self.forgotten,
        };
        self.locks += 1;
        self.holders += u64::from(holders);
        Some(StrayId(self.order.insert(now, deadline, stray)))
    }

    /// The lock is gone, or its key is known.
    pub fn remove(&mut self, StrayId(id): StrayId) {
        if let Some(stray) = self.order.remove(id)
            && stray.forgotten == self.forgotten
        {
            self.count(stray.holders, 0);
        }
    }

    /// All databases are emptied: none counts any more.
    pub fn forget_all(&mut self) {
        (self.locks, self.holders) = (0, 0);
        self.forgotten = self.forgotten.wrapping_add(1);
    }

    /// Updates a stray that has lost a hold. False if there is none.
    pub fn end_next(&mut self, now: Instant) -> bool {
        let Some((id, stray)) = self.order.due_mut(now) else {
            return false;
        };
        let readers = stray.readers.as_ref();
        let left = readers.and_then(|readers| {
            let deadline = readers.next_live_deadline(now)?;
            Some((readers.live_len(now) as u32, deadline))
        });
        let (holders, deadline) = left.unwrap_or((0, Instant::from_millis(u64::MAX)));
        let before = std::mem::replace(&mut stray.holders, holders);
        if stray.forgotten == self.forgotten {
            self.count(before, holders);
        }
        self.order.reschedule(id, deadline);
        true
    }

    fn count(&mut self, before: u32, holders: u32) {
        self.holders -= u64::from(before - holders);
        self.locks -= u64::from(before > 0 && holders == 0);
    }
}
