//! The one place where holds end by time and keys go with them, and where the lease order is kept
//! in step with the locks.
//!
//! A command settles the key it works on. Everything else comes from two timers: one that looks
//! every 100 ms for leases that are over, in slices of a millisecond, and one that looks at the
//! keys that callbacks have marked. What they change they change through `LOCK.SETTLE`, called
//! inside the server, so that the server itself can refuse it as it would refuse a client's write.

use std::ffi::CStr;

use mortise_core::codec::Effect;
use mortise_core::{Instant, Live, Owner, OwnerRef};

use crate::clock;
use crate::effect;
use crate::error::Error;
use crate::ffi::{Access, Alarm, Arg, Args, Command, Context, Key, Kind};
use crate::state::{STATE, State};
use crate::value::Value;

/// How often leases are looked at, in milliseconds.
const SWEEP_EVERY: u64 = 100;
/// How long a slice of work may take before other clients get their turn, in microseconds.
const SLICE: u64 = 1_000;
/// The pause between two slices, in milliseconds.
const BETWEEN_SLICES: u64 = 1;
/// How often the clock is looked at within a slice: once every so many keys.
const KEYS_PER_LOOK: usize = 16;

/// A key that a command works on, opened for writing.
#[derive(Debug)]
pub(crate) struct Place<'c> {
    pub(crate) ctx: &'c Context<'c>,
    pub(crate) name: Arg<'c>,
    pub(crate) now: Instant,
    key: Key<'c>,
}

impl<'c> Place<'c> {
    /// Opens the key.
    ///
    /// # Errors
    /// [`Error::WrongType`] if it holds something else.
    pub(crate) fn open(ctx: &'c Context<'c>, name: Arg<'c>) -> Result<Self, Error> {
        let key = ctx.open(name, Access::Write);
        match key.kind() {
            Kind::Other => Err(Error::WrongType),
            Kind::Empty | Kind::Lock => Ok(Self {
                ctx,
                name,
                now: clock::now(),
                key,
            }),
        }
    }

    /// The lock as it is now, if there is one: the holds whose lease is over are dropped, and
    /// everybody is told.
    pub(crate) fn live(&mut self) -> Option<Live<'_>> {
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let value = self.key.value()?;
        Some(
            value
                .lock
                .at(now, |owner, _| on_ended(ctx, name, now, owner)),
        )
    }

    /// Puts a lock where there was none.
    pub(crate) fn create(&mut self, value: Value) {
        order(self.ctx.db(), self.name.bytes(), &value, self.now);
        self.key.set(value);
    }

    /// Tells everybody of the hold that `owner` has now.
    pub(crate) fn announce(&mut self, owner: OwnerRef<'_>) {
        let Some(value) = self.key.value() else {
            return;
        };
        let Some(stake) = value.lock.hold(owner) else {
            return;
        };
        let alone = value.lock.len() == 1;
        let effect = if alone {
            Effect::Sole(owner, stake)
        } else {
            Effect::Put(owner, stake)
        };
        effect::send(self.ctx, self.name, self.now, &effect);
    }

    /// After a step: the key goes if nobody holds any more, else the lease order follows.
    pub(crate) fn close(mut self) {
        let (ctx, name, now) = (self.ctx, self.name, self.now);
        let Some(value) = self.key.value() else {
            return;
        };
        if value.lock.is_free() {
            self.key.delete();
        } else {
            order(ctx.db(), name.bytes(), value, now);
        }
    }

    /// Nobody holds the lock any more, so that [`Self::close`] will delete the key.
    pub(crate) fn is_free(&mut self) -> bool {
        self.key.value().is_none_or(|value| value.lock.is_free())
    }
}

fn on_ended(ctx: &Context<'_>, name: Arg<'_>, now: Instant, owner: &Owner) {
    STATE.with(|state| state.totals.expiries.add_one());
    effect::send(ctx, name, now, &Effect::Drop(owner.as_ref()));
    ctx.notify(c"lock.expire", name);
}

/// Brings the lease order in step with a lock that somebody holds.
pub(crate) fn order(db: i32, name: &[u8], value: &Value, now: Instant) {
    let Some(deadline) = value.lock.next_deadline() else {
        return;
    };
    STATE.with(|state| {
        state.leases_of(db, |leases| match value.lease.get() {
            Some(id) => leases.reschedule(id, deadline),
            None => value
                .lease
                .set(Some(leases.insert(now, deadline, name.into()))),
        });
    });
}

/// The key lost its lock, or the lock its key (RENAME, MOVE). Only takes it out of the order.
pub(crate) fn unlinked(db: i32, name: &[u8], value: &Value) {
    let Some(id) = value.lease.take() else { return };
    STATE.with(|state| {
        state.leases_of(db, |leases| {
            if leases.get(id).is_some_and(|entry| **entry == *name) {
                leases.remove(id);
            }
        });
    });
}

