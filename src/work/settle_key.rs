//! Settles a key from a timer, through `LOCK.SETTLE`: the server refuses that as it would refuse a client's write.

use mortise_core::{Instant, KeyId, Lock};

use crate::ffi::{Access, Context, Refusal};
use crate::time::{self, alarms, clock, role};
use crate::waiting::undelivered;
use crate::waiting::waiters;
use crate::waiting::{self, queue as queues};
use crate::work::failing;
use crate::work::queue;
use crate::work::refuse;
use crate::work::settle;
use crate::work::settle_call;
use crate::work::slots;

/// Settles the key if a waiter may be granted there, a grant has to be undone, or it could not be settled before.
pub(crate) fn settle(ctx: &Context<'_>, id: &KeyId) {
    let key = id.as_ref();
    let has_work = queues::wait_at(waiting::state(ctx), key)
        || undelivered::any_at(ctx, key)
        || failing::is_failing(ctx, key);
    if !has_work || !role::is_primary(time::state(ctx)) {
        return failing::forget(ctx, key);
    }
    if queue::is_blocked(ctx) {
        return hold_back(ctx, id);
    }
    let Err(refused) = settle_call::call(ctx, key) else {
        return failing::forget(ctx, key);
    };
    match refused.kind {
        Refusal::SlotElsewhere => {
            if !slots::may_wait_on(ctx, key) {
                undelivered::forget_at(ctx, key);
                refuse::at_key(ctx, key, refuse::SLOT_HAS_LEFT);
            }
        }
        Refusal::Gate => {
            // The server would refuse the other keys as well.
            queue::set_gate_closed(ctx, true);
            hold_back(ctx, id);
        }
        Refusal::Failed => failing::failed(ctx, key, &refused.why),
    }
}

/// Settles a key with waiters that has lost a hold by time. False if there is none.
pub(super) fn settle_due(ctx: &Context<'_>, now: Instant) -> bool {
    let due = queues::all(ctx).borrow_mut().due(now);
    due.inspect(|key| settle(ctx, key)).is_some()
}

/// Settles a key that was held back, if the server accepts writes now. False if there is none.
pub(super) fn settle_held_back(ctx: &Context<'_>) -> bool {
    let key = queue::take_held_back(ctx).map(|key| queue::key_of(ctx, &key));
    key.inspect(|key| settle(ctx, key)).is_some()
}

/// The server accepts no writes now. An upgrade whose read hold has ended is denied all the same, because that is no write.
fn hold_back(ctx: &Context<'_>, key: &KeyId) {
    ctx.select(key.db);
    let free = Lock::free();
    let settled = {
        let mut opened = ctx.open_named(&key.name, Access::Read);
        let lock = opened.value().map_or(&free, |value| &value.lock);
        let mut queues = queues::all(ctx).borrow_mut();
        queues.settle_lost_unchanged(key.as_ref(), lock, clock::now(), settle::MOST)
    };
    for decided in &settled.decided {
        waiters::decide(ctx, key, decided, clock::now());
    }
    if settled.more {
        queue::settle(ctx, key.as_ref());
    }
    queue::hold_back(ctx, key.as_ref());
}

/// Every 50 ms: tries the first key that was held back. If the server accepts that, the end of the turn settles the others.
pub(super) fn try_held_back(ctx: &Context<'_>) {
    queue::set_gate_closed(ctx, false);
    if settle_held_back(ctx) && !queue::is_gate_closed(ctx) {
        alarms::at_end_of_turn(ctx);
    }
}
