//! When the module acts by itself. Three timers, and the cron behind them.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late.
//! Every callback re-checks on the boot-time clock, and the cron event starts them anew where they
//! are late.

use mortise_core::{Instant, Micros};

use crate::ffi::{Alarm, Context, Refusal};
use crate::keys::effect;
use crate::keys::evictions;
use crate::keys::leases;
use crate::state::{STATE, State};
use crate::time::clock;
use crate::time::grace;
use crate::turn::dirty;
use crate::turn::events;
use crate::turn::settle;
use crate::waiting::{mail, waiters};

/// How often leases are looked at, in milliseconds.
const SWEEP_EVERY: u64 = 100;
/// How often a server that refused a hand-off is asked again, in milliseconds.
const PROBE_EVERY: u64 = 50;
/// How long a slice of work may take before other clients get their turn, in microseconds.
const SLICE: u64 = 1_000;
/// The pause between two slices, in milliseconds.
const BETWEEN_SLICES: u64 = 1;
/// How often the clock is looked at within a slice: once every so many keys.
const KEYS_PER_LOOK: usize = 16;
/// How late a timer may be before the cron starts it anew, in milliseconds.
const LATE: u64 = 20;
/// When a key in a slot that is somebody else's is looked at again, in milliseconds.
const PUT_OFF: u64 = 1_000;

/// A stretch of work that ends before others notice.
struct Slice {
    began: Micros,
    done: usize,
}

impl Slice {
    fn begin() -> Self {
        Self {
            began: clock::wall(),
            done: 0,
        }
    }

    /// One more piece is done. True if the slice is over.
    fn is_over(&mut self) -> bool {
        self.done += 1;
        // A wall clock that steps, in either direction, ends the slice, too.
        self.done.is_multiple_of(KEYS_PER_LOOK) && clock::wall().0.abs_diff(self.began.0) > SLICE
    }
}

/// Sees to it that marks and decided waiters are looked at before the event loop turns.
pub(crate) fn at_end_of_turn(state: &State) {
    if !state.end_of_turn_armed.replace(true) {
        Context::with_detached(|ctx| {
            ctx.start_timer(0, Alarm::EndOfTurn);
        });
    }
}

pub(crate) fn on_end_of_turn(ctx: &Context<'_>) {
    STATE.with(|state| turn(ctx, state));
}

/// The event loop turns.
fn turn(ctx: &Context<'_>, state: &State) {
    state.end_of_turn_armed.set(false);
    if state.policy_unknown.take() {
        evictions::look_at_policy(ctx, state);
    }
    evictions::forget_unlinked(state);
    work_off(ctx, state);
}

/// What has been marked, decided or owed since the last time.
fn work_off(ctx: &Context<'_>, state: &State) {
    if state.token_clock_due.get() && !ctx.avoid_replication_traffic() {
        state.token_clock_due.set(false);
        effect::send_token_clock(ctx);
    }
    if state.loaded.replace(false) {
        state
            .retells_synced
            .set(effect::aof_begins_with_sync(ctx, state));
    }
    let mut slice = Slice::begin();
    let mut boxes_leave = mail::let_one_leave(state);
    while boxes_leave && !slice.is_over() {
        boxes_leave = mail::let_one_leave(state);
    }
    while dirty::look_at_next(ctx, state) && !slice.is_over() {}
    // Waiters that a mark decided are woken now: another timer would come a millisecond later.
    while waiters::wake_next(state) && !slice.is_over() {}
    arm_due(ctx, state);
    let more = state.token_clock_due.get() && !ctx.avoid_replication_traffic()
        || !state.dirty.borrow().is_empty()
        || boxes_leave
        || waiters::some_to_wake(state);
    if more && !state.end_of_turn_armed.replace(true) {
        ctx.start_timer(BETWEEN_SLICES, Alarm::EndOfTurn);
    }
}

/// Starts the timer for what is due next, if it is not under way.
pub(crate) fn arm_due(ctx: &Context<'_>, state: &State) {
    let Some(next) = waiters::next_due(state) else {
        return;
    };
    if let Some((at, timer)) = state.due_timer.get() {
        if at <= next {
            return;
        }
        ctx.stop_timer(timer);
    }
    let ms = next.millis_since(clock::now());
    state
        .due_timer
        .set(Some((next, ctx.start_timer(ms, Alarm::Due))));
}

