//! Requests that wait: from the decision about each to its answer.
//!
//! ```text
//!  queued ──┬─ granted by settle ────────────────────►┬─► blocked: a timer wakes its client ──► delivered ──► freed
//!           ├─ time is up, WRONGTYPE, … ─────────────►│                                                         │
//!           └─ CLIENT UNBLOCK, disconnected, LEAVE ──►┴─► by mail: a letter              granted and gone: undone
//! ```
//!
//! A waiter is decided once, on the module's own state.

use mortise_core::mail::{Letter, Outcome};
use mortise_core::{Decided, Instant, KeyList, KeyRef, OwnerRef, Verdict, Waiter, WaiterId};

use crate::error::Error;
use crate::ffi::{Context, Viewer};
use crate::totals::{self, Total};
use crate::waiting::queues::{remove, settle_if_awaited};
use crate::waiting::{self, clients, undelivered};

/// A settle has decided a waiter.
pub(crate) fn decide(ctx: &Context<'_>, decided: &Decided, now: Instant) {
    undelivered::decided(ctx, decided);
    if matches!(decided.verdict, Verdict::Denied) && decided.waiter.until <= now {
        totals::add(ctx, Total::Timeouts);
    }
    let outcome = Outcome::of(decided, now, |error| Error::from(error).text().into());
    answer(ctx, &decided.keys, &decided.waiter, outcome);
}

/// Answers a waiter that has left its queue: by a letter, or its client, which is blocked.
fn answer(ctx: &Context<'_>, keys: &KeyList, waiter: &Waiter, outcome: Outcome) {
    let boxes = waiting::boxes(ctx);
    if !boxes.mail.borrow().is_expected(waiter.id) {
        return clients::answer_waiter(ctx, waiter.id, outcome);
    }
    let letter = Letter::of(keys.clone(), waiter, outcome);
    boxes.post(ctx, letter);
}

/// The ACL user that gets the reply of a waiter.
pub(crate) fn viewer(ctx: &Context<'_>, id: WaiterId) -> Viewer {
    let mail = waiting::boxes(ctx).mail.borrow();
    if let Some(user) = mail.user_of(id) {
        return Viewer::named(user);
    }
    let queues = waiting::queues(ctx).borrow();
    let waiter = queues.waiter(id);
    let client = waiter.map_or(0, |(_, waiter)| waiter.terms.client);
    Viewer::named(&ctx.user_of_client(client))
}

/// The waiter can never be granted. The caller settles its key.
pub(crate) fn refuse(ctx: &Context<'_>, id: WaiterId, error: &Error) {
    let outcome = Outcome::Refused(error.text().into());
    if let Some(removed) = remove(ctx, id) {
        answer(ctx, &removed.keys, &removed.waiter, outcome);
    }
}

/// The wait is over: the waiters that it blocked may be granted.
pub(super) fn end(ctx: &Context<'_>, id: WaiterId, outcome: Outcome) {
    if let Some(removed) = remove(ctx, id) {
        answer(ctx, &removed.keys, &removed.waiter, outcome);
        settle_if_awaited(ctx, removed.keys.first());
    }
}

/// Answers one waiter whose time is up. False if there is none.
pub(crate) fn time_one_out(ctx: &Context<'_>, now: Instant) -> bool {
    let Some(id) = waiting::queues(ctx).borrow().timed_out(now) else {
        return false;
    };
    totals::add(ctx, Total::Timeouts);
    end(ctx, id, Outcome::Denied);
    true
}

/// Refuses every request of `owner` that waits at the key, which the caller settles.
pub(crate) fn refuse_all_of(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    owner: OwnerRef<'_>,
    error: &Error,
) {
    let requests = waiting::queues(ctx).borrow().requests_of(key, owner);
    for id in requests {
        refuse(ctx, id, error);
    }
}

/// Removes `owner` from the queue of the key, which the caller settles; its grants that were not delivered are void. True if it waited.
pub(crate) fn leave(ctx: &Context<'_>, key: KeyRef<'_>, owner: OwnerRef<'_>) -> bool {
    let requests = waiting::queues(ctx).borrow().requests_of(key, owner);
    let waited = !requests.is_empty();
    for id in requests {
        let is_by_mail = waiting::boxes(ctx).mail.borrow_mut().forget_request(id);
        if let Some(removed) = remove(ctx, id)
            && !is_by_mail
        {
            answer(ctx, &removed.keys, &removed.waiter, Outcome::Denied);
        }
    }
    undelivered::withdraw(ctx, key, owner);
    waited
}
