//! How long the longest lease lasts.

use std::cell::Cell;

use mortise_core::Instant;

use crate::ffi::{Context, MainThread};

static LAST_DEADLINE: MainThread<Cell<Instant>> =
    MainThread::new(Cell::new(Instant::from_millis(0)));

/// A lease runs until `deadline`.
pub(crate) fn note(ctx: &Context<'_>, deadline: Instant) {
    let last = LAST_DEADLINE.get(ctx);
    last.set(last.get().max(deadline));
}

/// The latest end of a lease that was granted here or came here.
pub(crate) fn get(ctx: &Context<'_>) -> Instant {
    LAST_DEADLINE.get(ctx).get()
}
