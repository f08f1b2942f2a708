//! Locks that the server evicts: a lock that goes is free, whoever holds it, so it is counted and
//! said in the log.
//!
//! Locks carry no TTL, so only the `allkeys-*` policies can take them. A subscription to evictions
//! makes every key-space event of the server a little dearer, so there is none until such a policy
//! is in force. The event comes after the value has gone, and right after the type's `unlink`, which
//! tells what it was.

use mortise_core::Lock;

use crate::ffi::Context;
use crate::state::{STATE, State};
use crate::turn::timers;

/// When locks come to this server, and whenever a setting has changed.
pub(crate) fn look_at_policy(ctx: &Context<'_>, state: &State) {
    if state.watches_evictions.get() {
        return;
    }
    let policy = ctx.setting_text(c"maxmemory-policy");
    if policy.is_some_and(|policy| policy.starts_with(b"allkeys")) {
        state.watches_evictions.set(ctx.subscribe_to_evictions());
    }
}

/// A lock has lost its key. A lock that is free has been released, and its key goes with it.
pub(crate) fn on_unlinked(state: &State, db: i32, name: &[u8], lock: &Lock) {
    if state.watches_evictions.get() && !lock.is_free() {
        *state.last_unlinked.borrow_mut() = Some((db, name.into()));
        timers::at_end_of_turn(state);
    }
}

/// The event loop turns: whatever lost its lock did not lose it to an eviction that is still to be told.
pub(crate) fn forget_unlinked(state: &State) {
    state.last_unlinked.take();
}

/// The server has evicted a key, of whatever type.
pub(crate) fn on_evicted(ctx: &Context<'_>, name: &[u8]) {
    STATE.with(|state| {
        let unlinked = state.last_unlinked.take();
        let was_lock = unlinked.is_some_and(|(db, last)| db == ctx.db() && *last == *name);
        if !was_lock {
            return;
        }
        if state.totals.evictions.get() == 0 {
            ctx.warn(&format!(
                "the lock '{}' was evicted though it was held: with maxmemory-policy allkeys-* \
                 locks can be lost; this is said once, INFO lock counts on",
                name.escape_ascii()
            ));
        }
        state.totals.evictions.add_one();
    });
}
