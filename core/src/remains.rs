//! Many holds that ended together.
//!
//! Dropping a hundred thousand of them, and notifying subscribers of each, takes too long for one turn. So a lock gives them away whole,
//! and the module drops a few at a time.

use crate::owner::Owner;
use crate::readers::Readers;
use crate::stake::Stake;

/// Holds that have ended. No rule counts them any more.
#[derive(Debug, Default)]
pub struct Remains {
    readers: Readers,
    others: Vec<(Owner, Stake)>,
}

impl Remains {
    pub(crate) fn of(readers: Readers) -> Self {
        let others = Vec::new();
        Self { readers, others }
    }

    pub(crate) fn add(&mut self, owner: Owner, stake: Stake) {
        self.others.push((owner, stake));
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.readers.len() + self.others.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops any one of them.
    pub fn pop(&mut self) -> Option<(Owner, Stake)> {
        self.others.pop().or_else(|| self.readers.pop_apart())
    }
}
