//! Grants to waiters that have not got the answer yet, and how they are undone.
//!
//! ```text
//!  granted ──► in flight ──┬─ reply written, or letter sent ──────────────► done
//!                          └─ the client or the box is gone before that ──► undone when the key is settled
//! ```
//!
//! A reply that the server takes and then throws away, because it closes the client in the same turn, counts as written: such a
//! grant lasts for its lease.

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeMap;

use mortise_core::{
    Decided, HomeKey, KeyRef, OwnerRef, Undelivered, UndeliveredGrant, Undo, WaiterId,
};

use crate::ffi::{Context, MainThread};
use crate::time;
use crate::work::queue::{self as work, Work};

static IN_FLIGHT: MainThread<LazyCell<RefCell<Undelivered>>> =
    MainThread::new(LazyCell::new(RefCell::default));
/// Grants to be undone when their key is settled, in the order in which they were found.
static TO_UNDO: MainThread<RefCell<BTreeMap<HomeKey, Vec<Undo>>>> =
    MainThread::new(RefCell::new(BTreeMap::new()));

/// A waiter was decided: if it was granted, that is undone unless it is delivered.
pub(super) fn decided(ctx: &Context<'_>, decided: &Decided) {
    let Some(undo) = Undo::of(decided) else {
        return;
    };
    let keys = decided.keys.as_slice().iter();
    let keys = keys.map(|key| work::home_key(ctx, key.as_ref())).collect();
    let grant = UndeliveredGrant { keys, undo };
    let mut in_flight = IN_FLIGHT.get(ctx).borrow_mut();
    in_flight.insert(decided.waiter.id, grant);
}

/// The answer of `id` is delivered now. False if it is a grant that is void, or none.
pub(super) fn delivered(ctx: &Context<'_>, id: WaiterId) -> bool {
    take(ctx, id).is_some()
}

fn take(ctx: &Context<'_>, id: WaiterId) -> Option<UndeliveredGrant> {
    IN_FLIGHT.get(ctx).borrow_mut().take(id)
}

/// The answer of `id` can no longer be delivered: undoes it if it is a grant.
pub(super) fn not_delivered(ctx: &Context<'_>, id: WaiterId) {
    if let Some(grant) = take(ctx, id) {
        undo_later(ctx, &grant, None);
    }
}

/// The owner has left the key: its undelivered grants there are void. Those of several keys are undone at the others.
pub(super) fn withdraw(ctx: &Context<'_>, key: KeyRef<'_>, owner: OwnerRef<'_>) {
    let home = work::home_key(ctx, key);
    let mut in_flight = IN_FLIGHT.get(ctx).borrow_mut();
    let void = in_flight.take_all_of(&home, owner);
    drop(in_flight);
    for grant in void {
        undo_later(ctx, &grant, Some(&home));
    }
}

/// Undoes a grant, except at the key `but`.
fn undo_later(ctx: &Context<'_>, grant: &UndeliveredGrant, but: Option<&HomeKey>) {
    if !time::is_primary(ctx) {
        return;
    }
    for home in grant.keys.iter().filter(|key| Some(*key) != but) {
        let mut to_undo = TO_UNDO.get(ctx).borrow_mut();
        let at_key = to_undo.entry(home.clone()).or_default();
        at_key.push(grant.undo.clone());
        drop(to_undo);
        work::settle(ctx, work::key_of(ctx, home).as_ref());
    }
}

/// Whether a grant at the key has to be undone.
pub(crate) fn any_at(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let to_undo = TO_UNDO.get(ctx).borrow();
    !to_undo.is_empty() && to_undo.contains_key(&work::home_key(ctx, key))
}

/// Up to `most` of the grants at the key that have to be undone, the last one first. The key is
/// settled again for the others.
pub(crate) fn take_at(ctx: &Context<'_>, key: KeyRef<'_>, most: usize) -> Vec<Undo> {
    let mut to_undo = TO_UNDO.get(ctx).borrow_mut();
    if to_undo.is_empty() {
        return Vec::new();
    }
    let home = work::home_key(ctx, key);
    let Some(at_key) = to_undo.get_mut(&home) else {
        return Vec::new();
    };
    let kept = at_key.len().saturating_sub(most);
    let taken = at_key.drain(kept..).rev().collect();
    if kept == 0 {
        to_undo.remove(&home);
    }
    drop(to_undo);
    if kept > 0 {
        work::settle(ctx, key);
    }
    taken
}

/// Forgets the grants at the key that were to be undone: its slot has left this server.
pub(crate) fn forget_at(ctx: &Context<'_>, key: KeyRef<'_>) {
    take_at(ctx, key, usize::MAX);
}

/// A server that is no longer a primary undoes nothing.
pub(crate) fn forget_all(ctx: &Context<'_>) {
    let forgotten = std::mem::take(&mut *TO_UNDO.get(ctx).borrow_mut());
    work::push(ctx, Work::FreeUndone(forgotten.into_values().flatten()));
}

/// A grant at the key cannot be undone because another undelivered one has changed its hold: that one undoes both.
pub(crate) fn merge(ctx: &Context<'_>, key: KeyRef<'_>, undo: &Undo) {
    let home = work::home_key(ctx, key);
    let mut in_flight = IN_FLIGHT.get(ctx).borrow_mut();
    in_flight.merge(&home, undo);
}
