//! When the module acts by itself. Four timers, and the cron behind them.
//!
//! What is urgent comes first: a hand-off never stands in one line behind a look that has no hurry.
//! Both go in slices, and what has no hurry has a timer of its own, so that what is urgent need not
//! wait for the pause between two of its slices.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late.
//! Every callback re-checks on the boot-time clock, and the cron event starts them anew where they
//! are late.

use mortise_core::{Instant, LeaseId};

use crate::ffi::{Alarm, Context, Refusal};
use crate::keys::effect;
use crate::keys::evictions;
use crate::keys::leases;
use crate::keys::remains;
use crate::state::{STATE, State};
use crate::time::clock;
use crate::time::grace;
use crate::turn::arrivals;
use crate::turn::dirty;
use crate::turn::dismissals;
use crate::turn::events;
use crate::turn::relook::{self, Scope};
use crate::turn::settle;
use crate::turn::slice::{Slice, measured};
use crate::turn::slots;
use crate::waiting::{mail, undelivered, waiters};

/// How often leases are looked at, in milliseconds.
const SWEEP_EVERY: u64 = 100;
/// How often a server that refused a hand-off is asked again, in milliseconds.
const PROBE_EVERY: u64 = 50;
/// The pause between two slices, in milliseconds.
const BETWEEN_SLICES: u64 = 1;
/// How often is looked at what nobody tells of, at most, in milliseconds: with each sweep, but for those between slices.
const LOOK_AROUND_EVERY: u64 = 90;
/// How late a timer may be before the cron starts it anew, in milliseconds.
const LATE: u64 = 20;
/// After so many sweeps in which no waiter was told of a grant, clients are not watched any more.
const WATCHED_TICKS: u64 = 100;
/// When a key in a slot that is somebody else's is looked at again, in milliseconds.
const PUT_OFF: u64 = 1_000;

/// Sees to it that marks and decided waiters are looked at before the event loop turns.
pub(crate) fn at_end_of_turn(state: &State) {
    if !state.end_of_turn_armed.replace(true) {
        Context::with_detached(|ctx| {
            ctx.start_timer(0, Alarm::EndOfTurn);
        });
    }
}

pub(crate) fn on_end_of_turn(ctx: &Context<'_>) {
    STATE.with(|state| {
        // A hand-off by a command leaves a client to be woken, which is not worth a look at the clock.
        if state.dirty.borrow().is_empty() && !background_is_due(ctx, state) {
            turn(ctx, state);
        } else {
            measured(state, || turn(ctx, state));
        }
    });
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
    let now = clock::now();
    waiters::look_for_end_of_grace(state, now);
    let mut slice = Slice::begin();
    while urgent_step(ctx, state, now) || background_step(ctx, state) {
        if slice.is_over() {
            break;
        }
    }
    arm_due(ctx, state);
    let more = state.token_clock_due.get() && !ctx.avoid_replication_traffic()
        || state.dirty.borrow().any_now()
        || waiters::some_to_wake(state);
    if more && !state.end_of_turn_armed.replace(true) {
        ctx.start_timer(BETWEEN_SLICES, Alarm::EndOfTurn);
    }
    arm_background(ctx, state);
}

/// Somebody is let go, or may be let in. False if there is nobody.
fn urgent_step(ctx: &Context<'_>, state: &State, now: Instant) -> bool {
    // Whoever was decided is woken now: another timer would come a millisecond later.
    waiters::wake_next(state)
        || waiters::time_one_out(state, now)
        || mail::time_one_out(state, now)
        || dirty::look_at_next(ctx, state)
        || dirty::look_at_due(ctx, state, now)
}

/// One step of what has no hurry. False if there is nothing to do now.
fn background_step(ctx: &Context<'_>, state: &State) -> bool {
    mail::close_one_overdue(state)
        || mail::let_one_leave(state)
        || dismissals::step(state)
        || relook::step(ctx, state)
        || arrivals::look_at_next(ctx, state)
        || drop_of_a_crowd(ctx, state)
        || remains::step(ctx, state)
}

