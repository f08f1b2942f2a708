//! The queues of this server.

use std::cell::RefCell;

use mortise_core::{KeyId, KeyRef, Queues, WaiterId};

use crate::ffi::Context;
use crate::keys::dirty;
use crate::waiting::state::{self, Waiting};

pub(crate) fn all(ctx: &Context<'_>) -> &'static RefCell<Queues> {
    &state::get(ctx).queues
}

/// Some wait at the key.
pub(crate) fn wait_at(waiting: &Waiting, key: KeyRef<'_>) -> bool {
    let queues = waiting.queues.borrow();
    !queues.is_empty() && queues.get(key).is_some()
}

/// A request by mail leaves its queue, and nobody is told.
pub(super) fn withdraw(ctx: &Context<'_>, id: WaiterId) {
    let removed = all(ctx).borrow_mut().remove(id);
    if let Some((key, _)) = removed {
        mark_if_waited_at(ctx, &key);
    }
}

/// A waiter has left the queue: those whom it kept out may be let in.
pub(super) fn mark_if_waited_at(ctx: &Context<'_>, key: &KeyId) {
    if wait_at(state::get(ctx), key.as_ref()) {
        dirty::mark_queue(ctx, key.as_ref());
    }
}
