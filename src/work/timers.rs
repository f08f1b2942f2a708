//! Does deferred work: the module's timers, and the cron behind them.
//!
//! Urgent work comes first: a hand-off never queues behind work of low priority. Both go in slices. Most work waits in `queue`. What is due by time (the
//! ends of waits and of leases at awaited keys) is found by the indexes of `waiting` and of the core.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late. Every callback re-checks on the boot-time
//! clock, and the cron event starts them anew if they are late.

use std::cell::{Cell, RefCell};

use mortise_core::{Instant, KeyId, KeyRef};

use crate::config;
use crate::ffi::{Alarm, Context, MainThread, Refusal};
use crate::keys::{arrivals, effect, evictions, leases};
use crate::time::alarms::{self, SWEEP_EVERY};
use crate::time::{self, clock, failover};
use crate::waiting::{self, clients, mail, waiters};
use crate::work::queue::{self, EndedHolds, Kind, Scan, Scope, Step, Work};
use crate::work::slice::{Slice, measured};
use crate::work::{refuse, settle_key, slots};

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
        Alarm::EndOfTurn if queue::only_wakes(ctx) => turn(ctx),
        Alarm::EndOfTurn => measured(ctx, || turn(ctx)),
        Alarm::Due => {
            alarms::due_has_come(ctx);
            measured(ctx, || work(ctx));
        }
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
    do_slice(ctx, now);
    waiting::arm(ctx);
    // While writes are refused the sweep tries again.
    if is_urgent_left(ctx) || is_background_left(ctx) && !queue::is_blocked(ctx) {
        alarms::go_on_in(ctx, BETWEEN_SLICES);
    }
}

fn tick(ctx: &Context<'_>) {
    let now = clock::now();
    time::detect_stall(ctx, now);
    time::grace(ctx).on_tick(now);
    failover::warn_of_short_grace(ctx);
    // A timer that should fire at once waits for the wall clock if that clock has stepped back meanwhile.
    if ctx.has_timer(Alarm::EndOfTurn) {
        turn(ctx);
    }
    waiting::boxes(ctx).on_tick(ctx, now, ctx.avoid_replication_traffic());
    settle_key::retry_failing(ctx, now);
    // One key that was held back shows whether the server accepts writes again. Then the others follow.
    queue::set_gate_closed(ctx, false);
    do_one(ctx, Kind::HeldBack);
    if is_urgent_left(ctx) || is_background_left(ctx) {
        alarms::at_end_of_turn(ctx);
    }
    let polled = POLLED.get(ctx);
    let mut more = false;
    if time::is_primary(ctx) {
        // If the timer fires more often than that, it is because of leases.
        if now.millis_since(polled.get()) >= POLL_EVERY {
            polled.set(now);
            poll(ctx, now);
        }
        more = !ctx.avoid_replication_traffic() && sweep(ctx, now);
    }
    let pause = match more {
        true => BETWEEN_SLICES,
        false if queue::len(ctx, Kind::HeldBack) == 0 => SWEEP_EVERY,
        false => PROBE_EVERY,
    };
    alarms::sweep_in(ctx, pause);
}

/// Polls the state for which there is no event.
fn poll(ctx: &Context<'_>, now: Instant) {
    check_replicas(ctx, now);
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
    while let Some(rest) = scan_step(ctx, scan) {
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
        config::promotion_grace(),
        time::lateness(ctx).suspect_ms(now),
    );
    let send = |heartbeat, to_aof| effect::send_heartbeat(ctx, heartbeat, to_aof);
    let heartbeats = &time::grace(ctx).heartbeats;
    if heartbeats.check(ctx, grace, suspect, now, send) {
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
        let is_settled = !settle_key::is_failing(ctx, key)
            && match settle_key::call(ctx, key) {
                Ok(()) => true,
                Err(Refusal::Gate) => return false,
                Err(Refusal::SlotElsewhere | Refusal::Failed(_)) => false,
            };
        let mut tables = tables.borrow_mut();
        match is_settled {
            // The entry is gone or has a later deadline, unless no key belongs to it.
            true => tables.drop_stale(db, id, now),
            false => tables.put_off(db, id, now.after(PUT_OFF)),
        }
        drop(tables);
        if slice.is_over() {
            return true;
        }
    }
}

/// Does work until none is left that can be done now, or the slice is over.
fn do_slice(ctx: &Context<'_>, now: Instant) {
    let mut slice = Slice::begin();
    while urgent(ctx, now) || background(ctx) {
        if slice.is_over() {
            break;
        }
    }
}

/// Does one piece of work for which a client or a waiter waits. False if there is none.
fn urgent(ctx: &Context<'_>, now: Instant) -> bool {
    do_one(ctx, Kind::Wake)
        || do_one(ctx, Kind::AnswerMail)
        || waiters::time_one_out(ctx, now)
        || clients::end_reader(ctx, now)
        || do_one(ctx, Kind::Settle)
        || do_one(ctx, Kind::HeldBack)
        || settle_key::settle_due(ctx, now)
        || settle_key::grant_next(ctx)
}

