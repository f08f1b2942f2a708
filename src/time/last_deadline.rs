//! How long the longest lease lasts.

use mortise_core::Instant;

use crate::ffi::Context;
use crate::time::state;

/// A lease runs until `deadline`.
pub(crate) fn note(ctx: &Context<'_>, deadline: Instant) {
    let last = &state::get(ctx).last_deadline;
    last.set(last.get().max(deadline));
}

/// The latest end of a lease that was granted here or came here.
pub(crate) fn get(ctx: &Context<'_>) -> Instant {
    state::get(ctx).last_deadline.get()
}
