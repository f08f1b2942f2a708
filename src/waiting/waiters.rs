//! Blocked requests: from the moment they wait to the moment their client has its reply.
//!
//! ```text
//!  wait ──► queued ──┬─ granted by settle ──────────► decided ──► wake list ──► delivered ──► freed
//!                    ├─ time is up, WRONGTYPE, … ───►    │                          │
//!                    └─ CLIENT UNBLOCK, disconnected ────┘ (answered on the spot)   │
//!                                                     granted and gone: given back ◄┘
//! ```
//!
//! A waiter is decided once, here, on the module's own state. A decided one goes onto the wake list, which a timer drains. Nothing else
//! unblocks a client, so between the decision and its delivery the client can only disappear. A grant that could not be delivered is
//! undone, see `undelivered`.

use mortise_core::mail::{Letter, Outcome};
use mortise_core::{Decided, Instant, KeyId, KeyList, Removed, Waiter, WaiterId};

use crate::error::Error;
use crate::ffi::{Blocked, Context, Viewer};
use crate::totals;
use crate::waiting::clients::AwaitedLock;
use crate::waiting::mail;
use crate::waiting::queue;
use crate::waiting::state::{self, Waiting};
use crate::waiting::undelivered;
use crate::work::queue as work;

/// A client that was blocked just now.
pub(super) fn add(waiting: &Waiting, waiter: WaiterId, blocked: Blocked) {
    waiting.clients.borrow_mut().add_waiter(blocked, waiter);
}

/// A settle has decided a waiter of the key.
pub(crate) fn decide(ctx: &Context<'_>, key: &KeyId, decided: &Decided, now: Instant) {
    let key = decided.key(key);
    undelivered::decided(ctx, key, decided);
    let outcome = Outcome::of(decided, now, |error| text(&error.into()));
    answer(ctx, key, decided.keys.as_ref(), &decided.waiter, outcome);
}

fn text(error: &Error) -> Box<str> {
    error.to_string().into()
}

/// Answers a waiter that has left its queue: by a letter, or its client, which is blocked.
fn answer(
    ctx: &Context<'_>,
    key: &KeyId,
    keys: Option<&KeyList>,
    waiter: &Waiter,
    outcome: Outcome,
) {
    if !mail::is_expected(state::get(ctx), waiter.id) {
        return answer_client(ctx, waiter.id, outcome);
    }
    let letter = Letter::of(key.clone(), keys.cloned(), waiter, outcome);
    mail::post(ctx, letter);
}

/// The ACL user that gets the reply of a waiter.
pub(crate) fn viewer(ctx: &Context<'_>, id: WaiterId) -> Viewer {
    let mail = state::get(ctx).post.mail.borrow();
    if let Some(user) = mail.user_of(id) {
        return Viewer::named(user);
    }
    let queues = queue::all(ctx).borrow();
    let client = queues
        .waiter(id)
        .map_or(0, |(_, waiter)| waiter.terms.client);
    Viewer::named(&ctx.user_of_client(client))
}

/// The waiter can never be granted.
pub(crate) fn refuse(ctx: &Context<'_>, id: WaiterId, error: &Error) {
    end(ctx, id, Outcome::Refused(text(error)));
}

/// A waiter leaves its queue with an answer. Returns its key if it still waited; if it waited for several keys, all of them are marked.
fn end(ctx: &Context<'_>, id: WaiterId, outcome: Outcome) -> Option<KeyId> {
    let Removed { key, waiter, keys } = queue::remove(ctx, id)?;
    answer(ctx, &key, keys.as_ref(), &waiter, outcome);
    Some(key)
}

/// The owner of a waiter has left the key.
pub(crate) fn answer_null(ctx: &Context<'_>, id: WaiterId) {
    end(ctx, id, Outcome::Denied);
}

fn answer_client(ctx: &Context<'_>, id: WaiterId, outcome: Outcome) {
    let mut clients = state::get(ctx).clients.borrow_mut();
    let blocked = clients.answer_waiter(id, outcome);
    drop(clients);
    if let Some(blocked) = blocked {
        work::wake(ctx, blocked);
    }
}

/// Answers one waiter whose time is up. False if there is none.
pub(crate) fn time_one_out(ctx: &Context<'_>, now: Instant) -> bool {
    let Some(id) = queue::all(ctx).borrow().timed_out(now) else {
        return false;
    };
    totals::get(ctx).timeouts.add_one();
    if let Some(key) = end(ctx, id, Outcome::Denied) {
        queue::mark_if_waited_at(ctx, &key);
    }
    true
}

/// CLIENT UNBLOCK, or the client is gone: one that has not been answered yet stops waiting.
pub(super) fn leave(ctx: &Context<'_>, awaited: &AwaitedLock) {
    if awaited.answer.is_none()
        && let Some(key) = end(ctx, awaited.waiter, Outcome::Denied)
    {
        queue::mark_if_waited_at(ctx, &key);
    }
}

/// The server asks for the reply of a client.
pub(super) fn deliver(ctx: &Context<'_>, awaited: &AwaitedLock) {
    match &awaited.answer {
        // Except if its owner has left the key meanwhile.
        Some(Outcome::Granted { token, .. }) if undelivered::delivered(ctx, awaited.waiter) => {
            ctx.reply_integer(token.get() as i64);
        }
        Some(Outcome::Refused(error)) => ctx.reply_error(error),
        Some(Outcome::Granted { .. } | Outcome::Denied) | None => ctx.reply_null(),
    }
}

/// The server has done with a client. A grant that was delivered is known no more.
pub(super) fn on_freed(ctx: &Context<'_>, awaited: &AwaitedLock) {
    undelivered::not_delivered(ctx, awaited.waiter);
}
