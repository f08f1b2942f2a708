//! Walks over the keys where clients wait, for changes that no event of a single key shows: a
//! flush, a swap, the end of a load or of the grace, a slot that changes hands. Begun here, taken a
//! few keys at a time by `work::recheck`.

use mortise_core::{KeyId, Queues, SlotKey};

use crate::ffi::Context;
use crate::time::alarms;
use crate::waiting::queue;
use crate::waiting::state::{self, Waiting};
pub(crate) use crate::waiting::state::{Scope, Walk};

impl Scope {
    fn covers(self, other: Self) -> bool {
        self == Self::All || self == other
    }

    /// The first key of the scope behind `last`, as far as it is found within one step.
    fn next(self, queues: &Queues, last: Option<&SlotKey>) -> Option<SlotKey> {
        let keys = queues.waiting_keys();
        let next = match (self, last) {
            (Self::Unheld, _) => keys.unheld_after(last),
            (Self::Slot(slot), None) => keys.first_of(slot),
            _ => keys.after(last),
        };
        next.filter(|next| match self {
            Self::Slot(slot) => next.slot == slot,
            Self::All | Self::Database(_) | Self::Unheld => true,
        })
    }

    fn contains(self, key: &SlotKey) -> bool {
        match self {
            Self::Database(db) => key.key.db == db,
            Self::All | Self::Slot(_) | Self::Unheld => true,
        }
    }
}

impl Walk {
    pub(crate) const fn over(scope: Scope) -> Self {
        Self { scope, last: None }
    }

    /// Goes one key on.
    pub(crate) fn step(&mut self, queues: &Queues) -> Step {
        let Some(next) = self.scope.next(queues, self.last.as_ref()) else {
            return Step::End;
        };
        self.last = Some(next.clone());
        match self.scope.contains(&next) {
            true => Step::Key(next.key),
            false => Step::Passed,
        }
    }
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step {
    /// To this key.
    Key(KeyId),
    /// Past a key that is out of scope.
    Passed,
    /// There are no more keys.
    End,
}

/// Begins a walk.
pub(crate) fn begin(ctx: &Context<'_>, scope: Scope) {
    let first = scope.next(&queue::all(ctx).borrow(), None);
    if first.is_none() {
        return;
    }
    let mut walks = state::get(ctx).walks.borrow_mut();
    // One that has begun goes on to its end: else the last keys would never have their turn.
    walks.retain(|walk| walk.last.is_some() || !scope.covers(walk.scope));
    walks.push_back(Walk::over(scope));
    drop(walks);
    alarms::at_end_of_turn(ctx);
}

/// No walk is under way.
pub(crate) fn none(waiting: &Waiting) -> bool {
    waiting.walks.borrow().is_empty()
}

/// Takes one step of the first walk, which is over at its [`Step::End`].
pub(crate) fn step(waiting: &Waiting) -> Step {
    let mut walks = waiting.walks.borrow_mut();
    let step = match walks.front_mut() {
        Some(walk) => walk.step(&waiting.queues.borrow()),
        None => return Step::End,
    };
    if matches!(step, Step::End) {
        walks.pop_front();
    }
    step
}
