//! How old the data is that enough replicas have acknowledged, on a primary whose successor
//! would begin with a grace.
//!
//! The server's own gate, `min-replicas-to-write` with `min-replicas-max-lag`, goes by when an
//! acknowledgement *arrived*, whatever it acknowledges and however long it took. If the stream or
//! acknowledgements are late, a primary that has been cut off seems to have its replicas, and goes
//! on granting beside its successor. So the primary sends heartbeats into the stream and records
//! when it sent each, by its own boot-time clock:
//!
//! ```text
//!  primary  ──heartbeat, sent at s, ends at offset o──▶ replica
//!           ◀──acknowledged up to o or beyond──────────
//!           grants and renews up to s + the lag + 2.5 s
//! ```
//!
//! A replica that has been promoted acknowledges no later heartbeat, so from its promotion on the primary grants for no
//! longer than that, whatever the network delays or for how long. As many replicas have to acknowledge as `min-replicas-to-write` says; if
//! that is 0, none.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use mortise_core::Instant;
use mortise_core::codec::Heartbeat;

use crate::ffi::{Context, Replica};
use crate::time::lag::{self, Hidden, Lag};

/// How much older than the lag a heartbeat may be, in milliseconds: less than [`lag::MARGIN`], which a promoted server
/// waits for, and enough for replicas that acknowledge once a second.
const SLACK: u64 = 2_500;
/// Heartbeats are sent so often, in milliseconds: three in a lag.
const EVERY: std::ops::RangeInclusive<u64> = 500..=3_000;
/// How many that not all replicas have acknowledged are remembered.
const REMEMBERED: usize = 256;
/// How often the server is asked for its settings, in milliseconds.
const READ_EVERY: u64 = 1_000;
/// While replicas are late: for how long at least nothing is granted or renewed, in milliseconds,
/// until the next check.
pub(crate) const NEXT_CHECK: u64 = 100;

/// How many replicas have to acknowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Quorum {
    #[default]
    None,
    Number(u64),
    /// Every attached one, and at least one: the server hides the number.
    All,
}

impl Quorum {
    fn read(ctx: &Context<'_>) -> Self {
        // The server shows this while it wants replicas at all.
        if ctx.server_info(c"replication", [c"min_slaves_good_slaves"]) == [None] {
            return Self::None;
        }
        match ctx.setting(c"min-replicas-to-write") {
            Some(number) => Self::Number(number),
            None => {
                lag::note_hidden(ctx, Hidden::MinReplicasToWrite);
                Self::All
            }
        }
    }

    /// How many replicas have to acknowledge while so many are attached.
    fn of(self, attached: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Number(number) => usize::try_from(number).unwrap_or(usize::MAX),
            Self::All => attached.max(1),
        }
    }
}

/// What the settings ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    replicas: Quorum,
    /// How long an old primary may take to stop, in milliseconds.
    lag: u64,
}

impl Demand {
    fn read(ctx: &Context<'_>) -> Self {
        Self {
            replicas: Quorum::read(ctx),
            lag: Lag::read(ctx).least,
        }
    }

    /// For how many milliseconds after it was sent an acknowledged heartbeat lets the server grant.
    fn lasts(self) -> u64 {
        self.lag + SLACK
    }

    fn send_every(self) -> u64 {
        (self.lag / 3).clamp(*EVERY.start(), *EVERY.end())
    }
}

/// A heartbeat in the stream.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// A replica that has the stream up to here has the heartbeat.
    offset: u64,
}

/// The heartbeats of this server, and their acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    /// In the order of the stream.
    sent: RefCell<VecDeque<Sent>>,
    /// Sent at the last check; only the next check shows its offset in the stream.
    unplaced: Cell<Option<Instant>>,
    last_sent: Cell<Instant>,
    /// A new replica gets one at once.
    urgent: Cell<bool>,
    demand: Cell<Demand>,
    read: Cell<Instant>,
    /// The server was asked since its start or promotion.
    has_checked: Cell<bool>,
    /// Nothing may be granted or renewed from here on; `None` where nothing is demanded.
    fresh_until: Cell<Option<Instant>>,
    /// The server counts as many replicas as are demanded.
    enough_replicas: Cell<bool>,
    /// The log says that replicas are late.
    warned: Cell<bool>,
}

impl Heartbeats {
    /// The server has started. `grace`: the one that would follow a promotion, here as in [`Self::check`].
    pub(crate) fn on_start(&self, grace: u64) {
        // An operator who configures a grace later knows the servers then.
        self.has_checked.set(grace == 0);
    }

    /// The server has become the primary: what it knew of replicas is outdated.
    pub(crate) fn on_promotion(&self) {
        self.stop();
        self.has_checked.set(false);
        self.urgent.set(true);
    }

    /// A replica may be about to get a full sync, or the AOF may begin anew: sends the next heartbeat soon, which shows how late they are.
    pub(crate) fn on_fork(&self) {
        self.urgent.set(true);
    }

