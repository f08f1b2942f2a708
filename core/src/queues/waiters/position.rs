//! Where a waiter stands in its line.

use super::super::WaiterId;
use crate::request::Busy;

/// Where a request joins its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Ahead of all others, behind earlier upgrades.
    Upgrade,
    /// Ahead of all but upgrades.
    Front,
    /// At the head: behind upgrades, and behind the requests that were moved there before.
    Head,
    /// At the head, in a place that is kept for it.
    Reserved(Reserved),
    /// Behind all.
    Last,
}

/// A place that is kept for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved(pub(super) u64);

impl Rank {
    /// A request of this rank was moved to the head.
    pub(crate) fn is_moved(self) -> bool {
        matches!(self, Self::Front | Self::Head | Self::Reserved(_))
    }
}

impl From<Busy> for Rank {
    /// The rank of a request that has to wait for this reason.
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Upgrade => Self::Upgrade,
            Busy::Held => Self::Last,
        }
    }
}

/// The parts of a line, from its head on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Upgrade,
    /// Moved to the head, to end a cycle through a place behind a request for several keys.
    Moved,
    Regular,
}

/// Where a waiter stands in its line: lower is further ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(super) class: Class,
    /// The waiter's id, or when it was moved.
    pub(super) order: u64,
}

impl Position {
    /// Ahead of all.
    pub(crate) const FIRST: Self = Self {
        class: Class::Upgrade,
        order: 0,
    };

    /// Behind all upgrades and ahead of all others.
    pub(crate) const BEHIND_UPGRADES: Self = Self {
        class: Class::Moved,
        order: 0,
    };

    /// Behind all that were moved to the head, and ahead of the others.
    pub(crate) const REGULAR: Self = Self {
        class: Class::Regular,
        order: 0,
    };

    /// Behind all.
    pub(crate) const END: Self = Self {
        class: Class::Regular,
        order: u64::MAX,
    };

    pub(super) const fn of(class: Class, order: u64) -> Self {
        Self { class, order }
    }

    pub(crate) const fn of_upgrade(id: WaiterId) -> Self {
        Self::of(Class::Upgrade, id.0)
    }

    pub(crate) fn is_upgrade(self) -> bool {
        self.class == Class::Upgrade
    }

    /// Right behind this one.
    pub(crate) fn behind(self) -> Self {
        match self.order.checked_add(1) {
            Some(order) => Self { order, ..self },
            None => Self::BEHIND_UPGRADES,
        }
    }
}
