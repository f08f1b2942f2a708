//! Settles keys from timers, through `LOCK.SETTLE`, called inside the server: it refuses that as it would refuse a client's write.
//!
//! A key that cannot be settled although the server accepts writes holds up no other one: it is tried again after a pause.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::ops::Bound;

use mortise_core::{Instant, KeyId, KeyRef, Lock, WaiterId};

use crate::error::Error;
use crate::ffi::{Access, Context, MainThread, Refusal};
use crate::time::{self, clock};
use crate::waiting::{self, undelivered, waiters};
use crate::work::queue::{self, Work};
use crate::work::{refuse, settle, slots};

/// Whether the module is about to run `LOCK.SETTLE`, which refuses everybody else.
static IS_CALLING: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// Whether the command that runs now is a call of the module's own. True once for each call.
pub(crate) fn is_own_call(ctx: &Context<'_>) -> bool {
    IS_CALLING.get(ctx).take()
}

/// Settles the key, if the server accepts writes to it.
///
/// # Errors
/// As for [`run`].
pub(super) fn call(ctx: &Context<'_>, key: KeyRef<'_>) -> Result<(), Refusal> {
    run(ctx, key, WaiterId(0), &mut [key.name].into_iter())
}

/// Calls the command for these keys, `first` among them. `id`: the request that is to be granted all of them, or 0 to settle one.
///
/// # Errors
/// Why the server did not call the command, or that the command failed. After a failure the first key is tried again after a pause.
fn run(
    ctx: &Context<'_>,
    first: KeyRef<'_>,
    id: WaiterId,
    names: &mut dyn Iterator<Item = &[u8]>,
) -> Result<(), Refusal> {
    ctx.select(first.db);
    IS_CALLING.get(ctx).set(true);
    let called = ctx.call_write(SETTLE, id.0, names, || IS_CALLING.get(ctx).take());
    match &called {
        Ok(()) => forget_failure(ctx, first),
        // The server would refuse the other keys as well.
        Err(Refusal::Gate) => queue::set_gate_closed(ctx, true),
        Err(Refusal::Failed(why)) => failed(ctx, first, why),
        Err(Refusal::SlotElsewhere) => {}
    }
    called
}

/// Settles the key if a waiter may be granted there, a grant has to be undone, or it could not be settled before.
pub(crate) fn settle(ctx: &Context<'_>, id: &KeyId) {
    let key = id.as_ref();
    let has_work =
        waiting::is_awaited(ctx, key) || undelivered::any_at(ctx, key) || is_failing(ctx, key);
    if !has_work || !time::is_primary(ctx) {
        return forget_failure(ctx, key);
    }
    if queue::is_blocked(ctx) {
        return hold_back(ctx, id);
    }
    match call(ctx, key) {
        Err(Refusal::SlotElsewhere) => {
            if !slots::may_wait_on(ctx, key) {
                undelivered::forget_at(ctx, key);
                refuse::at_key(ctx, key, Error::SLOT_HAS_LEFT);
            }
        }
        Err(Refusal::Gate) => hold_back(ctx, id),
        Ok(()) | Err(Refusal::Failed(_)) => {}
    }
}

/// Grants the next request whose keys all seem to be free. False if there is none.
pub(super) fn grant_next(ctx: &Context<'_>) -> bool {
    let mut queues = waiting::queues(ctx).borrow_mut();
    let Some(id) = queues.next_due() else {
        return false;
    };
    let keys = queues.keys_of(id);
    drop(queues);
    if let Some(keys) = keys
        && time::is_primary(ctx)
    {
        grant(ctx, id, keys.as_slice());
        waiting::queues(ctx).borrow_mut().set_tried(id);
    }
    true
}