pub(crate) fn on_due(ctx: &Context<'_>) {
    STATE.with(|state| {
        state.due_timer.set(None);
        let now = clock::now();
        let mut slice = Slice::begin();
        while waiters::time_one_out(state, now) {
            if slice.is_over() {
                break;
            }
        }
        while mail::time_one_out(state, now) && !slice.is_over() {}
        waiters::mark_due(state, now);
        work_off(ctx, state);
    });
}

pub(crate) fn start(ctx: &Context<'_>, state: &State) {
    let timer = ctx.start_timer(SWEEP_EVERY, Alarm::Sweep);
    state.sweep_timer.set(Some(timer));
}

/// From the cron: a wall clock that stepped back has put the timers off, so start others.
pub(crate) fn back_up(ctx: &Context<'_>, state: &State, now: Instant) {
    if now.millis_since(state.grace.ticked()) > SWEEP_EVERY + LATE {
        if let Some(timer) = state.sweep_timer.take() {
            ctx.stop_timer(timer);
        }
        state
            .sweep_timer
            .set(Some(ctx.start_timer(0, Alarm::Sweep)));
    }
    if let Some((at, timer)) = state.due_timer.get()
        && now.millis_since(at) > LATE
    {
        ctx.stop_timer(timer);
        state
            .due_timer
            .set(Some((at, ctx.start_timer(0, Alarm::Due))));
    }
}

pub(crate) fn on_sweep(ctx: &Context<'_>) {
    STATE.with(|state| {
        let now = clock::now();
        grace::look_for_stall(ctx, state, now);
        state.grace.on_tick(now);
        events::warn_of_short_grace(ctx, state);
        // A timer that was to come at once waits for the wall clock if that has stepped back meanwhile.
        if state.end_of_turn_armed.get() {
            turn(ctx, state);
        }
        // Put off by a pause.
        if state.token_clock_due.get() && !ctx.avoid_replication_traffic() {
            at_end_of_turn(state);
        }
        mail::on_tick(state, now, ctx.avoid_replication_traffic());
        dirty::try_held_back(ctx, state);
        let mut more = false;
        if state.primary.get() {
            look_at_replicas(ctx, state, now);
            if ctx.is_cluster() || state.grace.forbids_grants(now) {
                // A slot may have left, or a key of another type come where nobody held: only asking the server tells.
                dirty::mark_queues(state, None);
            }
            more = !ctx.avoid_replication_traffic() && sweep(ctx, state, now);
        }
        let pause = match more {
            true => BETWEEN_SLICES,
            false if state.held_back.borrow().is_empty() => SWEEP_EVERY,
            false => PROBE_EVERY,
        };
        state
            .sweep_timer
            .set(Some(ctx.start_timer(pause, Alarm::Sweep)));
    });
}

/// Have enough replicas acknowledged recent data?
fn look_at_replicas(ctx: &Context<'_>, state: &State, now: Instant) {
    let (grace, suspect) = (state.grace_ms.get(), state.lateness.suspect_ms(now));
    let found = state.grace.heartbeats.look(ctx, grace, suspect, now);
    if let Some(heartbeat) = found.due {
        effect::send_heartbeat(ctx, heartbeat);
    }
    if found.caught_up {
        dirty::mark_queues(state, None);
    }
}

/// One slice of work on the leases that are over. True if there is more to do at once.
fn sweep(ctx: &Context<'_>, state: &State, now: Instant) -> bool {
    let databases = state.leases.borrow().len();
    let mut slice = Slice::begin();
    let mut name = Vec::new();
    for db in (0..databases).filter_map(|db| i32::try_from(db).ok()) {
        while let Some(id) = leases::with_table(state, db, |table| table.due(now, &mut name)) {
            match settle::call(ctx, db, &name, false) {
                Err(Refusal::Gate) => return false,
                Err(Refusal::SlotElsewhere) => {
                    leases::with_table(state, db, |table| table.put_off(id, now, PUT_OFF));
                }
                // Settled, so it is gone or has a later deadline, unless no key belongs to it.
                Ok(()) => leases::with_table(state, db, |table| {
                    if table.due(now, &mut name) == Some(id) {
                        table.drop_stale(id);
                    }
                }),
            }
            if slice.is_over() {
                return true;
            }
        }
    }
    false
}
