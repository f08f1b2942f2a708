//! How late the data of this replica may have been, and so which holds it must not bring back once it is promoted.
//!
//! A lease that arrives late is counted from its arrival. That only blocks others for longer; but a
//! renewal would bring back a hold that the old primary has ended, while another client has the
//! lock. So a promoted server gives the holds of its predecessor two ends, and the *earlier* one,
//! after which they cannot be brought back, comes before the one until which they block others:
//!
//! ```text
//!  old primary   ──grants a──────────────────┤ a's lease is over ──grants b──┤ has stopped
//!  replica               (late)──a's hold────────────────┤promoted├ TRYAGAIN ┤────────────┤ a's lease is over
//!                                            ├─────────── suspect: not brought back ──────┤
//! ```
//!
//! *How late* is what its stamp says: the clock here, less the clock of the primary when it wrote. That includes the difference of the two
//! clocks, so the module compares the latest of all recent data with the promptest. Heartbeats come again and again, so some data was
//! prompt if the primary has granted at all: a primary does not grant while its heartbeats are acknowledged late (`heartbeats.rs`). In a
//! cluster it does grant then, and the heartbeat says how long ago, at most, the last acknowledged one was written.
//!
//! *An example*: `lock.max-lease` is 10 s, the grace 16 s, so the old primary has stopped 6 s after the promotion. Up to then RENEW gets
//! TRYAGAIN. The data was at most 2 s late. A hold that ends here 7 s after the promotion may have ended on the old primary after 5 s, when that
//! still granted: another owner may hold the lock there, so this hold is suspect. One that ends here after 9 s was alive after 7 s, when the old
//! primary granted nothing any more: it may be renewed.
//!
//! *The rule*, see [`Lateness::on_promotion`]: if a hold ends after the time of TRYAGAIN by more than its data may have been late, it was
//! alive on the old primary when that stopped, so nobody was granted after it. All other holds are suspect. One moment per server is enough
//! to tell them apart: leases are no longer than `lock.max-lease`, so what came from the predecessor has ended when the grace has, and
//! whatever ends later was granted or renewed here.

use std::cell::Cell;

use mortise_core::codec::{BootId, Heartbeat, Stamp};
use mortise_core::{Instant, Stake};

use crate::config;
use crate::ffi::Context;
use crate::time::lag::MARGIN;

/// How late data was that does not say it: every hold is suspect.
const UNKNOWN: u64 = u64::MAX;

/// How prompt and how late the data of a stretch of time was.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// The clock here less the primary's, in milliseconds, of the promptest and of the latest.
    promptest: i64,
    latest: i64,
    /// The least that a heartbeat said of how old the acknowledged one was; `None` if there was no heartbeat.
    acknowledged: Option<u64>,
}

impl Default for Window {
    /// Without any data.
    fn default() -> Self {
        Self {
            promptest: i64::MAX,
            latest: i64::MIN,
            acknowledged: None,
        }
    }
}

impl Window {
    fn with(self, other: Self) -> Self {
        let acknowledged = [self.acknowledged, other.acknowledged];
        Self {
            promptest: self.promptest.min(other.promptest),
            latest: self.latest.max(other.latest),
            acknowledged: acknowledged.into_iter().flatten().min(),
        }
    }
}

/// What is known of how late data came.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    /// Whose clock the windows compare with.
    clock: Cell<Option<BootId>>,
    /// A stretch of `lock.max-lease` and what has passed of the next one: whatever came before has ended.
    windows: Cell<[Window; 2]>,
    turned: Cell<Instant>,
    /// When the first heartbeat since the last full sync was written; `None` if there was none.
    heard: Cell<Option<Instant>>,
    /// Something came that does not say when it was written, and nothing that does has come since.
    unmeasured: Cell<bool>,
    /// Data of another clock, or from files, was so late; none of its leases lasts for longer than this.
    earlier: Cell<(u64, Instant)>,
    /// Until when the primary itself suspects holds, by its heartbeats.
    passed_on: Cell<Instant>,
    /// Holds from before the promotion that end by then are suspect.
    suspect_until: Cell<Instant>,
}

impl Lateness {
    /// Notes a lock from a file: how late it came is unknown, and its last lease ends at `deadline`.
    pub(crate) fn on_file(&self, deadline: Instant) {
        self.keep_earlier(UNKNOWN, deadline);
    }

    /// Until when holds are suspect, as this server recorded before its restart.
    pub(crate) fn on_saved(&self, until: Instant) {
        self.suspect_until.set(self.suspect_until.get().max(until));
    }

    /// All data is about to be replaced by the primary's.
    pub(crate) fn on_sync(&self) {
        self.earlier.take();
        self.unmeasured.set(false);
        self.heard.set(None);
        self.windows.set(self.windows.get().map(|window| Window {
            latest: i64::MIN,
            ..window
        }));
    }

    /// A lock came in a full sync, stamped when it was written. It does not count as prompt. `last_deadline`: the latest end of a
    /// lease that came here.
    pub(crate) fn on_synced(&self, stamp: &Stamp, last_deadline: Instant, now: Instant) {
        self.compare_with(stamp.boot_id, last_deadline);
        self.measure(stamp, now, false);
    }

