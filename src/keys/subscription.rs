//! Hearing of all that matters to locks, once there are any.

use crate::ffi::Context;
use crate::keys::evictions;
use crate::keys::state::{self, Keys};

/// A lock comes to this server, or a wait, or word of the token clock: from now on it has to know of more.
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
