//! Locks that the server evicts: an evicted lock is free although it is held, so it is counted and
//! logged.
//!
//! Locks carry no TTL, so only the `allkeys-*` policies can take them. A subscription to evictions makes every key-space event of the
//! server a little more expensive, so there is none until such a policy is in force. The event comes after the value has gone, and right
//! after the type's `unlink`, which shows what it was.

use std::cell::{Cell, RefCell};

use mortise_core::{KeyId, KeyRef, Lock};

use crate::ffi::{Context, MainThread};
use crate::time::alarms;
use crate::totals;

static EVICTIONS: MainThread<Evictions> = MainThread::new(Evictions {
    policy_unknown: Cell::new(false),
    watches_evictions: Cell::new(false),
    last_unlinked: RefCell::new(None),
});

struct Evictions {
    /// The setting that allows evictions has yet to be read.
    policy_unknown: Cell<bool>,
    /// The module is subscribed to evictions.
    watches_evictions: Cell<bool>,
    /// The database and the name of the last key that lost a lock that was held, until the event loop turns; kept while
    /// evictions are watched.
    last_unlinked: RefCell<Option<KeyId>>,
}

/// Reads the policy when the event loop turns, because callbacks must not ask the server for
/// settings.
pub(crate) fn read_policy_later(ctx: &Context<'_>) {
    EVICTIONS.get(ctx).policy_unknown.set(true);
    alarms::at_end_of_turn(ctx);
}

/// The event loop turns: reads the policy if that was put off.
pub(crate) fn read_policy_if_unknown(ctx: &Context<'_>) {
    if EVICTIONS.get(ctx).policy_unknown.take() {
        read_policy(ctx);
    }
}

/// When locks come to this server, and whenever a setting has changed.
pub(crate) fn read_policy(ctx: &Context<'_>) {
    if EVICTIONS.get(ctx).watches_evictions.get() {
        return;
    }
    let policy = ctx.setting_text(c"maxmemory-policy");
    if policy.is_some_and(|policy| policy.starts_with(b"allkeys")) {
        EVICTIONS
            .get(ctx)
            .watches_evictions
            .set(ctx.subscribe_to_evictions());
    }
}

/// A lock has lost its key. A lock that is free has been released, and its key goes with it.
pub(crate) fn on_unlinked(ctx: &Context<'_>, key: KeyRef<'_>, lock: &Lock) {
    if EVICTIONS.get(ctx).watches_evictions.get() && !lock.is_free() {
        *EVICTIONS.get(ctx).last_unlinked.borrow_mut() = Some(key.to_id());
        alarms::at_end_of_turn(ctx);
    }
}

/// The event loop turns: no event of an eviction follows for a key that lost its lock before.
pub(crate) fn forget_unlinked(ctx: &Context<'_>) {
    EVICTIONS.get(ctx).last_unlinked.take();
}

/// The server has evicted a key, of whatever type.
pub(crate) fn on_evicted(ctx: &Context<'_>, name: &[u8]) {
    let unlinked = EVICTIONS.get(ctx).last_unlinked.take();
    let was_lock = unlinked.is_some_and(|last| last.db == ctx.db() && *last.name == *name);
    if !was_lock {
        return;
    }
    if totals::get(ctx).evictions.get() == 0 {
        ctx.warn(&format!(
            "the lock '{}' was evicted though it was held, and others can take it: maxmemory-policy allkeys-* loses locks. Set noeviction or volatile-*, or raise maxmemory. Logged once; INFO lock counts further ones",
            name.escape_ascii()
        ));
    }
    totals::get(ctx).evictions.add_one();
}
