//! What this layer knows, on the boot-time clock.
//!
//! Each field has cells of its own, so that a borrow of one part is in nobody's way.

use std::cell::{Cell, LazyCell};

use mortise_core::Instant;

use crate::config;
use crate::ffi::{Context, MainThread};
use crate::time::grace::Grace;
use crate::time::lateness::Lateness;

static TIME: MainThread<Time> = MainThread::new(Time {
    primary: Cell::new(true),
    last_deadline: Cell::new(Instant::from_millis(0)),
    due: Cell::new(None),
    warned_of: Cell::new(None),
    grace: LazyCell::new(Grace::default),
    lateness: LazyCell::new(Lateness::default),
});

pub(crate) fn get(ctx: &Context<'_>) -> &'static Time {
    TIME.get(ctx)
}

/// What may be granted now, and when something is due.
pub(crate) struct Time {
    /// This server is no replica.
    pub(super) primary: Cell<bool>,
    /// The latest end of a lease that was granted here or came here.
    pub(super) last_deadline: Cell<Instant>,
    /// When the timer for what is due next comes.
    pub(super) due: Cell<Option<Instant>>,
    /// The settings that a warning was last considered for.
    pub(super) warned_of: Cell<Option<ShortGrace>>,
    /// What forbids granting and renewing.
    pub(super) grace: LazyCell<Grace>,
    /// How late the data of this replica may have been.
    pub(super) lateness: LazyCell<Lateness>,
}

/// Settings for which a grace may be too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortGrace {
    pub(super) grace: u64,
    pub(super) promotion_grace: Option<u64>,
    pub(super) max_lease: u64,
}

impl Time {
    /// At the entry of a command: the stall guard is only up where a promotion begins a grace.
    pub(super) fn detect_stall(&self, ctx: &Context<'_>, now: Instant) {
        if config::promotion_grace(ctx) > 0 && self.primary.get() {
            self.grace.detect_stall(ctx, now);
        }
    }

    /// Logs that a grace begins, and why.
    pub(super) fn log_grace_begin(&self, ctx: &Context<'_>, now: Instant, why: &str) {
        let left = self.grace.ends().millis_since(now);
        if left > 0 && self.primary.get() {
            self.grace.logged.set(true);
            ctx.notice(&format!(
                "{why}: for {left} ms (lock.grace) nothing is granted, because somebody may hold a lock that this server \
                 does not know of"
            ));
        }
    }

    /// Logs that it is over, once it is.
    pub(super) fn log_grace_end(&self, ctx: &Context<'_>, now: Instant) {
        if self.grace.logged.get() && self.grace.ends() <= now {
            self.grace.logged.set(false);
            if self.primary.get() {
                ctx.notice("the grace is over: locks are granted");
            }
        }
    }
}
