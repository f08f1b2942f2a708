//! What many holds leave behind when they count no more.
//!
//! Dropping a hundred thousand of them, and telling of each, takes too long to be done at once. So
//! a lock lets go of them whole, and whoever it belongs to drops a few at a time.

use crate::owner::Owner;
use crate::readers::Readers;
use crate::stake::Stake;

/// Holds that count no more, for any rule.
#[derive(Debug, Default)]
pub struct Remains {
    crowd: Readers,
    others: Vec<(Owner, Stake)>,
}

impl Remains {
    pub(crate) fn of(crowd: Readers) -> Self {
        let others = Vec::new();
        Self { crowd, others }
    }

    pub(crate) fn add(&mut self, owner: Owner, stake: Stake) {
        self.others.push((owner, stake));
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.crowd.len() + self.others.len()
    }

    /// None is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops one of them, in no order that means anything.
    pub fn pop(&mut self) -> Option<(Owner, Stake)> {
        self.others.pop().or_else(|| self.crowd.pop_apart())
    }
}
