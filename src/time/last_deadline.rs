//! How long the longest lease lasts.

use mortise_core::Instant;

use crate::time::state::Time;

/// A lease runs until `deadline`.
pub(crate) fn note(time: &Time, deadline: Instant) {
    let last = &time.last_deadline;
    last.set(last.get().max(deadline));
}

/// The latest end of a lease that was granted here or came here.
pub(crate) fn get(time: &Time) -> Instant {
    time.last_deadline.get()
}
