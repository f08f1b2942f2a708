//! Waiters, and how each gets its answer.
//!
//! Used by `work` and `command`; uses `keys`, `time` and `ffi`. It grants nothing: only `work::settle` does.
//!
//! A function borrows one part of the state while it uses it, and drops the borrow before it calls the server or another part: either may
//! come back here.

pub(crate) mod clients;
pub(crate) mod mail;
pub(crate) mod pending;
mod queues;
pub(crate) mod undelivered;
pub(crate) mod waiters;

use mortise_core::mail::Outcome;

use crate::ffi::{BlockedId, Context};
use clients::Awaits;

pub(crate) use clients::{arm, clients};
pub(crate) use mail::boxes;
pub(crate) use queues::{is_awaited, left, queues};

/// The server asks for the reply of a client that has been unblocked.
pub(crate) fn on_reply(ctx: &Context<'_>, blocked: BlockedId) {
    let client = clients(ctx).borrow().get(blocked);
    match client {
        Some((_, Some(Outcome::Refused(error)))) => ctx.reply_error(&error),
        Some((Awaits::Letters(call), _)) => mail::reply(ctx, call),
        // Except if its owner has left the key meanwhile.
        Some((Awaits::Lock(waiter), Some(Outcome::Granted { token, .. })))
            if undelivered::delivered(ctx, waiter) =>
        {
            ctx.reply_integer(token.get() as i64);
        }
        _ => ctx.reply_null(),
    }
}

/// CLIENT UNBLOCK. What was decided already is delivered; else the wait ends.
pub(crate) fn on_unblock(ctx: &Context<'_>, blocked: BlockedId) {
    end_wait(ctx, blocked);
    on_reply(ctx, blocked);
}

/// Ends the wait of a client, unless it has been answered: it is gone, or somebody has ended its wait by CLIENT UNBLOCK.
pub(crate) fn end_wait(ctx: &Context<'_>, blocked: BlockedId) {
    let client = clients(ctx).borrow().get(blocked);
    match client {
        Some((Awaits::Lock(waiter), None)) => waiters::end(ctx, waiter, Outcome::Denied),
        Some((Awaits::Letters(call), None)) => clients::answer_reader(ctx, call.id, None),
        Some((_, Some(_))) | None => {}
    }
}

/// The server has done with a client. A grant that it did not get is undone. If it was the newest LOCK.MAIL of a box and its connection is
/// closed, the box closes soon, unless it is asked for again.
pub(crate) fn on_freed(ctx: &Context<'_>, blocked: BlockedId) {
    let client = clients(ctx).borrow_mut().remove(blocked);
    match client {
        Some((Awaits::Lock(waiter), _)) => undelivered::not_delivered(ctx, waiter),
        // A newer LOCK.MAIL had come.
        Some((Awaits::Letters(_), Some(Outcome::Refused(_)))) | None => {}
        Some((Awaits::Letters(call), _)) => mail::on_reader_freed(ctx, call),
    }
}
