//! Subscribes to all events that matter to locks, once there is a lock.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};
use crate::keys::evictions;

static SUBSCRIBED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// A lock, a waiter or a value of the token clock has come to this server: from now on it needs more events.
pub(crate) fn subscribe_once(ctx: &Context<'_>) {
    if SUBSCRIBED.get(ctx).replace(true) {
        return;
    }
    if !ctx.subscribe_for_locks() {
        ctx.warn(
            "the server refuses a subscription to its events: waiters will not notice FLUSHALL and SWAPDB. Restart it, \
             and report this line",
        );
    }
    evictions::warn_later(ctx);
}

/// Whether the module is subscribed to them.
pub(crate) fn is_subscribed(ctx: &Context<'_>) -> bool {
    SUBSCRIBED.get(ctx).get()
}