/// Drops a few of the holds whose lease is over at one lock. False if there is none.
fn drop_of_a_crowd(ctx: &Context<'_>, state: &State) -> bool {
    if dirty::is_blocked(ctx, state) {
        return false;
    }
    let Some((db, name)) = state.crowded.borrow_mut().pop_first() else {
        return false;
    };
    // It comes again by itself while there are more. A slot that has left takes its locks along.
    if state.primary.get() && settle::call(ctx, db, &name, false) == Err(Refusal::Gate) {
        state.crowded.borrow_mut().insert((db, name));
        return false;
    }
    true
}

/// There is something to do that has no hurry, though perhaps not now.
fn background_is_due(ctx: &Context<'_>, state: &State) -> bool {
    state.post.boxes_leave()
        || !state.dismissals.borrow().is_empty()
        || !state.walks.borrow().is_empty()
        || arrivals::are_due(ctx, state)
        || !state.crowded.borrow().is_empty()
        || !state.crowds.borrow().is_empty()
}

fn arm_background(ctx: &Context<'_>, state: &State) {
    // While writes are refused the sweep tries again.
    let now = background_is_due(ctx, state) && !dirty::is_blocked(ctx, state);
    if now && !state.background_armed.replace(true) {
        ctx.start_timer(BETWEEN_SLICES, Alarm::Background);
    }
}

pub(crate) fn on_background(ctx: &Context<'_>) {
    STATE.with(|state| {
        state.background_armed.set(false);
        measured(state, || work_off(ctx, state));
    });
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
        measured(state, || work_off(ctx, state));
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
    STATE.with(|state| measured(state, || tick(ctx, state)));
}

fn tick(ctx: &Context<'_>, state: &State) {
    let now = clock::now();
    grace::look_for_stall(ctx, state, now);
    state.grace.on_tick(now);
    events::warn_of_short_grace(ctx, state);
    // A timer that was to come at once waits for the wall clock if that has stepped back meanwhile.
    if state.end_of_turn_armed.get() || state.background_armed.get() {
        turn(ctx, state);
    }
    // Put off by a pause.
    if state.token_clock_due.get() && !ctx.avoid_replication_traffic() {
        at_end_of_turn(state);
    }
    mail::on_tick(state, now, ctx.avoid_replication_traffic());
    dirty::try_held_back(ctx, state);
    if background_is_due(ctx, state) {
        at_end_of_turn(state);
    }
    let mut more = false;
    if state.primary.get() {
        look_at_replicas(ctx, state, now);
        // More often than that, it is the leases that the timer comes for.
        if now.millis_since(state.looked_around.get()) >= LOOK_AROUND_EVERY {
            state.looked_around.set(now);
            look_around(ctx, state, now);
        }
        more = !ctx.avoid_replication_traffic() && sweep(ctx, state, now);
    }
    let ticks = state.ticks.get().wrapping_add(1);
    state.ticks.set(ticks);
    if ticks.is_multiple_of(WATCHED_TICKS) {
        undelivered::stop_watching(ctx, state);
    }
    let pause = match more {
        true => BETWEEN_SLICES,
        false if state.dirty.borrow().held_back() == 0 => SWEEP_EVERY,
        false => PROBE_EVERY,
    };
    state
        .sweep_timer
        .set(Some(ctx.start_timer(pause, Alarm::Sweep)));
}

/// For what nobody tells of.
fn look_around(ctx: &Context<'_>, state: &State, now: Instant) {
    if ctx.is_cluster() {
        slots::look(ctx, state, now);
    }
    if state.grace.forbids_grants(now) {
        let mut slice = Slice::begin();
        while relook::patrol(ctx, state) && !slice.is_over() {}
    }
}

/// Have enough replicas acknowledged recent data?
fn look_at_replicas(ctx: &Context<'_>, state: &State, now: Instant) {
    let (grace, suspect) = (state.grace_ms.get(), state.lateness.suspect_ms(now));
    let found = state.grace.heartbeats.look(ctx, grace, suspect, now);
    if let Some(due) = found.due {
        effect::send_heartbeat(ctx, due.heartbeat, due.to_aof);
    }
    if found.caught_up {
        relook::begin(state, Scope::All);
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
                Ok(()) => drop_if_stale(state, db, id, now, &mut name),
            }
            if slice.is_over() {
                return true;
            }
        }
    }
    false
}

fn drop_if_stale(state: &State, db: i32, id: LeaseId, now: Instant, name: &mut Vec<u8>) {
    leases::with_table(state, db, |table| {
        if table.due(now, name) == Some(id) {
            table.drop_stale(id);
        }
    });
}
