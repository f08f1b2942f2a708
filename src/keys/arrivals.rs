//! Locks that came to their keys by COPY, RESTORE or a load. They enter the lease order, and some
//! of them are replicated once more. A load may bring a million, so this is not urgent.
//!
//! In one case a timer would be too late. After a rename a restored lock is no longer under its old
//! name, and no event names the new one. But what a callback replicates goes out ahead of the
//! command that it is called from, see [`replicate_again_ahead`].

use mortise_core::{HomeKey, KeyId, KeyRef};

use crate::ffi::{Access, Context, Swap, Value};
use crate::keys::effect;
use crate::keys::leases;
use crate::keys::state::{self, Arrivals, Keys};
use crate::keys::subscription;
use crate::time::{self, alarms, clock, role};

impl Arrivals {
    /// The next one, and whether it was held back.
    fn next(&mut self, paused: bool) -> Option<(HomeKey, bool)> {
        if let Some(arrival) = self.queue.pop_front() {
            return Some((arrival, false));
        }
        if paused {
            return None;
        }
        let arrival = self.held_back.pop_front()?;
        Some((arrival, true))
    }

    fn is_restored(&self, key: KeyRef<'_>) -> bool {
        !self.restored.is_empty() && self.restored.contains_key(&self.homes.home_key(key))
    }

    /// The restored lock at the key has been replicated again, or need not be.
    fn forget_restored(&mut self, key: &HomeKey) {
        self.restored.remove(key);
    }
}

/// How many wait to be entered.
pub(crate) fn len(keys: &Keys) -> usize {
    keys.arrivals.borrow().queue.len()
}

/// How many are entered, and wait until the server's pause of writes is over.
pub(crate) fn held_back(keys: &Keys) -> usize {
    keys.arrivals.borrow().held_back.len()
}

/// There are locks to enter now.
pub(crate) fn are_due(ctx: &Context<'_>) -> bool {
    let arrivals = state::get(ctx).arrivals.borrow();
    !arrivals.queue.is_empty()
        || (!arrivals.held_back.is_empty() && !ctx.avoid_replication_traffic())
}

/// A load is complete.
pub(crate) fn on_loaded(keys: &Keys) {
    keys.loaded.set(true);
}

/// The event loop turns: checks after a load whether the AOF needs the leases of the loaded locks.
pub(crate) fn check_load(ctx: &Context<'_>) {
    if state::get(ctx).loaded.take() {
        state::get(ctx)
            .replicates_synced_again
            .set(effect::aof_begins_with_sync(ctx));
    }
}

/// A lock came to a key by COPY or from a file.
pub(crate) fn mark(ctx: &Context<'_>, key: KeyRef<'_>) {
    // It may be a copy of one that was restored just now.
    let restored = !state::get(ctx).arrivals.borrow().restored.is_empty();
    push(ctx, key, restored);
}

/// A lock came to a key by RESTORE or in a full sync.
pub(crate) fn mark_restored(ctx: &Context<'_>, key: KeyRef<'_>) {
    push(ctx, key, true);
}

fn push(ctx: &Context<'_>, key: KeyRef<'_>, restored: bool) {
    subscription::subscribe_once(ctx);
    let mut arrivals = state::get(ctx).arrivals.borrow_mut();
    let key = arrivals.homes.home_key(key);
    if restored {
        arrivals.restored.insert(key.clone(), ());
    }
    arrivals.queue.push_back(key);
    drop(arrivals);
    alarms::at_end_of_turn(ctx);
}

/// Two databases have changed places, and with them what came there.
pub(crate) fn swap(keys: &Keys, swap: Swap) {
    let Swap(one, other) = swap;
    let mut arrivals = keys.arrivals.borrow_mut();
    arrivals.homes.swap(one, other);
}

/// Whether locks that came by RESTORE or in a full sync have to be replicated once more.
fn replicates_again(ctx: &Context<'_>) -> bool {
    role::is_primary(time::state(ctx)) || state::get(ctx).replicates_synced_again.get()
}

/// Replicates a restored lock again, ahead of the command that takes it from its key: a RENAME then
/// takes the leases along.
pub(crate) fn replicate_again_ahead(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    if !state::get(ctx).arrivals.borrow().is_restored(key) || !replicates_again(ctx) {
        return;
    }
    if ctx.avoid_replication_traffic() {
        return;
    }
    let selected = ctx.db();
    ctx.select(key.db);
    effect::replicate_again(ctx, key.name, &value.lock, clock::now());
    ctx.select(selected);
}

/// What became of the first arrival.
#[derive(Debug)]
pub(crate) enum Entered {
    /// There is no lock to enter now.
    None,
    /// Settle its key next.
    Key(KeyId),
    /// Its key has been settled before: the lock was held back until the server's pause was over.
    Again,
}

/// Enters the first lock that came into the lease order.
pub(crate) fn enter_next(ctx: &Context<'_>) -> Entered {
    let paused = ctx.avoid_replication_traffic();
    let mut arrivals = state::get(ctx).arrivals.borrow_mut();
    let Some((arrival, was_held_back)) = arrivals.next(paused) else {
        return Entered::None;
    };
    let key = arrivals.homes.key_of(&arrival);
    let restored = arrivals.is_restored(key.as_ref());
    let replicates_again = restored && replicates_again(ctx);
    if replicates_again && paused {
        arrivals.held_back.push_back(arrival);
    } else if restored {
        arrivals.forget_restored(&arrival);
    }
    drop(arrivals);
    enter(ctx, key.as_ref(), replicates_again && !paused);
    match was_held_back {
        true => Entered::Again,
        false => Entered::Key(key),
    }
}

/// Takes a lock into the lease order, and replicates it again if asked to.
fn enter(ctx: &Context<'_>, key: KeyRef<'_>, replicates_again: bool) {
    ctx.select(key.db);
    let mut opened = ctx.open_named(key.name, Access::Read);
    if let Some(value) = opened.value() {
        let now = clock::now();
        leases::follow(ctx, key, value, now);
        if replicates_again {
            effect::replicate_again(ctx, key.name, &value.lock, now);
        }
    }
}