    /// A hold came in the stream, stamped when it was decided.
    pub(crate) fn on_hold(&self, stamp: &Stamp, now: Instant) {
        let clock = *self.clock.get().get_or_insert(stamp.boot_id);
        if clock == stamp.boot_id {
            self.clock.set(Some(clock));
            self.unmeasured.set(false);
            self.measure(stamp, now, true);
        } else {
            // A slot's locks come with the stamps of the node they leave.
            self.on_unstamped();
        }
    }

    /// A lock came in the stream, and nothing shows when it was written.
    pub(crate) fn on_unstamped(&self) {
        self.unmeasured.set(true);
    }

    /// The primary's heartbeat. `last_deadline` as in [`Self::on_synced`].
    pub(crate) fn on_heartbeat(
        &self,
        heartbeat: &Heartbeat,
        stamp: &Stamp,
        last_deadline: Instant,
        now: Instant,
    ) {
        self.compare_with(stamp.boot_id, last_deadline);
        self.measure(stamp, now, true);
        self.unmeasured.set(false);
        let first = *self.heard.get().get_or_insert(stamp.boot);
        self.heard.set(Some(first));
        // Acknowledgements from before this server was a replica say nothing about its data.
        let since_first = stamp.boot.millis_since(first);
        let acknowledged = heartbeat.acknowledged_ms.filter(|ms| *ms <= since_first);
        self.note(Window {
            acknowledged: Some(acknowledged.unwrap_or(UNKNOWN)),
            ..Window::default()
        });
        if heartbeat.suspect_ms > 0 {
            let until = now.after(heartbeat.suspect_ms);
            self.passed_on.set(self.passed_on.get().max(until));
        }
    }

    /// From here on stamps are of `clock`; what came by another one is remembered as it was.
    fn compare_with(&self, clock: BootId, last_deadline: Instant) {
        let before = self.clock.replace(Some(clock));
        if before.is_some_and(|before| before != clock) {
            self.keep_earlier(self.late(false), last_deadline);
            self.windows.set([Window::default(); 2]);
            self.heard.set(None);
        }
    }

    fn keep_earlier(&self, late: u64, until: Instant) {
        let (known, known_until) = self.earlier.get();
        self.earlier.set((known.max(late), known_until.max(until)));
    }

    fn measure(&self, stamp: &Stamp, now: Instant, may_be_prompt: bool) {
        if now.millis_since(self.turned.get()) >= config::MAX_LEASE.get() {
            self.turned.set(now);
            self.windows.set([Window::default(), self.windows.get()[0]]);
        }
        let difference = now.as_millis() as i64 - stamp.boot.as_millis() as i64;
        self.note(Window {
            promptest: if may_be_prompt { difference } else { i64::MAX },
            latest: difference,
            acknowledged: None,
        });
    }

    fn note(&self, seen: Window) {
        let [current, last] = self.windows.get();
        self.windows.set([current.with(seen), last]);
    }

    /// How late data may have been, in milliseconds. `absolute`: and not only how much later than the promptest.
    fn late(&self, absolute: bool) -> u64 {
        let [current, last] = self.windows.get();
        let all = current.with(last);
        if all.promptest == i64::MAX || all.latest == i64::MIN {
            return 0;
        }
        let later = all.latest.saturating_sub(all.promptest).max(0) as u64;
        if absolute {
            later.saturating_add(all.acknowledged.unwrap_or(0))
        } else {
            later
        }
    }

    /// The server has become the primary. The old one has stopped when `grace` − `max_lease` have passed. If an owner still held there at
    /// that time, nobody was granted after it; for all other owners this is unknown.
    /// `lag`: what the old primary kept to.
    pub(crate) fn on_promotion(&self, ctx: &Context<'_>, lag: u64, now: Instant) {
        let (grace, max_lease) = (config::promotion_grace(), config::MAX_LEASE.get());
        let safe = grace >= max_lease.saturating_add(lag + MARGIN);
        let over = now.after(grace);
        let stopped = now.after(grace.saturating_sub(max_lease));
        let unknown = safe && (self.heard.get().is_none() || self.unmeasured.get());
        let late = if unknown {
            UNKNOWN
        } else {
            self.late(ctx.is_cluster())
        };
        let (earlier, earlier_until) = self.earlier.get();
        let passed_on = self.passed_on.get();
        let suspect_until = [
            stopped.after(late),
            stopped.after(earlier).min(earlier_until),
            // Their leases came here so late.
            if passed_on > now {
                passed_on.after(late)
            } else {
                now
            },
            self.suspect_until.get(),
        ];
        let latest = suspect_until.into_iter().fold(now, Instant::max);
        self.suspect_until.set(latest.min(over));
    }

    /// How long holds from before the promotion are suspect, in milliseconds.
    pub(crate) fn suspect_ms(&self, now: Instant) -> u64 {
        self.suspect_until.get().millis_since(now)
    }

    /// Whether RENEW, FENCE and GUARD may use a hold. If the old primary may have ended a hold from before the promotion, and granted the
    /// lock to another owner, they treat it as no hold; it still blocks others until its lease is over here. RELEASE may always end it.
    /// Re-entry need not check: nothing is granted before the grace is over, and then nothing is suspect.
    pub(crate) fn may_revive(&self, stake: &Stake, now: Instant) -> bool {
        let suspect_until = self.suspect_until.get();
        suspect_until <= now || stake.deadline > suspect_until
    }
}
