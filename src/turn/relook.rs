//! Walks over the keys where somebody waits, for changes that no single key tells of: a flush, a
//! swap, the end of a load or of the grace, a slot that changes hands. A few keys at a time, and
//! behind everything that is urgent.

use std::collections::VecDeque;

use mortise_core::SlotKey;

use crate::ffi::Context;
use crate::state::State;
use crate::turn::dirty::{self, DirtyKey};
use crate::turn::timers;

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
    fn next(self, state: &State, last: Option<&SlotKey>) -> Option<SlotKey> {
        let queues = state.queues.borrow();
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
    pub(crate) fn next(&mut self, state: &State) -> Option<Option<SlotKey>> {
        let next = self.scope.next(state, self.last.as_ref())?;
        self.last = Some(next.clone());
        Some(self.scope.contains(&next).then_some(next))
    }
}

/// The walks that are under way.
pub(crate) type Walks = VecDeque<Walk>;

/// Begins a walk.
pub(crate) fn begin(state: &State, scope: Scope) {
    if state.queues.borrow().is_empty() {
        return;
    }
    let mut walks = state.walks.borrow_mut();
    walks.retain(|walk| !scope.covers(walk.scope));
    walks.push_back(Walk::over(scope));
    drop(walks);
    timers::at_end_of_turn(state);
}

/// Looks at one key of the first walk. False if there is nothing to do now.
pub(crate) fn step(ctx: &Context<'_>, state: &State) -> bool {
    if state.walks.borrow().is_empty() || dirty::is_blocked(ctx, state) {
        return false;
    }
    let next = match state.walks.borrow_mut().front_mut() {
        Some(walk) => walk.next(state),
        None => return false,
    };
    match next {
        None => {
            state.walks.borrow_mut().pop_front();
        }
        Some(None) => {}
        Some(Some(key)) => look_at(ctx, state, &key),
    }
    true
}

/// While nothing is granted: one key of a walk that never ends. False at the end of each round.
///
/// Where nobody holds there is no lock that could be lost, so a key of another type comes unnoticed.
pub(crate) fn patrol(ctx: &Context<'_>, state: &State) -> bool {
    let next = state.patrol.borrow_mut().next(state);
    match next {
        None => {
            *state.patrol.borrow_mut() = Walk::over(Scope::All);
            return false;
        }
        Some(None) => {}
        Some(Some(key)) => look_at(ctx, state, &key),
    }
    true
}

fn look_at(ctx: &Context<'_>, state: &State, key: &SlotKey) {
    let key = DirtyKey {
        db: key.key.db as i32,
        name: (*key.key.name).into(),
        recheck_holders: true,
    };
    dirty::look_at(ctx, state, key);
}
