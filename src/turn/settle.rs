//! The one place where holds end by time, waiters get in, and keys go.
//!
//! A command settles the key it works on, before its step (a callback may have marked the key)
//! and after it. Everything else comes from timers, and what they change they change through
//! `LOCK.SETTLE`, called inside the server, so that the server can refuse it like a client's write.

use std::cell::Cell;
use std::ffi::CStr;

use mortise_core::codec::Effect;
use mortise_core::{
    Decided, Instant, KeyId, Live, Lock, Observed, Owner, OwnerRef, Settled, Stake, Token, Verdict,
    Wait, WaiterId,
};

use crate::error::Error;
use crate::ffi::{Access, Arg, Context, Key, Kind, MainThread, Refusal, Value};
use crate::keys::arrivals;
use crate::keys::dirty;
use crate::keys::effect;
use crate::keys::leases;
use crate::keys::name::key_id;
use crate::keys::remains;
use crate::keys::subscription;
use crate::keys::tokens;
use crate::time::{clock, grace, last_deadline};
use crate::totals;
use crate::waiting::blocking;
use crate::waiting::due;
use crate::waiting::queue;
use crate::waiting::waiters;
use crate::waiting::walk;

/// How many waiters of a key are decided at once, and grants undone.
pub(crate) const MOST: usize = 64;

/// A key that a command works on, opened for writing.
///
/// When it is closed, however the command ends, the waiters that the step made room for are let in, and the key goes if
/// the lock is held no more: opening it may have ended the last hold.
#[derive(Debug)]
pub(crate) struct OpenLock<'c> {
    pub(crate) ctx: &'c Context<'c>,
    pub(crate) name: Arg<'c>,
    pub(crate) now: Instant,
    key: Key<'c>,
    /// More waiters may be let in than were: the next settle sees to them.
    more: bool,
}

impl<'c> OpenLock<'c> {
    /// Opens the key, and settles it if there are waiters.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it holds something else.
    pub(crate) fn open(ctx: &'c Context<'c>, name: Arg<'c>) -> Result<Self, Error> {
        let key = ctx.open(name, Access::Write);
        if key.kind() == Kind::Other {
            return Err(Error::WrongType);
        }
        let now = clock::now();
        subscription::subscribe_once(ctx);
        grace::look_for_stall(ctx, now);
        let mut lock = Self {
            ctx,
            name,
            now,
            key,
            more: false,
        };
        if lock.has_waiters() {
            let recheck_holders = lock.must_recheck_holders();
            lock.settle(recheck_holders);
        }
        Ok(lock)
    }