/// Whether urgent work is left, other than what is due by time.
fn is_urgent_left(ctx: &Context<'_>) -> bool {
    [Kind::Wake, Kind::AnswerMail, Kind::Settle, Kind::HeldBack]
        .into_iter()
        .any(|kind| can_do(ctx, kind))
        || waiting::queues(ctx).borrow().any_due()
}

/// Does one piece of other work. False if there is none that can be done now.
fn background(ctx: &Context<'_>) -> bool {
    BACKGROUND.into_iter().any(|kind| do_one(ctx, kind))
}

const BACKGROUND: [Kind; 9] = [
    Kind::CloseBoxes,
    Kind::SendTokenClock,
    Kind::Refuse,
    Kind::Scan,
    Kind::RetryFailing,
    Kind::Enter,
    Kind::WarnOfEvictions,
    Kind::DropEnded,
    Kind::Free,
];

/// Whether there is background work that can be done now.
fn is_background_left(ctx: &Context<'_>) -> bool {
    BACKGROUND.into_iter().any(|kind| can_do(ctx, kind))
}

/// Whether there is work of that kind, and the server lets it be done now.
fn can_do(ctx: &Context<'_>, kind: Kind) -> bool {
    queue::len(ctx, kind) > 0
        && match kind {
            Kind::HeldBack | Kind::Scan | Kind::RetryFailing | Kind::DropEnded => {
                !queue::is_blocked(ctx)
            }
            // This passes no gate.
            Kind::Enter | Kind::SendTokenClock => !ctx.avoid_replication_traffic(),
            _ => true,
        }
}

/// Does one piece of the first work of that kind. False if there is none that can be done now.
fn do_one(ctx: &Context<'_>, kind: Kind) -> bool {
    if !can_do(ctx, kind) {
        return false;
    }
    let Some((number, work)) = queue::take(ctx, kind) else {
        return false;
    };
    if let Some(rest) = perform(ctx, work) {
        queue::put_back(ctx, number, rest);
    }
    true
}

/// Does a whole small piece of work, or one step of a long one. Returns what is left of it.
fn perform(ctx: &Context<'_>, work: Work) -> Option<Work> {
    match work {
        Work::Wake(blocked) => blocked.unblock(),
        Work::AnswerMail(id) => mail::answer(ctx, id),
        Work::Settle(key) | Work::SettleHeldBack(key) => {
            settle_key::settle(ctx, &queue::key_of(ctx, &key))
        }
        Work::Refuse(refusal) => return refuse::step(ctx, refusal).map(Work::Refuse),
        Work::Scan(scan) => return scan_step(ctx, scan).map(Work::Scan),
        Work::CloseBoxes => {
            return waiting::boxes(ctx)
                .close_some(ctx)
                .then_some(Work::CloseBoxes);
        }
        Work::RetryFailing(last) => {
            let next = settle_key::retry_next(ctx, last)?;
            return Some(Work::RetryFailing(Some(next)));
        }
        Work::Enter(key) => {
            let key = arrivals::enter(ctx, &key);
            waiting::queues(ctx)
                .borrow_mut()
                .recheck_holders(key.as_ref());
            settle_key::settle(ctx, &key);
        }
        Work::SendTokenClock => effect::send_token_clock(ctx),
        Work::WarnOfEvictions => evictions::warn_of_evictions(ctx),
        Work::DropEnded(key) => drop_ended(ctx, &queue::key_of(ctx, &key)),
        Work::FreeHolds(holds) => return free_one(ctx, holds).map(Work::FreeHolds),
        Work::FreeTables(mut tables) => {
            return tables.drop_some().then_some(Work::FreeTables(tables));
        }
        Work::FreeUndone(mut undone) => {
            return undone.next().map(|_| Work::FreeUndone(undone));
        }
    }
    None
}

/// Settles the next key of the scan. `None` after the last one.
pub(crate) fn scan_step(ctx: &Context<'_>, mut scan: Scan) -> Option<Scan> {
    let step = scan.step(&waiting::queues(ctx).borrow());
    match step {
        // It is tried again after a pause.
        Step::Key(key) if settle_key::is_failing(ctx, key.as_ref()) => {}
        Step::Key(key) => settle_key::settle(ctx, &key),
        Step::Passed => {}
        Step::End => return None,
    }
    Some(scan)
}

/// Drops a few of the holds whose lease is over at one lock. While there are more, the key is queued again when it is closed. A
/// slot that has left takes its locks along.
fn drop_ended(ctx: &Context<'_>, key: &KeyId) {
    let key = key.as_ref();
    if !time::is_primary(ctx) {
        return;
    }
    if settle_key::call(ctx, key) == Err(Refusal::Gate) {
        queue::push_key(ctx, key, Work::DropEnded);
    }
}

/// Counts, announces and frees one of the holds. `None` if that was the last one.
fn free_one(ctx: &Context<'_>, mut ended: EndedHolds) -> Option<EndedHolds> {
    let (_, stake) = ended.holds.pop()?;
    if ended.expired {
        leases::count_ended(ctx, &stake);
        ctx.select(ended.key.db);
        ctx.notify_named(c"lock.expire", &ended.key.name);
    }
    Some(ended)
}
