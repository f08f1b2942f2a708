//! The locks of one database, in the order in which they lose their first hold.

use mortise_core::{Instant, LeaseId, LeaseOrder};

use crate::keys::name::ShortName;

/// The locks of one database.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) order: LeaseOrder<ShortName>,
    pub(super) holders: u64,
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self {
            order: LeaseOrder::new(),
            holders: 0,
        }
    }

    /// How many locks are held.
    pub(crate) fn locks(&self) -> u64 {
        self.order.len() as u64
    }

    /// How many holds there are, all locks together.
    pub(crate) fn holders(&self) -> u64 {
        self.holders
    }

    /// A lock whose first lease is over: its entry, and its name copied into `name`.
    pub(crate) fn due(&mut self, now: Instant, name: &mut Vec<u8>) -> Option<LeaseId> {
        let (id, due) = self.order.due(now)?;
        name.clear();
        name.extend_from_slice(due);
        Some(id)
    }

    /// Looks at an entry that could not be settled again in `ms`.
    pub(crate) fn put_off(&mut self, id: LeaseId, now: Instant, ms: u64) {
        self.order.reschedule(id, now.after(ms));
    }

    /// Drops an entry that no key belongs to.
    pub(crate) fn drop_stale(&mut self, id: LeaseId) {
        self.order.remove(id);
    }

    /// Drops some entries of a table that is not used any more. False if none is left.
    pub(crate) fn drop_some(&mut self) -> bool {
        self.order.drop_some()
    }
}
