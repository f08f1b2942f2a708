//! Keys that callbacks saw change. Callbacks must not write, replicate or wake: they mark here,
//! and a timer looks at what is marked before the event loop turns.
//!
//! One thing comes too late for a timer. A lock that was restored and then renamed is found under
//! its old name no more, and nobody tells the new one. What a callback replicates goes out ahead of
//! the command that it is called from: here just what is wanted, see [`unlinked`].

use mortise_core::{KeyId, Lock};

use crate::ffi::{Access, Context, Refusal};
use crate::keys::effect;
use crate::keys::evictions;
use crate::keys::leases;
use crate::keys::value::Value;
use crate::state::{DirtyKey, ROOM_KEPT, STATE, State, Swap};
use crate::time::clock;
use crate::turn::events;
use crate::turn::settle;
use crate::turn::timers;
use crate::waiting::waiters;

/// A lock came to a key by COPY or from a file.
pub(crate) fn mark(db: i32, name: &[u8]) {
    // It may be a copy of one that was restored just now.
    let restored = STATE.with(|state| !state.restored.borrow().is_empty());
    if restored {
        mark_restored(db, name);
    } else {
        push(db, name, true);
    }
}

/// A lock came to a key by RESTORE or in a full sync.
pub(crate) fn mark_restored(db: i32, name: &[u8]) {
    STATE.with(|state| state.restored.borrow_mut().insert((db, name.into())));
    push(db, name, true);
}

/// A waiter has left the queue of the key, or a hold is over there.
pub(crate) fn mark_queue(db: i32, name: &[u8]) {
    push(db, name, false);
}

fn push(db: i32, name: &[u8], recheck_holders: bool) {
    let key = DirtyKey {
        db,
        name: name.into(),
        recheck_holders,
    };
    STATE.with(|state| {
        Context::with_detached(|ctx| events::subscribe_once(ctx, state));
        let mut dirty = state.dirty.borrow_mut();
        // A thousand waiters that leave one queue together need one look at it.
        if dirty.back() != Some(&key) {
            dirty.push_back(key);
        }
        drop(dirty);
        timers::at_end_of_turn(state);
    });
}

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn unlinked(db: i32, name: &[u8], value: &Value) {
    let waited_at = STATE.with(|state| {
        if is_restored(state, db, name) && retells(state) {
            retell_ahead(db, name, value);
        }
        leases::forget(state, db, name, value);
        evictions::on_unlinked(state, db, name, &value.lock);
        waiters::wait_at(state, db, name)
    });
    if waited_at {
        STATE.with(|state| {
            state.queues.borrow_mut().forget_holders(db as u32, name);
        });
        push(db, name, true);
    }
}

/// The lock at the key came by RESTORE or in a full sync, and no timer has looked at it yet.
fn is_restored(state: &State, db: i32, name: &[u8]) -> bool {
    let restored = state.restored.borrow();
    !restored.is_empty() && restored.contains(&(db, name.into()))
}

/// Locks that came by RESTORE or in a full sync are to be told of once more.
fn retells(state: &State) -> bool {
    state.primary.get() || state.retells_synced.get()
}

/// Tells of a restored lock ahead of the command that takes it from its key: a RENAME then takes the leases along.
fn retell_ahead(db: i32, name: &[u8], value: &Value) {
    Context::with_detached(|ctx| {
        if ctx.avoid_replication_traffic() {
            return;
        }
        let selected = ctx.db();
        ctx.select(db);
        effect::retell(ctx, name, &value.lock, clock::now());
        ctx.select(selected);
    });
}

/// Marks every key of `db`, or of all databases, where somebody waits.
pub(crate) fn mark_queues(state: &State, db: Option<u32>) {
    let queues = state.queues.borrow();
    if queues.is_empty() {
        return;
    }
    let wanted = |found: u32| db.is_none_or(|db| db == found);
    // They are held back anew if need be; in a cluster this is done again and again while a gate is closed.
    state.held_back.borrow_mut().retain(|key| {
        let found = key.db as u32;
        !wanted(found) || queues.get(found, &key.name).is_none()
    });
    let mut dirty = state.dirty.borrow_mut();
    for (found, name, _) in queues.iter() {
        if wanted(found) {
            dirty.push_back(DirtyKey {
                db: found as i32,
                name: (**name).into(),
                recheck_holders: true,
            });
        }
    }
    timers::at_end_of_turn(state);
}

