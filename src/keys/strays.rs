//! Locks that were taken from their keys while they were held.
//!
//! An event shows that a key loses its lock, but not whether the lock lives on under another name
//! (RENAME, MOVE) or is dropped (DEL, an eviction and many others). So each is a stray first. One
//! that is dropped is freed soon after, perhaps on another thread, which hands its id over; one
//! that lives on counts until its leases are over or a command names its key.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mortise_core::{Deque, Instant, StrayId, Strays};

use std::cell::RefCell;

use crate::ffi::{Context, MainThread, Value};

static STRAYS: MainThread<RefCell<Strays>> = MainThread::new(RefCell::new(Strays::new()));

/// Strays that were freed, on whatever thread, and are still counted.
static FREED: Mutex<Deque<StrayId>> = Mutex::new(Deque::new());

/// How many of those are taken out whenever a key loses its lock, so that they do not pile up.
const FEW: usize = 4;
/// How many are taken out before they are counted: some hundred microseconds of work.
const MANY: usize = 2_000;

/// Nobody panics while the list is half changed.
fn freed() -> MutexGuard<'static, Deque<StrayId>> {
    FREED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server frees a lock, on whatever thread.
pub(crate) fn on_freed(value: &Value) {
    if let Some(id) = value.stray() {
        freed().push_back(id);
    }
}

/// A lock that is held has lost its key.
pub(crate) fn enter(ctx: &Context<'_>, value: &Value, now: Instant) {
    let mut strays = STRAYS.get(ctx).borrow_mut();
    take_freed_out(&mut strays, FEW);
    if value.stray().is_none() {
        value.set_stray(strays.insert(&value.lock, now));
    }
}

/// The lock is released, or its key is known.
pub(crate) fn leave(ctx: &Context<'_>, value: &Value) {
    if let Some(id) = value.stray() {
        STRAYS.get(ctx).borrow_mut().remove(id);
        value.set_stray(None);
    }
}

/// All databases are emptied.
pub(crate) fn forget_all(ctx: &Context<'_>) {
    STRAYS.get(ctx).borrow_mut().forget_all();
}

/// Handles one that was freed, or whose lease is over. False if there is none.
pub(crate) fn step(ctx: &Context<'_>, now: Instant) -> bool {
    let mut strays = STRAYS.get(ctx).borrow_mut();
    take_freed_out(&mut strays, 1) || strays.end_next(now)
}

/// How many are held, and how many hold them.
pub(crate) fn count(ctx: &Context<'_>) -> [u64; 2] {
    let mut strays = STRAYS.get(ctx).borrow_mut();
    take_freed_out(&mut strays, MANY);
    // Each of the others had a holder, at least.
    let freed = freed().len() as u64;
    [strays.locks(), strays.holders()].map(|all| all.saturating_sub(freed))
}

/// False if there is none.
fn take_freed_out(strays: &mut Strays, most: usize) -> bool {
    let mut freed = freed();
    let any = !freed.is_empty();
    for _ in 0..most {
        let Some(id) = freed.pop_back() else { break };
        strays.remove(id);
    }
    any
}
