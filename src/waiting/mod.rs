//! Who waits, and how a waiter is answered.
//!
//! Used by `turn` and `command`. It grants nothing: only `turn::settle` does.

pub(crate) mod blocking;
pub(crate) mod mail;
mod tellings;
pub(crate) mod undelivered;
pub(crate) mod waiters;

use mortise_core::{KeyId, OwnerRef};

use crate::ffi::{Blocked, Context};
use crate::state::{STATE, State};

/// How many clients are blocked and not answered yet.
pub(crate) fn blocked(state: &State) -> u64 {
    (state.waiters.borrow().blocked() + state.post.readers()) as u64
}

/// The server asks for the reply of a client that was let go.
pub(crate) fn on_reply(ctx: &Context<'_>, blocked: Blocked) {
    if mail::knows(ctx.state(), blocked) {
        mail::on_reply(ctx, blocked);
    } else {
        waiters::on_reply(ctx, blocked);
    }
}

/// CLIENT UNBLOCK. What was decided already is delivered; else the wait ends.
pub(crate) fn on_unblock(ctx: &Context<'_>, blocked: Blocked) {
    if mail::knows(ctx.state(), blocked) {
        mail::leave(ctx.state(), blocked);
        mail::on_reply(ctx, blocked);
    } else {
        waiters::on_unblock(ctx, blocked);
    }
}

/// The client is gone.
pub(crate) fn on_disconnect(blocked: Blocked) {
    STATE.with(|state| {
        if mail::knows(state, blocked) {
            mail::leave(state, blocked);
        } else {
            waiters::on_disconnect(state, blocked);
        }
    });
}

/// The server has done with the handle.
pub(crate) fn on_freed(blocked: Blocked) {
    STATE.with(|state| {
        if mail::knows(state, blocked) {
            mail::on_freed(state, blocked);
        } else {
            waiters::on_freed(state, blocked);
        }
    });
}

/// Takes `owner` out of the queue of the key, with what it was answered and nobody told. True if there was anything.
pub(crate) fn leave(state: &State, key: &KeyId, owner: OwnerRef<'_>) -> bool {
    let requests = state.queues.borrow().requests_of(key.db, &key.name, owner);
    let waited = !requests.is_empty();
    for id in requests {
        if mail::forget(state, id) {
            state.queues.borrow_mut().remove(id);
        } else {
            waiters::answer_null(state, id);
        }
    }
    let granted = undelivered::withdraw(state, key, owner);
    let told = mail::withdraw(state, key, owner);
    waited || granted || told
}