/// Two databases have changed places, and with them what was marked there.
pub(crate) fn swap(state: &State, swap: Swap) {
    let (mut dirty, mut held_back) = (state.dirty.borrow_mut(), state.held_back.borrow_mut());
    for key in dirty.iter_mut().chain(held_back.iter_mut()) {
        key.db = swap.of(key.db);
    }
    let mut restored = state.restored.borrow_mut();
    *restored = restored
        .drain()
        .map(|(db, name)| (swap.of(db), name))
        .collect();
}

fn next(state: &State) -> Option<DirtyKey> {
    let mut dirty = state.dirty.borrow_mut();
    let next = dirty.pop_front();
    if next.is_none() {
        dirty.shrink_to(ROOM_KEPT);
    }
    next
}

/// Looks at the first key. False if there is none.
pub(crate) fn look_at_next(ctx: &Context<'_>, state: &State) -> bool {
    let Some(key) = next(state) else {
        return false;
    };
    let DirtyKey {
        db,
        ref name,
        recheck_holders,
    } = key;
    let restored = is_restored(state, db, name);
    let retells = restored && retells(state);
    let later = retells && ctx.avoid_replication_traffic();
    if restored && !later {
        told(state, db, name);
    }
    if recheck_holders || retells {
        enter(ctx, db, name, retells && !later);
    }
    let awaited = waiters::wait_at(state, db, name) || waiters::undelivered_at(state, db, name);
    if !awaited || !state.primary.get() {
        if later {
            state.held_back.borrow_mut().push_back(key);
        }
        return true;
    }
    if state.gate_closed.get() || ctx.avoid_replication_traffic() {
        hold_back(ctx, state, key);
        return true;
    }
    match settle::call(ctx, db, name, recheck_holders) {
        Ok(()) => {}
        Err(Refusal::SlotElsewhere) => waiters::send_away(state, db, name),
        Err(Refusal::Gate) => {
            // What is marked besides would be refused as well.
            state.gate_closed.set(true);
            hold_back(ctx, state, key);
        }
    }
    true
}

/// The restored lock at the key has been told of, or need not be.
fn told(state: &State, db: i32, name: &[u8]) {
    let mut restored = state.restored.borrow_mut();
    restored.remove(&(db, name.into()));
    if restored.is_empty() {
        restored.shrink_to(ROOM_KEPT);
    }
}

/// The server takes no writes now. But whose slot has left, or whose upgrade has lost its read hold, is told so: that
/// changes nothing.
fn hold_back(ctx: &Context<'_>, state: &State, dirty: DirtyKey) {
    if settle::slot_is_elsewhere(ctx, dirty.db, &dirty.name) {
        waiters::send_away(state, dirty.db, &dirty.name);
        told(state, dirty.db, &dirty.name);
        return;
    }
    ctx.select(dirty.db);
    let free = Lock::free();
    let settled = {
        let mut key = ctx.open_named(&dirty.name, Access::Read);
        let lock = key.value().map_or(&free, |value| &value.lock);
        let mut queues = state.queues.borrow_mut();
        queues.settle_lost_unchanged(dirty.db as u32, &dirty.name, lock, clock::now())
    };
    let key = KeyId {
        db: dirty.db as u32,
        name: (*dirty.name).into(),
    };
    for decided in &settled.decided {
        waiters::decide(state, &key, decided, clock::now());
    }
    state.held_back.borrow_mut().push_back(dirty);
}

/// Every 50 ms: the first key that was refused tries again, and the others if it succeeds.
pub(crate) fn try_held_back(ctx: &Context<'_>, state: &State) {
    state.gate_closed.set(false);
    if state.held_back.borrow().is_empty() || ctx.avoid_replication_traffic() {
        return;
    }
    let first = state.held_back.borrow_mut().pop_front();
    if let Some(first) = first {
        state.dirty.borrow_mut().push_front(first);
        look_at_next(ctx, state);
    }
    if !state.gate_closed.get() {
        let mut held_back = state.held_back.borrow_mut();
        state.dirty.borrow_mut().extend(held_back.drain(..));
        held_back.shrink_to(ROOM_KEPT);
        timers::at_end_of_turn(state);
    }
}

/// Takes a lock that came by COPY, RESTORE or a load into the lease order, and retells it if asked to.
fn enter(ctx: &Context<'_>, db: i32, name: &[u8], retells: bool) {
    ctx.select(db);
    let mut key = ctx.open_named(name, Access::Read);
    if let Some(value) = key.value() {
        let now = clock::now();
        leases::follow(ctx.state(), db, name, value, now);
        if retells {
            effect::retell(ctx, name, &value.lock, now);
        }
    }
}
