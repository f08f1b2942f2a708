//! Keys that have to be settled because a callback saw them change, a waiter left, or a lease is over.
//!
//! Callbacks must not write, replicate or wake: they mark keys here, and a timer settles the marked
//! keys before the event loop turns (`work::dirty_keys`).

use mortise_core::{KeyId, KeyRef};

use crate::ffi::Context;
use crate::keys::state::{self, Keys};
use crate::keys::subscription;
use crate::time::alarms;

/// Whether no key is marked, and none is held back.
pub(crate) fn is_empty(keys: &Keys) -> bool {
    let dirty = keys.dirty.borrow();
    dirty.now.is_empty() && dirty.held_back.is_empty()
}

/// How many are marked.
pub(crate) fn marked(keys: &Keys) -> usize {
    keys.dirty.borrow().now.len()
}

/// How many were refused.
pub(crate) fn held_back(keys: &Keys) -> usize {
    keys.dirty.borrow().held_back.len()
}

/// Marks a key at which a waiter may be granted or a grant has to be undone.
pub(crate) fn mark(ctx: &Context<'_>, key: KeyRef<'_>) {
    let key = key.to_id();
    subscription::subscribe_once(ctx);
    let mut dirty = state::get(ctx).dirty.borrow_mut();
    // A thousand waiters that leave one queue together need one settle.
    if dirty.now.back() != Some(&key) {
        dirty.now.push_back(key);
    }
    drop(dirty);
    alarms::at_end_of_turn(ctx);
}

/// The first key that is marked.
pub(crate) fn take_next(keys: &Keys) -> Option<KeyId> {
    keys.dirty.borrow_mut().now.pop_front()
}

/// The first key that was refused, once the server has accepted another one.
pub(crate) fn take_held_back(ctx: &Context<'_>) -> Option<KeyId> {
    if is_blocked(ctx) {
        return None;
    }
    state::get(ctx).dirty.borrow_mut().held_back.pop_first()
}

/// The server accepts no writes to the key now.
pub(crate) fn hold_back(keys: &Keys, key: KeyId) {
    keys.dirty.borrow_mut().held_back.insert(key);
}

/// Records that the server has refused a write by a timer, or that it may be tried again.
pub(crate) fn set_gate_closed(keys: &Keys, closed: bool) {
    keys.dirty.borrow_mut().gate_closed = closed;
}

/// The server has refused a write that a timer tried.
pub(crate) fn is_gate_closed(keys: &Keys) -> bool {
    keys.dirty.borrow().gate_closed
}

/// Nothing can be settled from a timer just now.
pub(crate) fn is_blocked(ctx: &Context<'_>) -> bool {
    is_gate_closed(state::get(ctx)) || ctx.avoid_replication_traffic()
}
