//! Timers: armed here by every room that has work for later, answered in `turn::timers`.
//!
//! The server's timers compare wall-clock time, so a step of that clock fires them early or late. The answer
//! re-checks on the boot-time clock, and the cron event starts them anew where they are late, see [`back_up`].

use std::cell::Cell;

use mortise_core::Instant;

use crate::ffi::{Alarm, Context, MainThread, Timer};
use crate::time::clock;
use crate::time::grace;

/// How often leases are looked at, in milliseconds.
pub(crate) const SWEEP_EVERY: u64 = 100;
/// How late a timer may be before the cron starts it anew, in milliseconds.
const LATE: u64 = 20;

struct Alarms {
    /// The timer for marks and decided waiters is under way.
    end_of_turn: Cell<bool>,
    /// The timer for what has no hurry is under way.
    background: Cell<bool>,
    /// The timer for what is due next, and when that is.
    due: Cell<Option<(Instant, Timer)>>,
    sweep: Cell<Option<Timer>>,
}

static ALARMS: MainThread<Alarms> = MainThread::new(Alarms {
    end_of_turn: Cell::new(false),
    background: Cell::new(false),
    due: Cell::new(None),
    sweep: Cell::new(None),
});

/// Sees to it that marks and decided waiters are looked at before the event loop turns.
pub(crate) fn at_end_of_turn(ctx: &Context<'_>) {
    if !ALARMS.get(ctx).end_of_turn.replace(true) {
        Context::with_detached(|ctx| {
            ctx.start_timer(0, Alarm::EndOfTurn);
        });
    }
}

/// The same, but `ms` from now, unless it is under way.
pub(crate) fn end_of_turn_in(ctx: &Context<'_>, ms: u64) {
    if !ALARMS.get(ctx).end_of_turn.replace(true) {
        ctx.start_timer(ms, Alarm::EndOfTurn);
    }
}

/// What has no hurry is looked at `ms` from now.
pub(crate) fn background_in(ctx: &Context<'_>, ms: u64) {
    if !ALARMS.get(ctx).background.replace(true) {
        ctx.start_timer(ms, Alarm::Background);
    }
}

/// Leases are looked at `ms` from now.
pub(crate) fn sweep_in(ctx: &Context<'_>, ms: u64) {
    let timer = ctx.start_timer(ms, Alarm::Sweep);
    ALARMS.get(ctx).sweep.set(Some(timer));
}

/// Something is due at `next`, unless something is due before.
pub(crate) fn due_at(ctx: &Context<'_>, next: Instant) {
    let due = &ALARMS.get(ctx).due;
    if let Some((at, timer)) = due.get() {
        if at <= next {
            return;
        }
        ctx.stop_timer(timer);
    }
    let ms = next.millis_since(clock::now());
    due.set(Some((next, ctx.start_timer(ms, Alarm::Due))));
}

/// The event loop is about to turn, and what was marked for that is looked at now.
pub(crate) fn end_of_turn_has_come(ctx: &Context<'_>) {
    ALARMS.get(ctx).end_of_turn.set(false);
}

/// What has no hurry is looked at now.
pub(crate) fn background_has_come(ctx: &Context<'_>) {
    ALARMS.get(ctx).background.set(false);
}

/// What is due is looked at now.
pub(crate) fn due_has_come(ctx: &Context<'_>) {
    ALARMS.get(ctx).due.set(None);
}

/// One of the timers that come at once, or nearly, is under way.
pub(crate) fn any_at_once(ctx: &Context<'_>) -> bool {
    let alarms = ALARMS.get(ctx);
    alarms.end_of_turn.get() || alarms.background.get()
}

/// From the cron: a wall clock that stepped back has put the timers off, so start others.
pub(crate) fn back_up(ctx: &Context<'_>, now: Instant) {
    let alarms = ALARMS.get(ctx);
    if now.millis_since(grace::get(ctx).ticked()) > SWEEP_EVERY + LATE {
        if let Some(timer) = alarms.sweep.take() {
            ctx.stop_timer(timer);
        }
        sweep_in(ctx, 0);
    }
    if let Some((at, timer)) = alarms.due.get()
        && now.millis_since(at) > LATE
    {
        ctx.stop_timer(timer);
        let timer = ctx.start_timer(0, Alarm::Due);
        alarms.due.set(Some((at, timer)));
    }
}