/// A lock came to a key other than by a command of ours. Looked at by a timer.
pub(crate) fn mark(db: i32, name: &[u8]) {
    STATE.with(|state| {
        state.marks.borrow_mut().push_back((db, name.into()));
        Context::with_detached(|ctx| {
            if !ctx.is_loading() {
                arm_marks(ctx, state);
            }
        });
    });
}

/// Sees to it that the marks are looked at before the event loop turns.
pub(crate) fn arm_marks(ctx: &Context<'_>, state: &State) {
    if !state.marks_timer.replace(true) {
        ctx.start_timer(0, Alarm::Marks);
    }
}

pub(crate) fn on_marks_timer(ctx: &Context<'_>) {
    STATE.with(|state| {
        state.marks_timer.set(false);
        if state.token_clock_due.get() && !ctx.avoid_replication_traffic() {
            state.token_clock_due.set(false);
            if state.primary.get() {
                effect::send_token_clock(ctx);
            }
        }
        let began = clock::wall();
        for done in 0.. {
            let Some((db, name)) = state.marks.borrow_mut().pop_front() else {
                break;
            };
            enter(ctx, db, &name);
            if done % KEYS_PER_LOOK == 0 && slice_is_over(began) {
                break;
            }
        }
        if !state.marks.borrow().is_empty() || state.token_clock_due.get() {
            state.marks_timer.set(true);
            ctx.start_timer(BETWEEN_SLICES, Alarm::Marks);
        }
    });
}

/// Takes a lock that came by COPY, RESTORE or a load into the lease order.
fn enter(ctx: &Context<'_>, db: i32, name: &[u8]) {
    ctx.select(db);
    let now = clock::now();
    let mut key = ctx.open_named(name, Access::Read);
    if let Some(value) = key.value() {
        order(db, name, value, now);
    }
}

pub(crate) fn start_sweeping(ctx: &Context<'_>, state: &State) {
    state
        .sweep_timer
        .set(Some(ctx.start_timer(SWEEP_EVERY, Alarm::Sweep)));
}

/// From the cron: a wall clock that stepped back has put the sweep timer off, so start another.
pub(crate) fn back_up_sweeping(ctx: &Context<'_>, state: &State, now: Instant) {
    if now.millis_since(state.swept.get()) > 2 * SWEEP_EVERY {
        if let Some(timer) = state.sweep_timer.take() {
            ctx.stop_timer(timer);
        }
        state
            .sweep_timer
            .set(Some(ctx.start_timer(0, Alarm::Sweep)));
    }
}

pub(crate) fn on_sweep_timer(ctx: &Context<'_>) {
    STATE.with(|state| {
        let now = clock::now();
        state.swept.set(now);
        let more =
            state.primary.get() && !ctx.avoid_replication_traffic() && sweep(ctx, state, now);
        let pause = if more { BETWEEN_SLICES } else { SWEEP_EVERY };
        state
            .sweep_timer
            .set(Some(ctx.start_timer(pause, Alarm::Sweep)));
    });
}

/// One slice of work on the leases that are over. True if there is more to do at once.
fn sweep(ctx: &Context<'_>, state: &State, now: Instant) -> bool {
    let began = clock::wall();
    let databases = state.leases.borrow().len();
    let mut name = Vec::new();
    let mut done = 0_usize;
    for db in (0..databases).filter_map(|db| i32::try_from(db).ok()) {
        ctx.select(db);
        loop {
            let due = state.leases_of(db, |leases| {
                leases.due(now).map(|(id, due)| {
                    name.clear();
                    name.extend_from_slice(due);
                    id
                })
            });
            let Some(id) = due else { break };
            state.settling.set(true);
            let refused = ctx.call_write(SETTLE, &name).is_err();
            state.settling.set(false);
            if refused {
                return false;
            }
            state.leases_of(db, |leases| {
                // Settled, so it is gone or has a later deadline, unless the key holds it no more.
                if leases.due(now).is_some_and(|(next, _)| next == id) {
                    leases.remove(id);
                }
            });
            done += 1;
            if done % KEYS_PER_LOOK == 0 && slice_is_over(began) {
                return true;
            }
        }
    }
    false
}

fn slice_is_over(began: mortise_core::Micros) -> bool {
    // A wall clock that steps back ends the slice, too.
    clock::wall().0.abs_diff(began.0) > SLICE
}

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// `LOCK.SETTLE key`, internal: drops the holds whose lease is over.
pub(crate) struct Settle;

impl Command for Settle {
    const NAME: &'static str = "LOCK.SETTLE";
    const MIN_ARGS: usize = 2;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        if !STATE.with(|state| state.settling.get()) {
            return Err(Error::Internal(Self::NAME));
        }
        if let Some(name) = args.get(1) {
            // A key that holds something else by now has no lock to settle.
            if let Ok(mut place) = Place::open(ctx, name) {
                place.live();
                place.close();
            }
        }
        ctx.reply_null();
        Ok(())
    }
}
