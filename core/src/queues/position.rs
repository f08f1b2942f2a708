//! A request's number, and where it stands in its queues.

use crate::request::Busy;

/// A waiter, the same for as long as the process runs. A later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Where a request stands: lower is further ahead. Upgrades stand ahead of the requests that were moved to the head, and these ahead of all
/// others. A request for several keys stands at the same position in all its queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position(u64);

/// Where the class of the moved requests begins. Ids are smaller.
const MOVED: u64 = 1 << 62;
const REGULAR: u64 = 2 << 62;

impl Position {
    /// Ahead of all.
    pub(crate) const FIRST: Self = Self(0);
    /// Behind all upgrades.
    pub(crate) const BEHIND_UPGRADES: Self = Self(MOVED);
    /// Behind all requests that were moved to the head.
    pub(crate) const BEHIND_MOVED: Self = Self(REGULAR);
    /// Behind all.
    pub(crate) const END: Self = Self(u64::MAX);

    pub(super) const fn of_upgrade(id: WaiterId) -> Self {
        Self(id.0)
    }

    /// Where the request stands that has to wait for this reason.
    pub(super) const fn of(busy: Busy, id: WaiterId) -> Self {
        match busy {
            Busy::Upgrade => Self::of_upgrade(id),
            Busy::Held => Self(REGULAR | id.0),
        }
    }

    /// The request that stands here, unless it was moved to the head.
    pub(super) const fn id(self) -> Option<WaiterId> {
        match self.0 {
            MOVED..REGULAR => None,
            other => Some(WaiterId(other & !REGULAR)),
        }
    }

    pub(crate) fn is_upgrade(self) -> bool {
        self < Self::BEHIND_UPGRADES
    }

    pub(super) fn is_regular(self) -> bool {
        self >= Self::BEHIND_MOVED
    }

    /// Right behind this one.
    pub(crate) const fn behind(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Gives out the positions of the requests that are moved to the head of their queues, in both directions.
#[derive(Debug)]
pub(super) struct Head {
    first: u64,
    last: u64,
}

impl Default for Head {
    fn default() -> Self {
        let middle = MOVED + MOVED / 2;
        Self {
            first: middle,
            last: middle,
        }
    }
}

impl Head {
    /// Ahead of all that were moved before.
    pub(super) fn first(&mut self) -> Position {
        self.first -= 1;
        Position(self.first)
    }

    /// Behind all that were moved before.
    pub(super) fn last(&mut self) -> Position {
        self.last += 1;
        Position(self.last)
    }
}
