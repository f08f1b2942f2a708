//! What the module does once there is a lock: it subscribes to more events, and warns if the server may evict locks that are held, so that
//! others can take them.
//!
//! Locks carry no TTL, so only the policies `allkeys-*` evict them, and only where memory has a limit.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};
use crate::work::queue::{self, Work};

static IS_SUBSCRIBED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));
/// The log says that the server may evict locks.
static HAS_WARNED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// A lock, a waiter or a value of the token clock has come to this server: from now on it needs more events.
pub(crate) fn subscribe_once(ctx: &Context<'_>) {
    if IS_SUBSCRIBED.get(ctx).replace(true) {
        return;
    }
    if !ctx.subscribe_for_locks() {
        ctx.warn(
            "the server refuses a subscription to its events: waiters will not notice FLUSHALL and SWAPDB. Restart it, \
             and report this line",
        );
    }
    queue::push(ctx, Work::WarnOfEvictions);
}

/// Whether the module is subscribed to the events that matter once there is a lock.
pub(crate) fn is_subscribed(ctx: &Context<'_>) -> bool {
    IS_SUBSCRIBED.get(ctx).get()
}

/// Whether the server may evict locks that are held, which it takes long to find out. Also true if the server does not show it.
pub(crate) fn may_be_evicted(ctx: &Context<'_>) -> bool {
    let [limit] = ctx.server_info(c"memory", [c"maxmemory"]);
    let policy = ctx.server_text(c"memory", c"maxmemory_policy");
    limit != Some(0) && policy.is_none_or(|policy| policy.starts_with(b"allkeys"))
}

/// Warns if the server may evict locks: once, until its settings allow no evictions any more. Callbacks must not ask the server, so they queue
/// this.
pub(crate) fn warn_of_evictions(ctx: &Context<'_>) {
    let may = may_be_evicted(ctx);
    let has_warned = HAS_WARNED.get(ctx).replace(may);
    if may && !has_warned {
        ctx.warn(
            "maxmemory-policy allkeys-* may evict locks that are held, and others can then take them. Set noeviction or \
             volatile-*",
        );
    }
}
