//! The module's four timers, and the cron behind them.
//!
//! Urgent work comes first: a hand-off never queues behind work of low priority. Both go in slices,
//! and work of low priority has a timer of its own, so that urgent work need not wait for the pause
//! between two of its slices.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late.
//! Every callback re-checks on the boot-time clock, and the cron event starts them anew if they are
//! late.

use mortise_core::{Instant, KeyRef};

use crate::config;
use crate::ffi::{Alarm, Context, Refusal};
use crate::keys::{self, arrivals, dirty, effect, evictions, leases, remains, strays};
use crate::time;
use crate::time::alarms::{self, SWEEP_EVERY};
use crate::time::{clock, failover, role};
use crate::waiting::walk::{self, Scope};
use crate::waiting::{self, due, mail, queue, readers, waiters, wake, watched};
use crate::work::aside;
use crate::work::dirty_keys;
use crate::work::dismissals;
use crate::work::recheck;
use crate::work::settle_call;
use crate::work::several;
use crate::work::slice::{Slice, measured};
use crate::work::slots;
use crate::work::state;

/// How often a server that refused a hand-off is asked again, in milliseconds.
const PROBE_EVERY: u64 = 50;
/// The pause between two slices, in milliseconds.
const BETWEEN_SLICES: u64 = 1;
/// How often at most the module polls what has no event, in milliseconds: with each sweep, except
/// between slices.
const POLL_EVERY: u64 = 90;
/// After so many sweeps without a reply to a waiter, clients are no longer watched.
const WATCHED_TICKS: u64 = 100;
/// After how many milliseconds a key in another server's slot is retried.
const PUT_OFF: u64 = 1_000;

/// A timer has fired.
pub(crate) fn on_alarm(ctx: &Context<'_>, alarm: Alarm) {
    match alarm {
        Alarm::EndOfTurn => on_end_of_turn(ctx),
        Alarm::Due => on_due(ctx),
        Alarm::Background => on_background(ctx),
        Alarm::Sweep => measured(ctx, || tick(ctx)),
    }
}

fn on_end_of_turn(ctx: &Context<'_>) {
    // A hand-off by a command leaves one client to wake, for which the clock need not be read.
    if dirty::is_empty(keys::state(ctx)) && !any_pending(&BACKGROUND, ctx) {
        turn(ctx);
    } else {
        measured(ctx, || turn(ctx));
    }
}

/// The event loop turns.
fn turn(ctx: &Context<'_>) {
    alarms::end_of_turn_has_come(ctx);
    evictions::read_policy_if_unknown(ctx);
    evictions::forget_unlinked(keys::state(ctx));
    work_off(ctx);
}

/// Handles what was marked and decided since the last turn, and what is due.
fn work_off(ctx: &Context<'_>) {
    effect::send_token_clock_if_due(ctx);
    arrivals::check_load(ctx);
    let now = clock::now();
    if time::grace(ctx).is_newly_over(now) {
        walk::begin(ctx, Scope::All);
    }
    let mut slice = Slice::begin();
    while step(&URGENT, ctx, now) || step(&BACKGROUND, ctx, now) {
        if slice.is_over() {
            break;
        }
    }
    due::arm(ctx);
    if effect::token_clock_is_due(ctx) || any_pending(&URGENT, ctx) {
        alarms::end_of_turn_in(ctx, BETWEEN_SLICES);
    }
    arm_background(ctx);
}

