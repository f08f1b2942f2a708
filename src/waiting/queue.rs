//! The queues of this server.

use std::cell::RefCell;

use mortise_core::{KeyId, KeyRef, Queues, Removed, WaiterId};

use crate::ffi::Context;
use crate::waiting::state::{self, Waiting};
use crate::work::queue as work;

pub(crate) fn all(ctx: &Context<'_>) -> &'static RefCell<Queues> {
    &state::get(ctx).queues
}

/// At least one request waits at the key.
pub(crate) fn wait_at(waiting: &Waiting, key: KeyRef<'_>) -> bool {
    let queues = waiting.queues.borrow();
    !queues.is_empty() && queues.get(key).is_some()
}

/// At least one request waits for several keys at once, anywhere.
pub(crate) fn any_several(waiting: &Waiting) -> bool {
    waiting.queues.borrow().any_several()
}

/// A request by mail leaves its queue, without a letter.
pub(super) fn withdraw(ctx: &Context<'_>, id: WaiterId) {
    let removed = all(ctx).borrow_mut().remove(id);
    for key in removed.iter().flat_map(Removed::keys) {
        mark_if_waited_at(ctx, key);
    }
}

/// A request leaves its queue. If it was for several keys, this marks the other ones; the caller settles the key that it works on.
pub(super) fn remove(ctx: &Context<'_>, id: WaiterId) -> Option<Removed> {
    let removed = all(ctx).borrow_mut().remove(id)?;
    if removed.keys.is_some() {
        for key in removed.keys() {
            mark_if_waited_at(ctx, key);
        }
    }
    Some(removed)
}

/// A waiter has left the queue: the waiters that it blocked may be granted.
pub(super) fn mark_if_waited_at(ctx: &Context<'_>, key: &KeyId) {
    if wait_at(state::get(ctx), key.as_ref()) {
        work::settle(ctx, key.as_ref());
    }
}
