//! The module's four timers, and the cron behind them.
//!
//! Urgent work comes first: a hand-off never queues behind work of low priority. Both go in slices,
//! and work of low priority has a timer of its own, so that urgent work need not wait for the pause
//! between two of its slices.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late.
//! Every callback re-checks on the boot-time clock, and the cron event starts them anew if they are
//! late.

use std::cell::{Cell, RefCell};

use mortise_core::{Instant, KeyRef};

use crate::config;
use crate::ffi::{Alarm, Context, MainThread, Refusal};
use crate::keys::{effect, leases};
use crate::time::alarms::{self, SWEEP_EVERY};
use crate::time::{self, clock, failover};
use crate::waiting;
use crate::work::scan::{Scan, Scope};
use crate::work::slice::{Slice, measured};
use crate::work::{failing, queue, run, settle_key, slots};

/// When the module last polled the state for which there is no event.
static POLLED: MainThread<Cell<Instant>> = MainThread::new(Cell::new(Instant::from_millis(0)));
/// The scan over the keys that nobody holds, of which each poll does a slice.
static UNHELD: MainThread<RefCell<Scan>> = MainThread::new(RefCell::new(Scan::over(Scope::Unheld)));

/// How often a server that refused a hand-off is asked again, in milliseconds.
const PROBE_EVERY: u64 = 50;
/// The pause between two slices, in milliseconds.
const BETWEEN_SLICES: u64 = 1;
/// The shortest time between two polls of what has no event, in milliseconds: each sweep polls, except
/// between slices.
const POLL_EVERY: u64 = 90;
/// After how many milliseconds the sweep returns to a key that it could not settle.
const PUT_OFF: u64 = 1_000;

/// A timer has fired.
pub(crate) fn on_alarm(ctx: &Context<'_>, alarm: Alarm) {
    match alarm {
        // A hand-off by a command leaves one client to wake, for which the clock need not be read.
        Alarm::EndOfTurn if run::only_wakes(ctx) => turn(ctx),
        Alarm::EndOfTurn => measured(ctx, || turn(ctx)),
        Alarm::Due => {
            alarms::due_has_come(ctx);
            measured(ctx, || work(ctx));
        }
        Alarm::Background => measured(ctx, || work(ctx)),
        Alarm::Sweep => measured(ctx, || tick(ctx)),
    }
}

/// The event loop turns.
fn turn(ctx: &Context<'_>) {
    alarms::end_of_turn_has_come(ctx);
    work(ctx);
}

/// Does a slice of work, and arms the timers for what is left.
fn work(ctx: &Context<'_>) {
    let now = clock::now();
    if time::grace(ctx).is_newly_over(now) {
        queue::scan(ctx, Scope::All);
    }
    run::slice(ctx, now);
    waiting::arm(ctx);
    if run::is_urgent_left(ctx) {
        alarms::end_of_turn_in(ctx, BETWEEN_SLICES);
    }
    // While writes are refused the sweep tries again.
    if run::is_background_left(ctx) && !queue::is_blocked(ctx) {
        alarms::background_in(ctx, BETWEEN_SLICES);
    }
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
    waiting::boxes(ctx).on_tick(ctx, now, ctx.avoid_replication_traffic());
    failing::retry_due(ctx, now);
    settle_key::try_held_back(ctx);
    if run::is_background_left(ctx) {
        alarms::at_end_of_turn(ctx);
    }
    let polled = POLLED.get(ctx);
    let mut more = false;
    if time::is_primary(ctx) {
        check_replicas(ctx, now);
        // If the timer fires more often than that, it is because of leases.
        if now.millis_since(polled.get()) >= POLL_EVERY {
            polled.set(now);
            poll(ctx, now);
        }
        more = !ctx.avoid_replication_traffic() && sweep(ctx, now);
    }
    let pause = match more {
        true => BETWEEN_SLICES,
        false if queue::held_back(ctx) == 0 => SWEEP_EVERY,
        false => PROBE_EVERY,
    };
    alarms::sweep_in(ctx, pause);
}

/// Polls the state for which there is no event.
fn poll(ctx: &Context<'_>, now: Instant) {
    if ctx.is_cluster() {
        slots::check(ctx, now);
    }
    if !queue::is_blocked(ctx) {
        check_unheld(ctx);
    }
}

/// Settles keys that nobody holds, for a slice. No event shows that such a key became another type, because it loses no lock.
fn check_unheld(ctx: &Context<'_>) {
    let unheld = UNHELD.get(ctx);
    let mut slice = Slice::begin();
    let mut scan = unheld.replace(Scan::over(Scope::Unheld));
    while let Some(rest) = run::scan_step(ctx, scan) {
        scan = rest;
        if slice.is_over() {
            unheld.replace(scan);
            return;
        }
    }
}

/// Checks whether enough replicas have acknowledged recent data.
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
        queue::scan(ctx, Scope::All);
    }
}

/// Settles locks whose leases are over, for a slice. Returns whether there is more to do at once.
fn sweep(ctx: &Context<'_>, now: Instant) -> bool {
    let mut slice = Slice::begin();
    let mut name = Vec::new();
    let tables = leases::tables(ctx);
    loop {
        let due = tables.borrow_mut().due(now, &mut name);
        let Some((db, id)) = due else {
            return false;
        };
        let key = KeyRef { db, name: &name };
        let settled = match failing::is_failing(ctx, key) {
            true => Err(Refusal::Failed),
            false => settle_key::call(ctx, key),
        };
        match settled {
            // After the settle the entry is gone or has a later deadline, unless no key belongs to it.
            Ok(()) => tables.borrow_mut().drop_stale(db, id, now),
            Err(Refusal::Gate) => return false,
            Err(Refusal::SlotElsewhere | Refusal::Failed) => {
                tables.borrow_mut().put_off(db, id, now.after(PUT_OFF));
            }
        }
        if slice.is_over() {
            return true;
        }
    }
}
