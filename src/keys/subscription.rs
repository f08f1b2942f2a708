//! Subscribes to all events that matter to locks, once there is a lock.

use crate::ffi::Context;
use crate::keys::evictions;
use crate::keys::state::{self, Keys};

/// A lock, a waiter or a value of the token clock has come to this server: from now on it needs more events.
pub(crate) fn subscribe_once(ctx: &Context<'_>) {
    if state::get(ctx).subscribed.replace(true) {
        return;
    }
    if !ctx.subscribe_for_locks() {
        ctx.warn(
            "the server refuses a subscription to its events: waiters will not notice FLUSHALL and SWAPDB. Restart it, \
             and report this line",
        );
    }
    evictions::read_policy_later(ctx);
}

pub(crate) fn is_subscribed(keys: &Keys) -> bool {
    keys.subscribed.get()
}
