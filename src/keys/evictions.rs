//! Whether the server may evict locks that are held: others can then take them. The log warns, and INFO shows it.
//!
//! Locks carry no TTL, so only the policies `allkeys-*` take them, and only where memory has a limit.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};
use crate::time::alarms;

static WARNING: MainThread<Warning> = MainThread::new(Warning {
    due: Cell::new(false),
    found: Cell::new(None),
});

struct Warning {
    /// The settings have to be checked.
    due: Cell<bool>,
    /// Whether the settings that were checked last allow evictions, which has been logged then.
    found: Cell<Option<bool>>,
}

/// Whether the server may evict locks that are held. Also true if the server does not show it.
pub(crate) fn are_possible(ctx: &Context<'_>) -> bool {
    let warning = WARNING.get(ctx);
    match warning.found.get() {
        Some(found) if !warning.due.get() => found,
        // Settings may have changed.
        _ => allows_evictions(ctx),
    }
}

/// Whether the server's settings allow evictions, which it takes long to find out.
fn allows_evictions(ctx: &Context<'_>) -> bool {
    let [limit] = ctx.server_info(c"memory", [c"maxmemory"]);
    let policy = ctx.server_text(c"memory", c"maxmemory_policy");
    limit != Some(0) && policy.is_none_or(|policy| policy.starts_with(b"allkeys"))
}

/// Warns of evictions when the event loop turns, because callbacks must not ask the server: there is a first lock, or a setting
/// has changed.
pub(crate) fn warn_later(ctx: &Context<'_>) {
    WARNING.get(ctx).due.set(true);
    alarms::at_end_of_turn(ctx);
}

/// The event loop turns: warns if that is due. Once, until the settings allow no evictions any more.
pub(crate) fn warn_if_due(ctx: &Context<'_>) {
    let warning = WARNING.get(ctx);
    if !warning.due.take() {
        return;
    }
    let possible = allows_evictions(ctx);
    let before = warning.found.replace(Some(possible));
    if before == Some(true) || !possible {
        return;
    }
    ctx.warn(
        "maxmemory-policy allkeys-* may evict locks that are held, and others can then take them. Set noeviction or \
         volatile-*",
    );
}
