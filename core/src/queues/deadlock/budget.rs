//! How far the searches for one request may go.

use std::cell::Cell;

/// How many steps all searches for one request take at most. One step looks at one waiter, holder or key. A ring of a thousand tasks that hold a
/// lock and wait at a key takes some three thousand.
pub(super) const MOST_STEPS: usize = 4_000;

/// The steps that the searches for one request may still take.
#[derive(Debug)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    pub(super) const fn new() -> Self {
        Self(Cell::new(MOST_STEPS))
    }

    pub(super) fn step(&self, times: usize) {
        self.0.set(self.0.get().saturating_sub(times));
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }

    pub(super) fn steps(&self) -> usize {
        MOST_STEPS - self.0.get()
    }
}
