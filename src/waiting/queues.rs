//! The queues of this server, and owners that stay away from a key for a while.

use std::cell::{LazyCell, RefCell};

use mortise_core::{KeyId, KeyRef, Left, Queues, Removed, WaiterId};

use crate::ffi::{Context, MainThread};
use crate::work::queue as work;

static QUEUES: MainThread<LazyCell<RefCell<Queues>>> =
    MainThread::new(LazyCell::new(RefCell::default));
static LEFT: MainThread<LazyCell<RefCell<Left>>> = MainThread::new(LazyCell::new(RefCell::default));

/// The queue of each key.
pub(crate) fn queues(ctx: &Context<'_>) -> &'static RefCell<Queues> {
    QUEUES.get(ctx)
}

/// Owners that have left a key for a while (`LEAVE … FOR`).
pub(crate) fn left(ctx: &Context<'_>) -> &'static RefCell<Left> {
    LEFT.get(ctx)
}

/// Whether a request waits at the key.
pub(crate) fn is_awaited(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let queues = queues(ctx).borrow();
    !queues.is_empty() && queues.get(key).is_some()
}

/// A waiter leaves its queue. If it waited for several keys, the others are settled; the caller settles the first one.
pub(super) fn remove(ctx: &Context<'_>, id: WaiterId) -> Option<Removed> {
    let removed = queues(ctx).borrow_mut().remove(id)?;
    for key in removed.keys.several().into_iter().flatten() {
        settle_if_awaited(ctx, key);
    }
    Some(removed)
}

/// Settles a key that a waiter has left: the waiters that it blocked may be granted.
pub(super) fn settle_if_awaited(ctx: &Context<'_>, key: &KeyId) {
    if is_awaited(ctx, key.as_ref()) {
        work::settle(ctx, key.as_ref());
    }
}

/// A request by mail leaves its queue, without a letter.
pub(super) fn withdraw(ctx: &Context<'_>, id: WaiterId) {
    if let Some(removed) = remove(ctx, id) {
        settle_if_awaited(ctx, removed.keys.first());
    }
}
