//! When the next waiter's time is up.

use mortise_core::Instant;

use crate::ffi::Context;
use crate::time::grace::Grace;
use crate::time::{self, alarms};
use crate::waiting::readers;
use crate::waiting::state::{self, Waiting};

/// Starts the timer for what is due next, if it is not under way.
pub(crate) fn arm(ctx: &Context<'_>) {
    if let Some(next) = next_due(state::get(ctx), time::grace(ctx)) {
        alarms::due_at(ctx, next);
    }
}

/// When a waiter's time is up, a lock with waiters loses a hold, or the grace ends.
fn next_due(waiting: &Waiting, grace: &Grace) -> Option<Instant> {
    let limit = readers::next_limit(waiting);
    let queues = waiting.queues.borrow();
    if queues.is_empty() {
        return limit;
    }
    let dues = [
        queues.next_limit(),
        queues.next_deadline(),
        grace.next_due(),
        limit,
    ];
    dues.into_iter().flatten().min()
}
