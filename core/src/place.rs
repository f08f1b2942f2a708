//! Where waiters stand in a queue: the order of a queue, and no rules.

use std::collections::BTreeSet;

use crate::queue::WaiterId;
use crate::types::Mode;

/// Upgrades stand ahead of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Upgrade,
    Line,
}

/// Where a waiter stands: lower is further ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) rank: Rank,
    pub(crate) id: WaiterId,
}

impl Place {
    /// Ahead of all.
    pub(crate) const FIRST: Self = Self {
        rank: Rank::Upgrade,
        id: WaiterId(0),
    };

    /// Behind all of `rank`.
    pub(crate) const fn end_of(rank: Rank) -> Self {
        Self {
            rank,
            id: WaiterId(u64::MAX),
        }
    }

    /// Right behind this one.
    pub(crate) fn behind(self) -> Self {
        match self.id.0.checked_add(1) {
            Some(id) => Self {
                id: WaiterId(id),
                ..self
            },
            None => Self {
                rank: Rank::Line,
                ..Self::FIRST
            },
        }
    }
}

/// What one owner waits for in one queue. All of it counts as standing at its first place, because
/// when that is granted the rest is decided at once.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    pub(crate) places: BTreeSet<Place>,
    /// How many of its requests are for write.
    pub(crate) writes: usize,
    /// It waits in other queues, too.
    pub(crate) roams: bool,
}

impl Standing {
    /// Where it stands; `None` if it does not wait.
    pub(crate) fn first(&self) -> Option<Place> {
        self.places.first().copied()
    }

    /// Write if any of its requests is for that.
    pub(crate) fn mode(&self) -> Mode {
        if self.writes > 0 {
            Mode::Write
        } else {
            Mode::Read
        }
    }
}
