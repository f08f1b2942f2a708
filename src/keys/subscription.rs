//! Hearing of all that matters to locks, once there are any.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};
use crate::keys::evictions;

/// The server tells of all that matters to locks.
static SUBSCRIBED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// A lock comes to this server, or a wait, or word of the token clock: from now on it has to know of more.
pub(crate) fn subscribe_once(ctx: &Context<'_>) {
    if SUBSCRIBED.get(ctx).replace(true) {
        return;
    }
    if !ctx.subscribe_for_locks() {
        ctx.warn(
            "the server refuses a subscription to its events: FLUSHALL and SWAPDB will leave waiters behind. Restart it, \
             and report this line",
        );
    }
    evictions::look_at_policy_later(ctx);
}

pub(crate) fn is_subscribed(ctx: &Context<'_>) -> bool {
    SUBSCRIBED.get(ctx).get()
}
