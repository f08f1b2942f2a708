//! Clocks and timers, and when this server may not grant or renew because another one may have.
//!
//! Used by every layer above; uses `ffi` alone. It touches no key and answers no client.
//!
//! What the layer knows is in `state`. A part (`grace`, `lateness`) gets what it needs of the others as arguments.

pub(crate) mod alarms;
pub(crate) mod clock;
pub(crate) mod failover;
pub(crate) mod grace;
pub(crate) mod heartbeats;
pub(crate) mod hidden;
pub(crate) mod lag;
pub(crate) mod last_deadline;
pub(crate) mod lateness;
pub(crate) mod role;
mod state;

use mortise_core::Instant;

use crate::ffi::Context;
pub(crate) use state::get as state;

use grace::Grace;
use lateness::Lateness;

/// What forbids granting and renewing.
pub(crate) fn grace(ctx: &Context<'_>) -> &'static Grace {
    &state::get(ctx).grace
}

/// How late the data of this replica may have been.
pub(crate) fn lateness(ctx: &Context<'_>) -> &'static Lateness {
    &state::get(ctx).lateness
}

/// At the entry of a command: has the event loop been away? Only where a promotion begins a grace.
pub(crate) fn detect_stall(ctx: &Context<'_>, now: Instant) {
    state::get(ctx).detect_stall(ctx, now);
}

/// Logs that a grace begins, and why.
pub(crate) fn log_grace_begin(ctx: &Context<'_>, now: Instant, why: &str) {
    state::get(ctx).log_grace_begin(ctx, now, why);
}

/// Logs that it is over, once it is.
pub(crate) fn log_grace_end(ctx: &Context<'_>, now: Instant) {
    state::get(ctx).log_grace_end(ctx, now);
}
