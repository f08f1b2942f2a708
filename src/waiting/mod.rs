//! Waiters, and how each gets its answer.
//!
//! Used by `work` and `command`; uses `keys`, `time` and `ffi`. It grants nothing: only `work::settle` does.
//!
//! What the layer knows is in `state`, and nowhere else. A function borrows one part of it while it
//! uses it, and drops the borrow before it calls the server or another part: either may come back
//! here.

pub(crate) mod clients;
pub(crate) mod due;
pub(crate) mod left;
pub(crate) mod mail;
pub(crate) mod pending;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod readers;
mod state;
pub(crate) mod undelivered;
pub(crate) mod waiters;

use mortise_core::{KeyRef, OwnerRef};

pub(crate) use state::get as state;

use crate::error::Error;
use crate::ffi::{BlockedId, Context};
use clients::Awaited;
use state::Waiting;

/// How many clients are blocked or about to be unblocked.
pub(crate) fn blocked_clients(waiting: &Waiting) -> usize {
    waiting.clients.borrow().len()
}

/// The server asks for the reply of a client that has been unblocked.
pub(crate) fn on_reply(ctx: &Context<'_>, blocked: BlockedId) {
    let awaited = state::get(ctx).clients.borrow().get(blocked);
    match awaited {
        Some(Awaited::Lock(awaited)) => waiters::deliver(ctx, &awaited),
        Some(Awaited::Letters(awaited)) => readers::deliver(ctx, &awaited),
        None => ctx.reply_null(),
    }
}

/// CLIENT UNBLOCK. What was decided already is delivered; else the wait ends.
pub(crate) fn on_unblock(ctx: &Context<'_>, blocked: BlockedId) {
    let awaited = state::get(ctx).clients.borrow().get(blocked);
    match awaited {
        Some(Awaited::Lock(awaited)) => waiters::leave(ctx, &awaited),
        Some(Awaited::Letters(awaited)) => {
            readers::leave(ctx, blocked, &awaited);
        }
        None => {}
    }
    on_reply(ctx, blocked);
}

/// The client is gone, or CLIENT UNBLOCK … ERROR ended its wait.
pub(crate) fn on_disconnect(ctx: &Context<'_>, blocked: BlockedId) {
    let awaited = state::get(ctx).clients.borrow().get(blocked);
    match awaited {
        Some(Awaited::Lock(awaited)) => waiters::leave(ctx, &awaited),
        Some(Awaited::Letters(awaited)) => readers::on_disconnect(ctx, blocked, &awaited),
        None => {}
    }
}

/// The server no longer needs the handle.
pub(crate) fn on_freed(ctx: &Context<'_>, blocked: BlockedId) {
    let awaited = state::get(ctx).clients.borrow_mut().remove(blocked);
    match awaited {
        Some(Awaited::Lock(awaited)) => waiters::on_freed(ctx, &awaited),
        Some(Awaited::Letters(awaited)) => readers::on_freed(ctx, &awaited),
        None => {}
    }
}

/// Refuses every request of `owner` that waits at the key.
pub(crate) fn refuse_all_of(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    owner: OwnerRef<'_>,
    error: &Error,
) {
    let requests = queue::all(ctx).borrow().requests_of(key, owner);
    for id in requests {
        waiters::refuse(ctx, id, error);
    }
}

/// Removes `owner` from the queue of the key; its grants that were not delivered are void. True if it waited.
pub(crate) fn leave(ctx: &Context<'_>, key: KeyRef<'_>, owner: OwnerRef<'_>) -> bool {
    let requests = queue::all(ctx).borrow().requests_of(key, owner);
    let waited = !requests.is_empty();
    for id in requests {
        if mail::forget(state::get(ctx), id) {
            queue::remove(ctx, id);
        } else {
            waiters::answer_null(ctx, id);
        }
    }
    undelivered::withdraw(ctx, key, owner);
    waited
}