    /// A setting has changed.
    pub(crate) fn on_settings(&self) {
        self.read.set(Instant::default());
    }

    fn stop(&self) {
        self.sent.borrow_mut().clear();
        self.unplaced.set(None);
        self.demand.take();
        self.read.take();
        self.fresh_until.set(None);
        self.enough_replicas.set(false);
    }

    /// Whether too few replicas have acknowledged data that is young enough: one of them may have been promoted.
    pub(crate) fn are_late(&self, now: Instant) -> bool {
        self.fresh_until.get().is_some_and(|until| until <= now)
    }

    /// Whether replicas are late though the server itself counts enough of them.
    pub(crate) fn alone_forbid(&self, now: Instant) -> bool {
        self.enough_replicas.get() && self.are_late(now)
    }

    /// Asks the server, a primary, what its replicas have acknowledged, and sends them a heartbeat if it is time for one. Returns whether
    /// replicas were late and no longer are: waiters may be granted. `suspect_ms`: see [`Heartbeat`]. `send` sends a heartbeat, and to the
    /// AOF, too, if its second argument says so: after a restart the AOF shows what is still suspect.
    pub(crate) fn check(
        &self,
        ctx: &Context<'_>,
        grace: u64,
        suspect_ms: u64,
        now: Instant,
        send: impl FnOnce(Heartbeat, bool),
    ) -> bool {
        let is_first = !self.has_checked.replace(true);
        let were_late = self.are_late(now);
        if grace == 0 {
            self.stop();
            return were_late;
        }
        self.read_settings(ctx, is_first, now);
        self.check_replicas(ctx, suspect_ms, now, send);
        let alone_forbid = self.alone_forbid(now);
        let warned = self.warned.replace(alone_forbid);
        if warned && !alone_forbid {
            ctx.notice("replicas are no longer late");
        } else if !warned && alone_forbid {
            ctx.warn(
                "replicas are late: nothing is granted or renewed until min-replicas-to-write of them have acknowledged \
                 recent data. Check their links, disks and load, and INFO replication",
            );
        }
        were_late && !self.are_late(now)
    }

    fn read_settings(&self, ctx: &Context<'_>, is_first: bool, now: Instant) {
        if !is_first && now.millis_since(self.read.get()) < READ_EVERY {
            return;
        }
        self.read.set(now);
        let demand = Demand::read(ctx);
        if self.demand.replace(demand) == demand && !is_first {
            return;
        }
        if demand.replicas == Quorum::None {
            self.fresh_until.set(None);
            return;
        }
        // An operator who changes a setting knows the servers at that moment. A server that starts, or is promoted, knows nothing.
        let from_now = if is_first {
            Instant::default()
        } else {
            now.after(demand.lasts())
        };
        self.extend(from_now);
    }

    fn extend(&self, until: Instant) {
        let known = self.fresh_until.get().unwrap_or_default();
        self.fresh_until.set(Some(known.max(until)));
    }

    /// Takes acknowledgements in, and sends the next heartbeat if it is time for it.
    fn check_replicas(
        &self,
        ctx: &Context<'_>,
        suspect_ms: u64,
        now: Instant,
        send: impl FnOnce(Heartbeat, bool),
    ) {
        let demand = self.demand.get();
        let stream = ctx.replication();
        let mut sent = self.sent.borrow_mut();
        if let Some(at) = self.unplaced.take() {
            sent.push_back(Sent {
                at,
                offset: stream.offset,
            });
        }
        let acknowledged = |replica: &Replica| {
            let has = |sent: &&Sent| replica.online && sent.offset <= replica.acknowledged;
            sent.iter().rev().find(has).map(|sent| sent.at)
        };
        let mut newest: Vec<_> = stream.replicas.iter().map(acknowledged).collect();
        let online = stream.replicas.iter().filter(|replica| replica.online);
        let enough = demand.replicas.of(online.count());
        // The youngest first, and a replica that has acknowledged none last.
        newest.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = newest.last().copied().flatten();
        self.enough_replicas.set(stream.good >= enough as u64);
        if let Some(place) = enough.checked_sub(1)
            && let Some(Some(at)) = newest.get(place)
        {
            self.extend(at.after(demand.lasts()));
        }
        let forgotten = sent.partition_point(|sent| Some(sent.at) < oldest);
        let too_many = sent.len().saturating_sub(REMEMBERED);
        sent.drain(..forgotten.max(too_many));
        let urgent = self.urgent.get();
        let time = now.millis_since(self.last_sent.get()) >= demand.send_every();
        let wanted = urgent || (time && !newest.is_empty());
        if !wanted || ctx.avoid_replication_traffic() {
            return;
        }
        self.urgent.set(false);
        self.last_sent.set(now);
        self.unplaced.set(Some(now));
        let heartbeat = Heartbeat {
            suspect_ms,
            acknowledged_ms: oldest.map(|at| now.millis_since(at)),
        };
        drop(sent);
        send(heartbeat, urgent && suspect_ms > 0);
    }
}
