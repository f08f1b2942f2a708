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
use crate::time::clock;
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

/// The client is gone, or CLIENT UNBLOCK … ERROR ended its wait. If it was a LOCK.MAIL, its box closes soon, unless it is asked for again.
pub(crate) fn on_disconnect(ctx: &Context<'_>, blocked: BlockedId) {
    let Some(Awaits::Letters(call)) = end_wait(ctx, blocked) else {
        return;
    };
    clients(ctx).borrow_mut().set_lost(blocked);
    let boxes = boxes(ctx);
    let lost = boxes.listened(clock::now());
    boxes.mail.borrow_mut().set_lost(call.id, Some(lost));
}

/// A client stops waiting. Returns for what, if it has not been answered yet.
fn end_wait(ctx: &Context<'_>, blocked: BlockedId) -> Option<Awaits> {
    let Some((awaits, None)) = clients(ctx).borrow().get(blocked) else {
        return None;
    };
    match awaits {
        Awaits::Lock(waiter) => waiters::end(ctx, waiter, Outcome::Denied),
        Awaits::Letters(call) => clients::answer_reader(ctx, call.id, None),
    }
    Some(awaits)
}

/// The server has done with a client. One that is still connected was not lost: CLIENT UNBLOCK … ERROR looks the same until now.
pub(crate) fn on_freed(ctx: &Context<'_>, blocked: BlockedId) {
    let awaits = clients(ctx).borrow_mut().remove(blocked);
    match awaits {
        Some(Awaits::Lock(waiter)) => undelivered::not_delivered(ctx, waiter),
        Some(Awaits::Letters(call)) if call.is_lost && ctx.is_connected(call.client) => {
            let mut mail = boxes(ctx).mail.borrow_mut();
            mail.set_lost(call.id, None);
        }
        Some(Awaits::Letters(_)) | None => {}
    }
}