/// Grants the request these keys. If the server refuses that, the request becomes due again when one of its keys is settled.
fn grant(ctx: &Context<'_>, id: WaiterId, keys: &[KeyId]) {
    let Some(first) = keys.first().map(KeyId::as_ref) else {
        return;
    };
    if queue::is_blocked(ctx) {
        return queue::push_key(ctx, first, Work::SettleHeldBack);
    }
    let mut names = keys.iter().map(|key| &*key.name);
    match run(ctx, first, id, &mut names) {
        Ok(()) | Err(Refusal::Failed(_)) => {}
        Err(Refusal::SlotElsewhere) => {
            let error = match slots::is_moving(ctx, first) {
                true => Error::SLOT_MOVES,
                false => Error::SLOT_HAS_LEFT,
            };
            waiters::refuse(ctx, id, &error);
        }
        Err(Refusal::Gate) => queue::push_key(ctx, first, Work::SettleHeldBack),
    }
}

/// Settles a key with waiters that has lost a hold by time. False if there is none.
pub(super) fn settle_due(ctx: &Context<'_>, now: Instant) -> bool {
    let due = waiting::queues(ctx).borrow_mut().due(now);
    due.inspect(|key| settle(ctx, key)).is_some()
}

/// Keeps the key until the server accepts writes. An upgrade whose read hold has ended is denied all the same, because that is no write.
fn hold_back(ctx: &Context<'_>, key: &KeyId) {
    ctx.select(key.db);
    let free = Lock::free();
    let settled = {
        let mut opened = ctx.open_named(&key.name, Access::Read);
        let lock = opened.value().map_or(&free, |value| &value.lock);
        let mut queues = waiting::queues(ctx).borrow_mut();
        queues.settle_lost(key.as_ref(), lock, clock::now(), settle::MOST)
    };
    for decided in &settled.decided {
        waiters::decide(ctx, decided, clock::now());
    }
    if settled.more {
        queue::settle(ctx, key.as_ref());
    }
    queue::push_key(ctx, key.as_ref(), Work::SettleHeldBack);
}

/// Keys that could not be settled the last time.
static FAILING: MainThread<RefCell<BTreeSet<KeyId>>> =
    MainThread::new(RefCell::new(BTreeSet::new()));
/// When they were last tried again.
static RETRIED: MainThread<Cell<Instant>> = MainThread::new(Cell::new(Instant::from_millis(0)));

/// How often they are tried again, in milliseconds.
const RETRY_EVERY: u64 = 1_000;

/// Records that the key could not be settled because of `why`, which is logged once. It is tried again after a pause.
fn failed(ctx: &Context<'_>, key: KeyRef<'_>, why: &str) {
    if FAILING.get(ctx).borrow_mut().insert(key.to_id()) {
        ctx.warn(&format!(
            "the lock '{}' in database {} cannot be handed over or freed: {why}. It is tried again later; other locks are not affected",
            key.name.escape_ascii(),
            key.db.0,
        ));
    }
}

/// Whether the key could not be settled the last time.
pub(super) fn is_failing(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let keys = FAILING.get(ctx).borrow();
    !keys.is_empty() && keys.contains(&key.to_id())
}

/// How many keys are failing.
pub(crate) fn failing(ctx: &Context<'_>) -> usize {
    FAILING.get(ctx).borrow().len()
}

/// The key has been settled, or need not be.
fn forget_failure(ctx: &Context<'_>, key: KeyRef<'_>) {
    let mut keys = FAILING.get(ctx).borrow_mut();
    if !keys.is_empty() {
        keys.remove(&key.to_id());
    }
}

/// Tries all failing keys again if it is time for that. The sweep calls this.
pub(super) fn retry_failing(ctx: &Context<'_>, now: Instant) {
    let retried = RETRIED.get(ctx);
    if failing(ctx) > 0 && now.millis_since(retried.get()) >= RETRY_EVERY {
        retried.set(now);
        queue::push(ctx, Work::RetryFailing(None));
    }
}

/// Settles the first failing key behind `last`, and returns it. `None` if there is none.
pub(super) fn retry_next(ctx: &Context<'_>, last: Option<KeyId>) -> Option<KeyId> {
    let after = last.map_or(Bound::Unbounded, Bound::Excluded);
    let next = {
        let failing = FAILING.get(ctx).borrow();
        failing.range((after, Bound::Unbounded)).next().cloned()
    };
    next.inspect(|key| settle(ctx, key))
}
