//! Settles dirty keys.
//!
//! Everything here is urgent, because a waiter may be granted. Work of low priority is in `recheck` and `arrivals`:
//! nothing here waits for it.

use mortise_core::{Instant, KeyId, Lock};

use crate::ffi::{Access, Context, Refusal};
use crate::keys;
use crate::keys::dirty;
use crate::time::{self, alarms, clock, role};
use crate::waiting::undelivered;
use crate::waiting::waiters;
use crate::waiting::{self, queue};
use crate::work::aside;
use crate::work::dismissals;
use crate::work::settle;
use crate::work::settle_call;
use crate::work::slots;
use crate::work::state;

/// Settles the first dirty key. False if there is none to settle now.
pub(crate) fn settle_next(ctx: &Context<'_>) -> bool {
    match dirty::take_next(keys::state(ctx)).or_else(|| dirty::take_held_back(ctx)) {
        Some(key) => settle(ctx, key),
        None => return false,
    }
    true
}

/// Settles a key with waiters that has lost a hold by time. False if there is none.
pub(crate) fn settle_due(ctx: &Context<'_>, now: Instant) -> bool {
    let Some(key) = queue::all(ctx).borrow_mut().due(now) else {
        return false;
    };
    settle(ctx, key);
    true
}

/// Settles the key if that can change anything for a waiter.
pub(crate) fn settle(ctx: &Context<'_>, dirty: KeyId) {
    let key = dirty.as_ref();
    let awaited =
        queue::wait_at(waiting::state(ctx), key) || undelivered::any_at(waiting::state(ctx), key);
    if !awaited || !role::is_primary(time::state(ctx)) {
        return aside::forget(state::get(ctx), key);
    }
    if dirty::is_blocked(ctx) {
        return hold_back(ctx, dirty);
    }
    let Err(refused) = settle_call::call(ctx, key) else {
        return aside::forget(state::get(ctx), key);
    };
    match refused.kind {
        Refusal::SlotElsewhere => {
            if !slots::may_wait_on(ctx, key) {
                undelivered::forget_at(waiting::state(ctx), key);
                dismissals::send_away(ctx, key);
            }
        }
        Refusal::Gate => {
            // The server would refuse the other marked keys as well.
            dirty::set_gate_closed(keys::state(ctx), true);
            hold_back(ctx, dirty);
        }
        Refusal::Failed => {
            let pause = aside::pause(ctx, key, &refused.why);
            aside::retry_at(state::get(ctx), clock::now().after(pause), dirty);
        }
    }
}

/// The server accepts no writes now. An upgrade whose read hold has ended is denied all the same, because that is no write.
fn hold_back(ctx: &Context<'_>, key: KeyId) {
    ctx.select(key.db);
    let free = Lock::free();
    let settled = {
        let mut opened = ctx.open_named(&key.name, Access::Read);
        let lock = opened.value().map_or(&free, |value| &value.lock);
        let mut queues = queue::all(ctx).borrow_mut();
        queues.settle_lost_unchanged(key.as_ref(), lock, clock::now(), settle::MOST)
    };
    for decided in &settled.decided {
        waiters::decide(ctx, &key, decided, clock::now());
    }
    if settled.more {
        dirty::mark(ctx, key.as_ref());
    }
    dirty::hold_back(keys::state(ctx), key);
}

/// Every 50 ms: retries the first key that was refused. If it succeeds, the end of the turn settles the others.
pub(crate) fn try_held_back(ctx: &Context<'_>) {
    dirty::set_gate_closed(keys::state(ctx), false);
    let Some(first) = dirty::take_held_back(ctx) else {
        return;
    };
    settle(ctx, first);
    if !dirty::is_gate_closed(keys::state(ctx)) {
        alarms::at_end_of_turn(ctx);
    }
}
