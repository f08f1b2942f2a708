//! When the next waiter has to be looked at by time alone.

use mortise_core::Instant;

use crate::ffi::Context;
use crate::time::{self, alarms};
use crate::waiting::queue;
use crate::waiting::readers;

/// Starts the timer for what is due next, if it is not under way.
pub(crate) fn arm(ctx: &Context<'_>) {
    if let Some(next) = next_due(ctx) {
        alarms::due_at(ctx, next);
    }
}

/// When a waiter's time is up, a lock with waiters loses a hold, or the grace ends.
fn next_due(ctx: &Context<'_>) -> Option<Instant> {
    let limit = readers::next_limit(ctx);
    let queues = queue::all(ctx).borrow();
    if queues.is_empty() {
        return limit;
    }
    let dues = [
        queues.next_limit(),
        queues.next_deadline(),
        time::grace(ctx).next_due(),
        limit,
    ];
    dues.into_iter().flatten().min()
}