    /// The lock as it is now, if there is one: the holds whose lease is over are dropped, and
    /// everybody is told.
    pub(crate) fn live(&mut self) -> Option<Live<'_>> {
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let value = self.key.value()?;
        let mut live = value.lock.at(now, |owner, stake| {
            on_ended(ctx, name, now, owner, stake);
        });
        if let Some(ended) = live.take_remains() {
            let left = live.first();
            let effect = match &left {
                Some((owner, stake)) => Effect::Sole(owner.as_ref(), *stake),
                None => Effect::Free,
            };
            effect::send(ctx, name, now, &effect);
            remains::keep_ended(ctx, ctx.db(), name.bytes(), ended);
        }
        Some(live)
    }

    /// `owner` holds, by `token` or a higher one.
    pub(crate) fn adds_to_hold(&mut self, owner: OwnerRef<'_>, token: Token) -> bool {
        let live = self.live();
        live.is_some_and(|live| live.adds_to_hold(owner, token))
    }

    /// The lock as it is now, or a free one that becomes the key's if `act` leaves it held.
    pub(crate) fn with_live<T>(&mut self, act: impl FnOnce(&mut Live<'_>) -> T) -> T {
        let (ctx, name) = (self.ctx, self.name);
        if let Some(mut live) = self.live() {
            let emptied = live.is_empty();
            let outcome = act(&mut live);
            if let Some(ended) = live.take_remains() {
                remains::keep_ended(ctx, ctx.db(), name.bytes(), ended);
            }
            if emptied {
                // Replicas have dropped the key with its last hold, and its time to live with it: the next holder's
                // lease must not be cut short by what a client meant for the last one's.
                self.key.persist();
            }
            return outcome;
        }
        let mut lock = Lock::free();
        let outcome = act(&mut lock.at(self.now, |_, _| {}));
        if !lock.is_free() {
            // `close` takes it into the lease order.
            self.key.set(Value::new(lock));
        }
        outcome
    }

    /// The lock may hold owners that neither came through the queue nor by a command: it is new to
    /// its table, or a callback has marked something that no timer has looked at yet, or in vain.
    fn must_recheck_holders(&mut self) -> bool {
        let marked =
            !dirty::is_empty(self.ctx) || !walk::none(self.ctx) || !arrivals::none(self.ctx);
        let value = self.key.value();
        marked || value.is_some_and(|value| value.lease.get().is_none())
    }

    /// There are waiters here.
    pub(crate) fn has_waiters(&self) -> bool {
        // Mostly nobody waits anywhere, and then the server need not be asked what key this is.
        !queue::all(self.ctx).borrow().is_empty()
            && queue::wait_at(self.ctx, self.ctx.db(), self.name.bytes())
    }

    /// Tells everybody of the hold that `owner` has now.
    pub(crate) fn announce(&mut self, owner: OwnerRef<'_>) {
        if effect::sent_unheard(self.ctx, self.name) {
            return;
        }
        let Some(value) = self.key.value() else {
            return;
        };
        let Some(stake) = value.lock.hold(owner) else {
            return;
        };
        let alone = value.lock.len() == 1;
        announce(self.ctx, self.name, self.now, owner, stake, alone);
    }

    /// Tells everybody that `owner` holds nothing any more.
    pub(crate) fn announce_end(&mut self, owner: OwnerRef<'_>) {
        if effect::sent_unheard(self.ctx, self.name) {
            return;
        }
        let free = self.key.value().is_none_or(|value| value.lock.is_free());
        let effect = if free {
            Effect::Free
        } else {
            Effect::Drop(owner)
        };
        effect::send(self.ctx, self.name, self.now, &effect);
    }

    /// Lets in the waiters that the lock admits. `recheck_holders`: the lock may hold owners that neither came
    /// through the queue nor by a command.
    pub(crate) fn settle(&mut self, recheck_holders: bool) {
        if self.more || !self.has_waiters() {
            return;
        }
        if grace::get(self.ctx).forbids_grants(self.now) {
            self.settle_lost();
        } else {
            while !self.settle_once(recheck_holders) {}
        }
        due::arm(self.ctx);
    }

    /// False if a cycle was broken, so that others may get in.
    fn settle_once(&mut self, recheck_holders: bool) -> bool {
        let ctx = self.ctx;
        let (db, name) = (self.ctx.db(), self.name.bytes());
        let Settled {
            decided,
            upgrading,
            more,
        } = self.with_live(|live| {
            let mut tokens = tokens::clock(ctx).borrow_mut();
            let mut queues = queue::all(ctx).borrow_mut();
            queues.settle(
                db as u32,
                name,
                live,
                &mut tokens,
                clock::wall(),
                recheck_holders,
                MOST,
            )
        });
        let mut granted = false;
        let key = self.key_id();
        for decided in &decided {
            granted |= self.carry_out(decided);
            waiters::decide(ctx, &key, decided, self.now);
        }
        if granted && self.key.persist() {
            self.ctx.replicate_plain(c"PERSIST", self.name);
        }
        let mut settled = true;
        for id in upgrading {
            settled &= self.check_upgrade(id);
        }
        self.go_on_later(more);
        settled || more
    }

    fn key_id(&self) -> KeyId {
        key_id(self.ctx.db(), self.name.bytes())
    }

    /// Waiters that this settle has not come to are let in by the next.
    fn go_on_later(&mut self, more: bool) {
        self.more = more;
        if more {
            dirty::mark_queue(self.ctx, self.ctx.db(), self.name.bytes());
        }
    }

    /// While nothing is granted: an upgrade whose read hold has ended is answered all the same.
    fn settle_lost(&mut self) {
        let ctx = self.ctx;
        let (db, name) = (self.ctx.db(), self.name.bytes());
        let settled = self.with_live(|live| {
            let mut queues = queue::all(ctx).borrow_mut();
            queues.settle_lost(db as u32, name, live, MOST)
        });
        let key = self.key_id();
        for decided in &settled.decided {
            waiters::decide(ctx, &key, decided, self.now);
        }
        self.go_on_later(settled.more);
    }

    /// Tells everybody but the waiter of a decision. True if it was a grant.
    fn carry_out(&mut self, decided: &Decided) -> bool {
        let ctx = self.ctx;
        let Verdict::Granted {
            grant,
            stake,
            alone,
            ..
        } = decided.verdict
        else {
            return false;
        };
        let owner = decided.waiter.owner.as_ref();
        announce(self.ctx, self.name, self.now, owner, stake, alone);
        self.ctx.notify(c"lock.acquire", self.name);
        totals::get(ctx).count_grant(grant);
        totals::get(ctx).handoffs.add_one();
        let waited = self.now.millis_since(decided.waiter.since);
        totals::wait_times(ctx).borrow_mut().record(waited);
        true
    }

    /// A waiter has become an upgrade, which may have closed a cycle. False if it had.
    fn check_upgrade(&mut self, id: WaiterId) -> bool {
        let ctx = self.ctx;
        let wait = {
            let queues = queue::all(ctx).borrow();
            let Some((key, waiter)) = queues.waiter(id) else {
                return true;
            };
            Wait {
                key: key.clone(),
                owner: waiter.owner.clone(),
                mode: waiter.mode,
                upgrade: true,
            }
        };
        let held = self.key.value();
        let held = held.map_or(Observed::Free, |value| value.lock.observe());
        let cycle = queue::all(ctx).borrow().find_cycle(&wait, &held, self.now);
        match cycle {
            None => true,
            Some(cycle) => {
                let viewer = waiters::viewer(ctx, id);
                waiters::refuse(ctx, id, blocking::deadlock(ctx, &cycle, &viewer));
                false
            }
        }
    }
}

