//! A warning if the server may evict locks that are held, so that others can take them.
//!
//! Locks carry no TTL, so only the policies `allkeys-*` evict them, and only where memory has a limit.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};

/// The log says that the server may evict locks.
static HAS_WARNED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

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
