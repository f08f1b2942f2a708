//! Clocks and timers, and when this server may not grant or renew because another one may have.
//!
//! Used by every layer above; uses `ffi` alone. It touches no key and answers no client.

pub(crate) mod alarms;
pub(crate) mod failover;
pub(crate) mod grace;
pub(crate) mod heartbeats;
pub(crate) mod lag;
pub(crate) mod lateness;

pub(crate) use crate::ffi::clock;

use std::cell::{Cell, LazyCell};

use mortise_core::Instant;

use crate::config;
use crate::ffi::{Context, MainThread};
use grace::Grace;
use lateness::Lateness;

static IS_PRIMARY: MainThread<Cell<bool>> = MainThread::new(Cell::new(true));
static LAST_DEADLINE: MainThread<Cell<Instant>> =
    MainThread::new(Cell::new(Instant::from_millis(0)));
static GRACE: MainThread<LazyCell<Grace>> = MainThread::new(LazyCell::new(Grace::default));
static LATENESS: MainThread<LazyCell<Lateness>> = MainThread::new(LazyCell::new(Lateness::default));

/// Whether this server is no replica.
pub(crate) fn is_primary(ctx: &Context<'_>) -> bool {
    IS_PRIMARY.get(ctx).get()
}

/// The server has reported its role. Returns whether it was a primary before.
pub(crate) fn set_primary(ctx: &Context<'_>, is_primary: bool) -> bool {
    IS_PRIMARY.get(ctx).replace(is_primary)
}

/// A lease was granted here or came here.
pub(crate) fn note_deadline(ctx: &Context<'_>, deadline: Instant) {
    let last = LAST_DEADLINE.get(ctx);
    last.set(last.get().max(deadline));
}

/// The latest end of a lease that was granted here or came here.
pub(crate) fn last_deadline(ctx: &Context<'_>) -> Instant {
    LAST_DEADLINE.get(ctx).get()
}

/// What forbids granting and renewing.
pub(crate) fn grace(ctx: &Context<'_>) -> &'static Grace {
    GRACE.get(ctx)
}

/// How late the data of this replica may have been.
pub(crate) fn lateness(ctx: &Context<'_>) -> &'static Lateness {
    LATENESS.get(ctx)
}

/// At the entry of a command: notices that the event loop was away. The stall guard is only up where a promotion begins a grace.
pub(crate) fn detect_stall(ctx: &Context<'_>, now: Instant) {
    if config::promotion_grace() > 0 && is_primary(ctx) {
        grace(ctx).detect_stall(ctx, now);
    }
}

/// Logs that a grace begins, and why.
pub(crate) fn log_grace_begin(ctx: &Context<'_>, now: Instant, why: &str) {
    let left = grace(ctx).ends().millis_since(now);
    if left > 0 && is_primary(ctx) {
        ctx.notice(&format!(
            "{why}: for {left} ms (lock.grace) nothing is granted, because somebody may hold a lock that this server \
             does not know of"
        ));
    }
}
