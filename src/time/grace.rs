//! When this server may not grant, because an owner that it does not know may hold.
//!
//! * *The grace*, `lock.grace` long after a start and `lock.promotion-grace` long after a promotion: leases that were lost
//!   with the old data, or with the tail of the replication stream, run out meanwhile. The grace after a start runs on if the
//!   server is promoted within it.
//! * After a promotion the old primary may still grant for the first `lock.promotion-grace − lock.max-lease`
//!   of it. It sees an unrenewed lease end and grants the lock on, so nothing is renewed until
//!   then.
//! * *The stall guard*: a server that was frozen (SIGSTOP, a paused virtual machine) wakes with a
//!   stale count of good replicas and would accept writes for a while although a replica has been
//!   promoted. With a grace after promotions it grants and renews nothing until its replicas had the
//!   time to show whether they are still there. (Without one, clients confirm their holds, which a server that was replaced cannot do.)
//! * *Late replicas*: while too few have acknowledged data that is young enough, one of them may have been promoted. See
//!   `heartbeats.rs`.
//!
//! All of it on the boot-time clock.

use std::cell::Cell;

use mortise_core::Instant;

use crate::ffi::Context;
use crate::time::heartbeats::{Heartbeats, NEXT_CHECK};
use crate::time::lag::{Lag, MARGIN};

/// How long the event loop may be away before the server mistrusts itself, in milliseconds.
const STALL: u64 = 1_000;
/// How often the setting is read, in milliseconds.
const READ_EVERY: u64 = 1_000;

/// What forbids granting and renewing.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    /// Nothing is granted before this moment.
    until: Cell<Instant>,
    /// When the grace after the start ends.
    start_ends: Cell<Instant>,
    /// Nothing is renewed before this moment.
    renew_from: Cell<Instant>,
    /// Nothing is granted or renewed before this moment: the server was frozen.
    stalled_until: Cell<Instant>,
    /// Waiters have to be settled when all of it is over.
    pending: Cell<bool>,
    /// The last tick of the sweep timer.
    ticked: Cell<Instant>,
    /// How long an old primary may take to stop.
    lag: Cell<Lag>,
    lag_read: Cell<Instant>,
    pub(crate) heartbeats: Heartbeats,
}

impl Grace {
    /// The server has started. `promotion_grace`: the one that would follow a promotion.
    pub(crate) fn on_start(&self, now: Instant, grace: u64, promotion_grace: u64) {
        self.start_ends.set(now.after(grace));
        self.begin(now, self.start_ends.get());
        self.heartbeats.on_start(promotion_grace);
        self.on_tick(now);
    }

    /// The server has become the primary.
    pub(crate) fn on_promotion(&self, now: Instant, grace: u64, max_lease: u64) {
        self.begin(now, self.start_ends.get().max(now.after(grace)));
        self.renew_from
            .set(now.after(grace.saturating_sub(max_lease)));
        self.heartbeats.on_promotion();
    }

    fn begin(&self, now: Instant, until: Instant) {
        self.until.set(until);
        self.pending.set(self.ends() > now);
    }

    /// Whether nothing may be granted at `now`.
    pub(crate) fn forbids_grants(&self, now: Instant) -> bool {
        now < self.ends() || self.heartbeats.are_late(now)
    }

    /// How long nothing may be renewed or fenced, in milliseconds; 0 if it may.
    pub(crate) fn forbids_renewals(&self, now: Instant) -> u64 {
        let from = self.renew_from.get().max(self.stalled_until.get());
        let late = self.heartbeats.are_late(now);
        from.millis_since(now)
            .max(if late { NEXT_CHECK } else { 0 })
    }

    /// How long nothing may be granted, in milliseconds; at least that long where it is the replicas that are late.
    pub(crate) fn left(&self, now: Instant) -> u64 {
        let late = self.heartbeats.alone_forbid(now);
        let left = self.ends().millis_since(now);
        left.max(if late { NEXT_CHECK } else { 0 })
    }

    pub(super) fn ends(&self) -> Instant {
        self.until.get().max(self.stalled_until.get())
    }

    /// When the waiters have to be settled, if they do.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.pending.get().then(|| self.ends())
    }

    /// Whether the pause is over and waiters may be granted. True once.
    pub(crate) fn is_newly_over(&self, now: Instant) -> bool {
        self.ends() <= now && self.pending.replace(false)
    }

    /// The sweep timer has fired, or could not fire for a reason that is no stall.
    pub(crate) fn on_tick(&self, now: Instant) {
        self.ticked.set(now);
    }

    /// When the sweep timer fired last.
    pub(crate) fn ticked(&self) -> Instant {
        self.ticked.get()
    }

    /// At the entry of every command: notices that the event loop was away.
    pub(crate) fn detect_stall(&self, ctx: &Context<'_>, now: Instant) {
        let away = now.millis_since(self.ticked.get());
        if away > STALL {
            let pause = self.lag.get().most + MARGIN;
            let until = self.stalled_until.get().max(now.after(pause));
            self.stalled_until.set(until);
            self.pending.set(true);
            self.on_tick(now);
            ctx.warn(&format!(
                "the event loop was away for {away} ms: nothing is granted or renewed for {pause} ms, \
                 in case a replica has taken over. A paused machine, swapping or a slow command (SLOWLOG) \
                 causes this"
            ));
        }
    }

    /// From the cron, with a grace after promotions: keeps the lag known.
    pub(crate) fn read_lag(&self, ctx: &Context<'_>, now: Instant) {
        if now.millis_since(self.lag_read.get()) >= READ_EVERY {
            self.lag_read.set(now);
            self.lag.set(Lag::read(ctx));
        }
    }

    /// The lag when it was read last.
    pub(crate) fn known_lag(&self) -> Lag {
        self.lag.get()
    }
}
