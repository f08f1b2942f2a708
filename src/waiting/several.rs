//! A request for several keys that cannot be granted at once: decides whether it may wait. It enters all its queues in one instant, or
//! none.

use mortise_core::mail::BoxId;
use mortise_core::{
    Instant, KeyId, KeyList, Member, Observed, OwnerRef, Request, WaitPlan, Waiter, WaiterId,
};

use crate::config;
use crate::error::Error;
use crate::ffi::Context;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::{blocking, due, queue, state, waiters};
use crate::work::queue as work;

/// One of the keys as the request has found it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: KeyId,
    /// Nobody waits there, and the lock admits the request.
    pub(crate) is_ready: bool,
    /// Who holds the lock.
    pub(crate) held: Observed,
}

/// A request that stands at the end of all its queues, and how it may stay there. Nobody gets its result yet, and no other
/// request has moved: see [`expect`], [`block`], [`let_past`] and [`withdraw`].
#[derive(Debug)]
pub(crate) struct Enqueued {
    pub(crate) id: WaiterId,
    plan: WaitPlan,
}

/// Enqueues a request.
///
/// # Errors
/// The keys of the cycle that the wait would close. It is in no queue then.
pub(crate) fn enqueue(
    ctx: &Context<'_>,
    places: Vec<Place>,
    request: &Request<'_>,
    now: Instant,
    until: Instant,
) -> Result<Enqueued, Vec<KeyId>> {
    let mut queues = queue::all(ctx).borrow_mut();
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: request.owner.to_owner(),
        terms: request.terms,
        since: now,
        until,
    };
    let members: Vec<_> = places
        .iter()
        .map(|place| Member {
            key: place.key.as_ref(),
            ready: place.is_ready,
        })
        .collect();
    queues.push_several(&members, &waiter);
    for Place { key, held, .. } in places {
        queues.observe(key.as_ref(), held);
    }
    let mut plan = queues.plan_several(id, now);
    match plan.deadlock.take() {
        None => Ok(Enqueued { id, plan }),
        Some(cycle) => {
            queues.remove(id);
            Err(cycle)
        }
    }
}

/// Sends the answer to the box.
///
/// # Errors
/// [`Error::MaxQueued`] or [`Error::BoxFull`] if too many wait. The request is in no queue then.
pub(crate) fn expect(
    ctx: &Context<'_>,
    Enqueued { id, plan }: Enqueued,
    keys: usize,
    mailbox: Mailbox<'_>,
    now: Instant,
) -> Result<BoxId, Error> {
    if let Err(error) = mail::check_room(ctx, mailbox, keys as u64) {
        withdraw(ctx, id);
        return Err(error);
    }
    blocking::make_moves(ctx, &plan);
    let mailbox = mailbox.open(ctx, now);
    mail::expect_several(state::get(ctx), id, mailbox, keys);
    due::arm(ctx);
    Ok(mailbox)
}

/// Blocks the client that sent the request. False if the server does not let it be blocked: the request is in no queue then.
///
/// # Errors
/// [`Error::MaxWaiters`] if too many wait. The request is in no queue then.
pub(crate) fn block(ctx: &Context<'_>, Enqueued { id, plan }: Enqueued) -> Result<bool, Error> {
    let max = config::max_waiters(ctx);
    if blocking::blocked(state::get(ctx)) >= max {
        withdraw(ctx, id);
        return Err(Error::MaxWaiters(max));
    }
    let Some(blocked) = ctx.block() else {
        withdraw(ctx, id);
        return Ok(false);
    };
    blocking::make_moves(ctx, &plan);
    waiters::add(state::get(ctx), id, blocked);
    due::arm(ctx);
    Ok(true)
}

/// Whether the request stands first in all its queues once others have moved as planned. Then they have moved, and otherwise the request is in no
/// queue any more.
pub(crate) fn let_past(ctx: &Context<'_>, Enqueued { id, plan }: &Enqueued) -> bool {
    match plan.is_first {
        true => blocking::make_moves(ctx, plan),
        false => withdraw(ctx, *id),
    }
    plan.is_first
}

/// The request, which stood at the end of all its queues, leaves them without a result.
pub(crate) fn withdraw(ctx: &Context<'_>, id: WaiterId) {
    queue::remove(ctx, id);
}

/// The request of `owner` that waits by mail for exactly these keys, if it waits at one of them at all.
///
/// # Errors
/// [`Error::WaitsHere`] if it waits there for anything else, or not by mail, or is not `by_mail` now.
pub(crate) fn queued_already(
    ctx: &Context<'_>,
    keys: &KeyList,
    owner: OwnerRef<'_>,
    by_mail: bool,
) -> Result<Option<WaiterId>, Error> {
    let queues = queue::all(ctx).borrow();
    if queues.is_empty() {
        return Ok(None);
    }
    let mut waiting = keys.as_slice().iter();
    let requests = waiting.find_map(|key| {
        let requests = queues.requests_of(key.as_ref(), owner);
        requests.first().copied()
    });
    let Some(id) = requests else { return Ok(None) };
    let same = queues.keys_of(id).is_some_and(|its| its.is_same(keys));
    match same && by_mail && mail::is_expected(state::get(ctx), id) {
        true => Ok(Some(id)),
        false => Err(Error::WaitsHere),
    }
}

/// The request `id`, which waits by mail, is repeated. It keeps its place.
///
/// # Errors
/// [`Error::MaxQueued`] or [`Error::BoxFull`] if there is no room in the box. Nothing has changed.
pub(crate) fn take_over(
    ctx: &Context<'_>,
    id: WaiterId,
    keys: &KeyList,
    request: &Request<'_>,
    until: Instant,
    mailbox: Mailbox<'_>,
    now: Instant,
) -> Result<BoxId, Error> {
    let keys = keys.as_slice();
    mail::check_move(ctx, id, mailbox, keys.len() as u64)?;
    let mut queues = queue::all(ctx).borrow_mut();
    let changed = queues.take_over(id, request.terms, until);
    drop(queues);
    if changed {
        for key in keys {
            work::settle(ctx, key.as_ref());
        }
    }
    let mailbox = mailbox.open(ctx, now);
    mail::expect_several(state::get(ctx), id, mailbox, keys.len());
    due::arm(ctx);
    Ok(mailbox)
}
