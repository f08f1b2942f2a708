//! Where a waiter stands in its line.

use super::super::WaiterId;

/// Where a waiter stands in its line: lower is further ahead. Upgrades stand ahead of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    behind_upgrades: bool,
    id: WaiterId,
}

impl Position {
    /// Ahead of all.
    pub(crate) const FIRST: Self = Self {
        behind_upgrades: false,
        id: WaiterId(0),
    };

    /// Behind all upgrades and ahead of all others.
    pub(crate) const LINE: Self = Self {
        behind_upgrades: true,
        id: WaiterId(0),
    };

    /// Behind all upgrades, or behind all.
    pub(crate) const fn end(upgrade: bool) -> Self {
        Self {
            behind_upgrades: !upgrade,
            id: WaiterId(u64::MAX),
        }
    }

    pub(crate) const fn of(upgrade: bool, id: WaiterId) -> Self {
        Self {
            behind_upgrades: !upgrade,
            id,
        }
    }

    pub(crate) fn is_upgrade(self) -> bool {
        !self.behind_upgrades
    }

    /// Right behind this one.
    pub(crate) fn behind(self) -> Self {
        match self.id.0.checked_add(1) {
            Some(id) => Self {
                id: WaiterId(id),
                ..self
            },
            None => Self::LINE,
        }
    }
}
