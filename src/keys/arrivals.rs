//! Locks that came to their keys by COPY, RESTORE or a load. They enter the lease order, and some
//! of them are replicated once more. A load may bring a million, so this is not urgent.
//!
//! In one case a timer would be too late. After a rename a restored lock is no longer under its old
//! name, and no event names the new one. But what a callback replicates goes out ahead of the
//! command that it is called from, see [`replicate_again_ahead`].

use std::cell::{Cell, LazyCell, RefCell};

use mortise_core::{HomeKey, KeyId, KeyRef, Map};

use crate::ffi::{Access, Context, MainThread, Source, Value};
use crate::keys::effect;
use crate::keys::leases;
use crate::keys::subscription;
use crate::time::{self, clock};
use crate::work::queue::{self, Work};

static ARRIVALS: MainThread<Arrivals> = MainThread::new(Arrivals {
    restored: LazyCell::new(RefCell::default),
    loaded: Cell::new(false),
    replicates_synced_again: Cell::new(false),
});

struct Arrivals {
    /// Locks that came by RESTORE or in a full sync, so that their leases may have to be replicated.
    restored: LazyCell<RefCell<Map<HomeKey, ()>>>,
    /// A load has ended since the event loop last turned.
    loaded: Cell<bool>,
    /// The AOF needs the leases of what came in the last full sync.
    replicates_synced_again: Cell<bool>,
}

impl Arrivals {
    fn is_restored(&self, key: &HomeKey) -> bool {
        let restored = self.restored.borrow();
        !restored.is_empty() && restored.contains_key(key)
    }
}

/// A load is complete.
pub(crate) fn on_loaded(ctx: &Context<'_>) {
    ARRIVALS.get(ctx).loaded.set(true);
}

/// The event loop turns: checks after a load whether the AOF needs the leases of the loaded locks.
pub(crate) fn check_load(ctx: &Context<'_>) {
    let arrivals = ARRIVALS.get(ctx);
    if arrivals.loaded.take() {
        arrivals
            .replicates_synced_again
            .set(effect::aof_begins_with_sync(ctx));
    }
}

/// A lock came to a key by COPY or from a file.
pub(crate) fn mark(ctx: &Context<'_>, key: KeyRef<'_>) {
    // It may be a copy of one that was restored just now.
    if ARRIVALS.get(ctx).restored.borrow().is_empty() {
        subscription::subscribe_once(ctx);
        queue::push_key(ctx, key, Work::Enter);
    } else {
        mark_restored(ctx, key);
    }
}

/// A lock that was read from bytes came to a key.
pub(crate) fn on_lock_loaded(ctx: &Context<'_>, key: KeyRef<'_>, source: Source) {
    match source {
        Source::File | Source::ReplicaFile => mark(ctx, key),
        Source::Client | Source::Sync | Source::Primary | Source::Either => mark_restored(ctx, key),
    }
}

/// A lock came to a key by RESTORE or in a full sync.
fn mark_restored(ctx: &Context<'_>, key: KeyRef<'_>) {
    subscription::subscribe_once(ctx);
    let home = queue::home_key(ctx, key);
    ARRIVALS.get(ctx).restored.borrow_mut().insert(home, ());
    queue::push_key(ctx, key, Work::Enter);
}

/// Whether locks that came by RESTORE or in a full sync have to be replicated once more.
fn replicates_again(ctx: &Context<'_>) -> bool {
    time::is_primary(ctx) || ARRIVALS.get(ctx).replicates_synced_again.get()
}

/// Replicates a restored lock again, ahead of the command that takes it from its key: a RENAME then
/// takes the leases along.
pub(crate) fn replicate_again_ahead(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    let home = || queue::home_key(ctx, key);
    let arrivals = ARRIVALS.get(ctx);
    if arrivals.restored.borrow().is_empty()
        || !arrivals.is_restored(&home())
        || !replicates_again(ctx)
        || ctx.avoid_replication_traffic()
    {
        return;
    }
    let selected = ctx.db();
    ctx.select(key.db);
    effect::replicate_again(ctx, key.name, &value.lock, clock::now());
    ctx.select(selected);
}

/// Takes a lock that came into the lease order. Returns its key.
pub(crate) fn enter(ctx: &Context<'_>, home: &HomeKey) -> KeyId {
    let key = queue::key_of(ctx, home);
    ctx.select(key.db);
    let mut opened = ctx.open_named(&key.name, Access::Read);
    if let Some(value) = opened.value() {
        leases::follow(ctx, key.as_ref(), value, clock::now());
    }
    drop(opened);
    let arrivals = ARRIVALS.get(ctx);
    if arrivals.is_restored(home) {
        if replicates_again(ctx) {
            queue::push_key(ctx, key.as_ref(), Work::ReplicateLeases);
        } else {
            arrivals.restored.borrow_mut().remove(home);
        }
    }
    key
}

/// Replicates the leases of a restored lock again.
pub(crate) fn replicate_again(ctx: &Context<'_>, home: &HomeKey) {
    let removed = ARRIVALS.get(ctx).restored.borrow_mut().remove(home);
    if removed.is_none() || !replicates_again(ctx) {
        return;
    }
    let key = queue::key_of(ctx, home);
    ctx.select(key.db);
    let mut opened = ctx.open_named(&key.name, Access::Read);
    if let Some(value) = opened.value() {
        effect::replicate_again(ctx, &key.name, &value.lock, clock::now());
    }
}
