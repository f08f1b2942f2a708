//! Keys that have to be settled: callbacks saw them change, a waiter left, a lease is over.
//!
//! Callbacks must not write, replicate or wake: they mark here, and a timer looks at what is marked
//! before the event loop turns. Everything here is urgent, somebody may be let in. Looks that have
//! no hurry are in `relook` and `arrivals`: nothing here stands behind them.

use std::collections::{BTreeMap, VecDeque};

use mortise_core::{Instant, KeyId, Lock};

use crate::ffi::{Access, Context, Refusal};
use crate::keys::evictions;
use crate::keys::leases;
use crate::keys::value::Value;
use crate::state::{Name, ROOM_KEPT, STATE, State};
use crate::time::clock;
use crate::turn::arrivals;
use crate::turn::dismissals;
use crate::turn::events;
use crate::turn::settle;
use crate::turn::slots;
use crate::turn::timers;
use crate::waiting::undelivered;
use crate::waiting::waiters;

/// A key that a callback or a timer wants to have settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirtyKey {
    pub(crate) db: i32,
    pub(crate) name: Name,
    /// The key's value may have changed other than by a command of ours, so that its lock may
    /// have owners who neither came through the queue nor by a command.
    pub(crate) recheck_holders: bool,
}

/// The keys that are marked.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    now: VecDeque<DirtyKey>,
    /// Those that the server refused to have written just now, each once, with whether its holders are to be rechecked.
    held_back: BTreeMap<(i32, Name), bool>,
    /// The server refused a write that a timer tried.
    gate_closed: bool,
}

impl Dirty {
    /// None is marked, and none was refused.
    pub(crate) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.held_back.is_empty()
    }

    /// Some are marked.
    pub(crate) fn any_now(&self) -> bool {
        !self.now.is_empty()
    }

    /// How many are marked.
    pub(crate) fn marked(&self) -> usize {
        self.now.len()
    }

    /// How many were refused.
    pub(crate) fn held_back(&self) -> usize {
        self.held_back.len()
    }
}

/// A waiter has left the queue of the key, or a hold is over there.
pub(crate) fn mark_queue(db: i32, name: &[u8]) {
    mark(db, name, false);
}

fn mark(db: i32, name: &[u8], recheck_holders: bool) {
    let key = DirtyKey {
        db,
        name: name.into(),
        recheck_holders,
    };
    STATE.with(|state| {
        Context::with_detached(|ctx| events::subscribe_once(ctx, state));
        let mut dirty = state.dirty.borrow_mut();
        // A thousand waiters that leave one queue together need one look at it.
        if dirty.now.back() != Some(&key) {
            dirty.now.push_back(key);
        }
        drop(dirty);
        timers::at_end_of_turn(state);
    });
}

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn unlinked(db: i32, name: &[u8], value: &Value) {
    let waited_at = STATE.with(|state| {
        arrivals::retell_ahead(state, db, name, value);
        leases::forget(state, db, name, value);
        evictions::on_unlinked(state, db, name, &value.lock);
        waiters::wait_at(state, db, name)
    });
    if waited_at {
        STATE.with(|state| {
            state.queues.borrow_mut().forget_holders(db as u32, name);
        });
        mark(db, name, true);
    }
}

/// Looks at the first key. False if there is none to look at now.
pub(crate) fn look_at_next(ctx: &Context<'_>, state: &State) -> bool {
    let next = {
        let mut dirty = state.dirty.borrow_mut();
        let next = dirty.now.pop_front();
        if next.is_none() {
            dirty.now.shrink_to(ROOM_KEPT);
        }
        next
    };
    match next.or_else(|| next_held_back(ctx, state)) {
        Some(key) => look_at(ctx, state, key),
        None => return false,
    }
    true
}

/// A key that was refused, once the server has accepted another one.
fn next_held_back(ctx: &Context<'_>, state: &State) -> Option<DirtyKey> {
    if is_blocked(ctx, state) {
        return None;
    }
    let ((db, name), recheck_holders) = state.dirty.borrow_mut().held_back.pop_first()?;
    Some(DirtyKey {
        db,
        name,
        recheck_holders,
    })
}

/// Looks at a key with waiters that has lost a hold by time. False if there is none.
pub(crate) fn look_at_due(ctx: &Context<'_>, state: &State, now: Instant) -> bool {
    let Some(key) = state.queues.borrow_mut().due(now) else {
        return false;
    };
    let due = DirtyKey {
        db: key.db as i32,
        name: (*key.name).into(),
        recheck_holders: false,
    };
    look_at(ctx, state, due);
    true
}

/// Nothing can be settled from a timer just now.
pub(crate) fn is_blocked(ctx: &Context<'_>, state: &State) -> bool {
    state.dirty.borrow().gate_closed || ctx.avoid_replication_traffic()
}

/// Settles the key if that can matter to anybody.
pub(crate) fn look_at(ctx: &Context<'_>, state: &State, key: DirtyKey) {
    let (db, name) = (key.db, &*key.name);
    let awaited = waiters::wait_at(state, db, name) || undelivered::any_at(state, db, name);
    if !awaited || !state.primary.get() {
        return;
    }
    if is_blocked(ctx, state) {
        return hold_back(ctx, state, key);
    }
    match settle::call(ctx, db, name, key.recheck_holders) {
        Ok(()) => {}
        Err(Refusal::SlotElsewhere) => {
            if !slots::may_wait_on(ctx, state, db, name) {
                undelivered::forget_at(state, db, name);
                dismissals::send_away(state, db, name);
            }
        }
        Err(Refusal::Gate) => {
            // What is marked besides would be refused as well.
            state.dirty.borrow_mut().gate_closed = true;
            hold_back(ctx, state, key);
        }
    }
}

/// The server takes no writes now. But whose upgrade has lost its read hold is told so: that changes nothing.
fn hold_back(ctx: &Context<'_>, state: &State, dirty: DirtyKey) {
    ctx.select(dirty.db);
    let free = Lock::free();
    let settled = {
        let mut key = ctx.open_named(&dirty.name, Access::Read);
        let lock = key.value().map_or(&free, |value| &value.lock);
        let mut queues = state.queues.borrow_mut();
        let (db, now) = (dirty.db as u32, clock::now());
        queues.settle_lost_unchanged(db, &dirty.name, lock, now, settle::MOST)
    };
    let key = KeyId {
        db: dirty.db as u32,
        name: (*dirty.name).into(),
    };
    for decided in &settled.decided {
        waiters::decide(state, &key, decided, clock::now());
    }
    if settled.more {
        mark_queue(dirty.db, &dirty.name);
    }
    let mut marked = state.dirty.borrow_mut();
    let recheck_holders = marked.held_back.entry((dirty.db, dirty.name)).or_default();
    *recheck_holders |= dirty.recheck_holders;
}

/// Every 50 ms: the first key that was refused tries again, and the end of the turn sees to the others if it succeeds.
pub(crate) fn try_held_back(ctx: &Context<'_>, state: &State) {
    state.dirty.borrow_mut().gate_closed = false;
    let Some(first) = next_held_back(ctx, state) else {
        return;
    };
    look_at(ctx, state, first);
    if !state.dirty.borrow().gate_closed {
        timers::at_end_of_turn(state);
    }
}
