//! Keys that have to be settled: callbacks saw them change, a waiter left, a lease is over.
//!
//! Callbacks must not write, replicate or wake: they mark here, and a timer looks at what is marked before the event loop
//! turns (`turn::look`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use mortise_core::{Deque, KeyId, KeyRef};

use crate::ffi::{Context, MainThread};
use crate::keys::subscription;
use crate::time::alarms;

static DIRTY: MainThread<RefCell<Dirty>> = MainThread::new(RefCell::new(Dirty {
    now: Deque::new(),
    held_back: BTreeMap::new(),
    gate_closed: false,
}));

/// A key that a callback or a timer wants to have settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirtyKey {
    pub(crate) key: KeyId,
    /// The key's value may have changed other than by a command of ours, so that its lock may
    /// have owners who neither came through the queue nor by a command.
    pub(crate) recheck_holders: bool,
}

/// The keys that are marked.
#[derive(Debug)]
struct Dirty {
    now: Deque<DirtyKey>,
    /// Those that the server refused to have written just now, each once, with whether its holders are to be rechecked.
    held_back: BTreeMap<KeyId, bool>,
    /// The server refused a write that a timer tried.
    gate_closed: bool,
}

/// None is marked, and none was refused.
pub(crate) fn is_empty(ctx: &Context<'_>) -> bool {
    let dirty = DIRTY.get(ctx).borrow();
    dirty.now.is_empty() && dirty.held_back.is_empty()
}

/// How many are marked.
pub(crate) fn marked(ctx: &Context<'_>) -> usize {
    DIRTY.get(ctx).borrow().now.len()
}

/// How many were refused.
pub(crate) fn held_back(ctx: &Context<'_>) -> usize {
    DIRTY.get(ctx).borrow().held_back.len()
}

/// A waiter has left the queue of the key, or a hold is over there.
pub(crate) fn mark_queue(ctx: &Context<'_>, key: KeyRef<'_>) {
    mark(ctx, key, false);
}

/// `recheck_holders` as in [`DirtyKey`].
pub(crate) fn mark(ctx: &Context<'_>, key: KeyRef<'_>, recheck_holders: bool) {
    let key = DirtyKey {
        key: key.to_id(),
        recheck_holders,
    };
    subscription::subscribe_once(ctx);
    let mut dirty = DIRTY.get(ctx).borrow_mut();
    // A thousand waiters that leave one queue together need one look at it.
    if dirty.now.back() != Some(&key) {
        dirty.now.push_back(key);
    }
    drop(dirty);
    alarms::at_end_of_turn(ctx);
}

/// The first key that is marked.
pub(crate) fn take_next(ctx: &Context<'_>) -> Option<DirtyKey> {
    DIRTY.get(ctx).borrow_mut().now.pop_front()
}

/// The first key that was refused, once the server has accepted another one.
pub(crate) fn take_held_back(ctx: &Context<'_>) -> Option<DirtyKey> {
    if is_blocked(ctx) {
        return None;
    }
    let (key, recheck_holders) = DIRTY.get(ctx).borrow_mut().held_back.pop_first()?;
    Some(DirtyKey {
        key,
        recheck_holders,
    })
}

/// The server takes no writes to the key now.
pub(crate) fn hold_back(ctx: &Context<'_>, key: DirtyKey) {
    let mut dirty = DIRTY.get(ctx).borrow_mut();
    let recheck_holders = dirty.held_back.entry(key.key).or_default();
    *recheck_holders |= key.recheck_holders;
}

/// The server has refused a write that a timer tried, or may be tried again.
pub(crate) fn set_gate_closed(ctx: &Context<'_>, closed: bool) {
    DIRTY.get(ctx).borrow_mut().gate_closed = closed;
}

/// The server has refused a write that a timer tried.
pub(crate) fn is_gate_closed(ctx: &Context<'_>) -> bool {
    DIRTY.get(ctx).borrow().gate_closed
}

/// Nothing can be settled from a timer just now.
pub(crate) fn is_blocked(ctx: &Context<'_>) -> bool {
    is_gate_closed(ctx) || ctx.avoid_replication_traffic()
}
