//! Locks that the server evicts: a lock that goes is free, whoever holds it, so it is counted and
//! said in the log.
//!
//! Locks carry no TTL, so only the `allkeys-*` policies can take them. A subscription to evictions
//! makes every key-space event of the server a little dearer, so there is none until such a policy
//! is in force. The event comes after the value has gone: the type's `unlink` tells what it was.

use crate::ffi::Context;
use crate::state::{STATE, State};

/// At load time and whenever a setting has changed.
pub(crate) fn look_at_policy(ctx: &Context<'_>, state: &State) {
    if state.watches_evictions.get() {
        return;
    }
    let policy = ctx.setting_text(c"maxmemory-policy");
    if policy.is_some_and(|policy| policy.starts_with(b"allkeys")) {
        state.watches_evictions.set(ctx.subscribe_to_evictions());
    }
}

/// A lock has lost its key.
pub(crate) fn on_unlinked(state: &State, db: i32, name: &[u8]) {
    if state.watches_evictions.get() {
        let (last_db, last_name) = &mut *state.last_unlinked.borrow_mut();
        *last_db = db;
        last_name.clear();
        last_name.extend_from_slice(name);
    }
}

/// The server has evicted a key, of whatever type.
pub(crate) fn on_evicted(ctx: &Context<'_>, name: &[u8]) {
    STATE.with(|state| {
        let was_lock = {
            let (last_db, last_name) = &*state.last_unlinked.borrow();
            *last_db == ctx.db() && **last_name == *name
        };
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
