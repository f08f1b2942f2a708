//! Timers: armed here by every layer that has work for later, answered in `work::timers`.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late. The handler re-checks on the boot-time
//! clock, and the cron event starts them anew if they are late, see [`back_up`].

use std::cell::Cell;

use mortise_core::Instant;

use crate::ffi::{Alarm, Context, MainThread};
use crate::time::{self, clock};

/// When the timer for what is due next comes.
static DUE: MainThread<Cell<Option<Instant>>> = MainThread::new(Cell::new(None));

/// The timer for queued work pauses between two slices.
static PAUSES: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// How often leases are checked, in milliseconds.
pub(crate) const SWEEP_EVERY: u64 = 100;
/// How late a timer may be before the cron starts it anew, in milliseconds.
const LATE: u64 = 20;

/// Makes sure that queued work is done before the event loop turns.
pub(crate) fn at_end_of_turn(ctx: &Context<'_>) {
    if PAUSES.get(ctx).take() || !ctx.has_timer(Alarm::EndOfTurn) {
        ctx.with_detached(|ctx| ctx.start_timer(0, Alarm::EndOfTurn));
    }
}

/// Queued work goes on `ms` from now, unless it does so before.
pub(crate) fn go_on_in(ctx: &Context<'_>, ms: u64) {
    if !ctx.has_timer(Alarm::EndOfTurn) {
        PAUSES.get(ctx).set(true);
        ctx.start_timer(ms, Alarm::EndOfTurn);
    }
}

/// Leases are checked `ms` from now.
pub(crate) fn sweep_in(ctx: &Context<'_>, ms: u64) {
    ctx.start_timer(ms, Alarm::Sweep);
}

/// Arms the timer for `next`, unless it fires before that.
pub(crate) fn due_at(ctx: &Context<'_>, next: Instant) {
    let due = DUE.get(ctx);
    if due.get().is_some_and(|at| at <= next) {
        return;
    }
    due.set(Some(next));
    ctx.start_timer(next.millis_since(clock::now()), Alarm::Due);
}

/// The event loop is about to turn: work marked for that is done now.
pub(crate) fn end_of_turn_has_come(ctx: &Context<'_>) {
    PAUSES.get(ctx).set(false);
    ctx.stop_timer(Alarm::EndOfTurn);
}

/// Work that is due is done now.
pub(crate) fn due_has_come(ctx: &Context<'_>) {
    DUE.get(ctx).set(None);
}

/// From the cron: a wall clock that stepped back has put the timers off, so start others. All of them, after all have been stopped: the server sleeps
/// until its first timer, by a time that a step in between makes wrong, and computes it anew only for a timer that is earlier than all others.
pub(crate) fn back_up(ctx: &Context<'_>, now: Instant) {
    if now.millis_since(time::grace(ctx).ticked()) > SWEEP_EVERY + LATE {
        for alarm in Alarm::ALL {
            ctx.stop_timer(alarm);
        }
        for alarm in Alarm::ALL {
            ctx.start_timer(0, alarm);
        }
    }
    if let Some(at) = DUE.get(ctx).get()
        && now.millis_since(at) > LATE
    {
        ctx.start_timer(0, Alarm::Due);
    }
}