/// Work that is done a step at a time.
struct Job {
    /// Does one step. False if there is nothing to do now.
    step: fn(&Context<'_>, Instant) -> bool,
    /// There are steps left, though perhaps none to do now.
    is_pending: fn(&Context<'_>) -> bool,
}

/// `due` does this, with a timer of its own.
const BY_TIME: fn(&Context<'_>) -> bool = |_| false;

/// Work for which a client or a waiter waits, the most urgent first.
const URGENT: [Job; 7] = [
    // Wakes a client that was answered. Another timer would come a millisecond later.
    Job {
        step: |ctx, _| wake::wake_next(ctx),
        is_pending: |ctx| wake::some_to_wake(waiting::state(ctx)),
    },
    // Answers a LOCK.MAIL whose box got letters.
    Job {
        step: |ctx, _| readers::answer_next(ctx),
        is_pending: |ctx| readers::some_to_answer(waiting::state(ctx)),
    },
    // Ends a wait whose time is up.
    Job {
        step: waiters::time_one_out,
        is_pending: BY_TIME,
    },
    // Ends a LOCK.MAIL whose time is up.
    Job {
        step: readers::time_one_out,
        is_pending: BY_TIME,
    },
    // Settles a key that was marked.
    Job {
        step: |ctx, _| dirty_keys::settle_next(ctx),
        is_pending: |ctx| dirty::marked(keys::state(ctx)) > 0,
    },
    // Settles a key with waiters where a lease is over.
    Job {
        step: dirty_keys::settle_due,
        is_pending: BY_TIME,
    },
    // Grants a request for several keys that are all free.
    Job {
        step: |ctx, _| several::grant_next(ctx),
        is_pending: |ctx| queue::all(ctx).borrow().any_due(),
    },
];

/// Work of low priority, the most important first. Urgent work comes before each step.
const BACKGROUND: [Job; 6] = [
    // Closes boxes without a LOCK.MAIL, and empties them.
    Job {
        step: |ctx, _| mail::close_one_overdue(ctx) || mail::let_one_leave(ctx),
        is_pending: |ctx| mail::boxes(ctx).boxes_leave(),
    },
    // Answers waiters that have to ask another server, or can never be granted.
    Job {
        step: |ctx, _| dismissals::step(ctx),
        is_pending: |ctx| !dismissals::none(state::get(ctx)),
    },
    // Settles the keys of a database, of a slot, or all.
    Job {
        step: |ctx, _| recheck::step(ctx),
        is_pending: |ctx| !walk::none(waiting::state(ctx)),
    },
    // Enters a lock that was loaded or copied into the lease order.
    Job {
        step: |ctx, _| recheck::settle_arrival(ctx),
        is_pending: arrivals::are_due,
    },
    // Ends some of the holds that ended together at one lock.
    Job {
        step: |ctx, _| drop_of_a_crowd(ctx),
        is_pending: |ctx| !leases::none_crowded(keys::state(ctx)),
    },
    // Frees their memory, and notifies subscribers.
    Job {
        step: |ctx, _| remains::step(ctx),
        is_pending: |ctx| !remains::is_empty(keys::state(ctx)),
    },
];

/// Does one step of the first job that has one. False if there is nothing to do now.
fn step(jobs: &[Job], ctx: &Context<'_>, now: Instant) -> bool {
    jobs.iter().any(|job| (job.step)(ctx, now))
}

fn any_pending(jobs: &[Job], ctx: &Context<'_>) -> bool {
    jobs.iter().any(|job| (job.is_pending)(ctx))
}

/// Drops a few of the holds whose lease is over at one lock. False if there is none.
fn drop_of_a_crowd(ctx: &Context<'_>) -> bool {
    if dirty::is_blocked(ctx) {
        return false;
    }
    let Some(key) = leases::take_crowded(keys::state(ctx)) else {
        return false;
    };
    // The key comes up again by itself while there are more. A slot that has left takes its locks along.
    if role::is_primary(time::state(ctx))
        && let Err(refused) = settle_call::call(ctx, key.as_ref())
    {
        match refused.kind {
            Refusal::Gate => {
                dirty::set_gate_closed(keys::state(ctx), true);
                leases::mark_crowded(keys::state(ctx), key.as_ref());
                return false;
            }
            Refusal::SlotElsewhere => {}
            // The sweep retries it.
            Refusal::Failed => {
                aside::pause(ctx, key.as_ref(), &refused.why);
            }
        }
    }
    true
}

fn arm_background(ctx: &Context<'_>) {
    // While writes are refused the sweep tries again.
    if any_pending(&BACKGROUND, ctx) && !dirty::is_blocked(ctx) {
        alarms::background_in(ctx, BETWEEN_SLICES);
    }
}

fn on_background(ctx: &Context<'_>) {
    measured(ctx, || work_off(ctx));
}

fn on_due(ctx: &Context<'_>) {
    alarms::due_has_come(time::state(ctx));
    measured(ctx, || work_off(ctx));
}

fn tick(ctx: &Context<'_>) {
    let now = clock::now();
    time::detect_stall(ctx, now);
    time::grace(ctx).on_tick(now);
    time::log_grace_end(ctx, now);
    failover::warn_of_short_grace(ctx);
    // A timer that should fire at once waits for the wall clock if that clock has stepped back meanwhile.
    if alarms::any_at_once(ctx) {
        turn(ctx);
    }
    // Put off by a pause.
    if effect::token_clock_is_due(ctx) {
        alarms::at_end_of_turn(ctx);
    }
    mail::on_tick(ctx, now, ctx.avoid_replication_traffic());
    aside::mark_due(ctx, now);
    dirty_keys::try_held_back(ctx);
    if any_pending(&BACKGROUND, ctx) {
        alarms::at_end_of_turn(ctx);
    }
    let mut more = false;
    if role::is_primary(time::state(ctx)) {
        check_replicas(ctx, now);
        // If the timer fires more often than that, it is because of leases.
        if now.millis_since(state::get(ctx).looked_around.get()) >= POLL_EVERY {
            state::get(ctx).looked_around.set(now);
            poll(ctx, now);
        }
        more = !ctx.avoid_replication_traffic() && sweep(ctx, now);
    }
    more = more || check_strays(ctx, now);
    let ticks = state::get(ctx).ticks.get().wrapping_add(1);
    state::get(ctx).ticks.set(ticks);
    if ticks.is_multiple_of(WATCHED_TICKS) {
        watched::stop_watching(ctx);
    }
    let pause = match more {
        true => BETWEEN_SLICES,
        false if dirty::held_back(keys::state(ctx)) == 0 => SWEEP_EVERY,
        false => PROBE_EVERY,
    };
    alarms::sweep_in(ctx, pause);
}

/// Polls the state for which there is no event.
fn poll(ctx: &Context<'_>, now: Instant) {
    if ctx.is_cluster() {
        slots::check(ctx, now);
    }
    if !dirty::is_blocked(ctx) {
        let mut slice = Slice::begin();
        while recheck::patrol(ctx) && !slice.is_over() {}
    }
}

/// Have enough replicas acknowledged recent data?
fn check_replicas(ctx: &Context<'_>, now: Instant) {
    let (grace, suspect) = (
        config::promotion_grace(ctx),
        time::lateness(ctx).suspect_ms(now),
    );
    let found = time::grace(ctx).heartbeats.check(ctx, grace, suspect, now);
    if let Some(due) = found.due {
        effect::send_heartbeat(ctx, due.heartbeat, due.to_aof);
    }
    if found.caught_up {
        walk::begin(ctx, Scope::All);
    }
}

/// One slice of work on the locks whose keys are not known. True if there is more to do at once.
fn check_strays(ctx: &Context<'_>, now: Instant) -> bool {
    let mut slice = Slice::begin();
    while strays::step(keys::state(ctx), now) {
        if slice.is_over() {
            return true;
        }
    }
    false
}

/// One slice of work on the leases that are over. True if there is more to do at once.
fn sweep(ctx: &Context<'_>, now: Instant) -> bool {
    let mut slice = Slice::begin();
    let mut name = Vec::new();
    while let Some((db, id)) = leases::due(keys::state(ctx), now, &mut name) {
        let key = KeyRef { db, name: &name };
        match settle_call::call(ctx, key) {
            // After the settle the entry is gone or has a later deadline, unless no key belongs to it.
            Ok(()) => {
                aside::forget(state::get(ctx), key);
                leases::drop_stale(keys::state(ctx), db, id, now);
            }
            Err(refused) => {
                let pause = match refused.kind {
                    Refusal::Gate => return false,
                    Refusal::SlotElsewhere => PUT_OFF,
                    Refusal::Failed => aside::pause(ctx, key, &refused.why),
                };
                leases::put_off(keys::state(ctx), db, id, now, pause);
            }
        }
        if slice.is_over() {
            return true;
        }
    }
    false
}
