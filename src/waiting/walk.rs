//! Walks over the keys where clients wait, for changes that no single key tells of: a flush, a swap, the end of a load or
//! of the grace, a slot that changes hands. Begun here, taken a few keys at a time by `turn::relook`.

use std::cell::RefCell;
use std::collections::VecDeque;

use mortise_core::SlotKey;

use crate::ffi::{Context, MainThread};
use crate::time::alarms;
use crate::waiting::queue;

/// Which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    Database(u32),
    Slot(u16),
}

impl Scope {
    fn covers(self, other: Self) -> bool {
        self == Self::All || self == other
    }

    /// The first key of the scope behind `last`, as far as it is found within one step.
    fn next(self, ctx: &Context<'_>, last: Option<&SlotKey>) -> Option<SlotKey> {
        let queues = queue::all(ctx).borrow();
        let keys = queues.waiting_keys();
        let next = match (self, last) {
            (Self::Slot(slot), None) => keys.first_of(slot),
            _ => keys.after(last),
        };
        next.filter(|next| match self {
            Self::Slot(slot) => next.slot == slot,
            Self::All | Self::Database(_) => true,
        })
    }

    fn contains(self, key: &SlotKey) -> bool {
        match self {
            Self::Database(db) => key.key.db == db,
            Self::All | Self::Slot(_) => true,
        }
    }
}

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walk {
    scope: Scope,
    /// The last key that was looked at.
    last: Option<SlotKey>,
}

impl Walk {
    pub(crate) const fn over(scope: Scope) -> Self {
        Self { scope, last: None }
    }

    /// The next key, `Some(None)` for one that is passed by. `None` at the end.
    #[allow(clippy::option_option)]
    pub(crate) fn next(&mut self, ctx: &Context<'_>) -> Option<Option<SlotKey>> {
        let next = self.scope.next(ctx, self.last.as_ref())?;
        self.last = Some(next.clone());
        Some(self.scope.contains(&next).then_some(next))
    }
}

/// The walks that are under way.
static WALKS: MainThread<RefCell<VecDeque<Walk>>> = MainThread::new(RefCell::new(VecDeque::new()));

/// Begins a walk.
pub(crate) fn begin(ctx: &Context<'_>, scope: Scope) {
    if queue::all(ctx).borrow().is_empty() {
        return;
    }
    let mut walks = WALKS.get(ctx).borrow_mut();
    walks.retain(|walk| !scope.covers(walk.scope));
    walks.push_back(Walk::over(scope));
    drop(walks);
    alarms::at_end_of_turn(ctx);
}

/// No walk is under way.
pub(crate) fn none(ctx: &Context<'_>) -> bool {
    WALKS.get(ctx).borrow().is_empty()
}

/// The next key of the first walk, `Some(None)` for one that is passed by, or at the end of a walk. `None` if there is no
/// walk.
#[allow(clippy::option_option)]
pub(crate) fn next_key(ctx: &Context<'_>) -> Option<Option<SlotKey>> {
    let mut walks = WALKS.get(ctx).borrow_mut();
    let next = walks.front_mut()?.next(ctx);
    if next.is_none() {
        walks.pop_front();
    }
    Some(next.flatten())
}