impl Drop for OpenLock<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.settle(false);
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let Some(value) = self.key.value() else {
            return;
        };
        if value.lock.is_free() {
            self.key.delete();
        } else {
            leases::follow(ctx, ctx.db(), name.bytes(), value, now);
        }
    }
}

fn announce(
    ctx: &Context<'_>,
    name: Arg<'_>,
    now: Instant,
    owner: OwnerRef<'_>,
    stake: Stake,
    alone: bool,
) {
    let effect = if alone {
        Effect::Sole(owner, stake)
    } else {
        Effect::Put(owner, stake)
    };
    last_deadline::note(ctx, stake.deadline);
    effect::send(ctx, name, now, &effect);
}

fn on_ended(ctx: &Context<'_>, name: Arg<'_>, now: Instant, owner: &Owner, stake: &Stake) {
    remains::count_ended(ctx, stake);
    effect::send(ctx, name, now, &Effect::Drop(owner.as_ref()));
    ctx.notify(c"lock.expire", name);
}

/// A SETTLE that runs now is the module's own, and rechecks holders (see `DirtyKey`) or not; `None` if it is not.
static SETTLING: MainThread<Cell<Option<bool>>> = MainThread::new(Cell::new(None));

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// Settles a key from a timer, if the server accepts writes to it.
///
/// # Errors
/// [`Refusal`] if it does not.
pub(crate) fn call(
    ctx: &Context<'_>,
    db: i32,
    name: &[u8],
    recheck_holders: bool,
) -> Result<(), Refusal> {
    ctx.select(db);
    SETTLING.get(ctx).set(Some(recheck_holders));
    let outcome = ctx.call_write(SETTLE, name);
    SETTLING.get(ctx).set(None);
    outcome
}

/// The SETTLE that runs now was called by [`call`], and this is whether it rechecks holders; `None` for a client's.
pub(crate) fn called_with(ctx: &Context<'_>) -> Option<bool> {
    SETTLING.get(ctx).get()
}
