//! A request that cannot be granted at once: decides whether it may wait, and whether its result goes to a blocked client or to a box.

use mortise_core::mail::BoxId;
use mortise_core::{
    Instant, KeyId, KeyRef, Observed, Queue, Rank, Request, Wait, WaitPlan, Waiter, WaiterId,
};

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, Viewer};
use crate::time;
use crate::totals;
use crate::waiting::due;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::queue;
use crate::waiting::readers;
use crate::waiting::state::{self, Waiting};
use crate::waiting::waiters;
use crate::work::queue as work;

/// How many clients are blocked and not answered yet.
pub(crate) fn blocked(waiting: &Waiting) -> u64 {
    (waiting.clients.borrow().waiters() + readers::len(waiting)) as u64
}

/// Where a request that has to wait is to wait.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) rank: Rank,
    /// The lock would admit it if nobody stood ahead of it.
    pub(crate) is_free: bool,
    /// Who holds the lock.
    pub(crate) held: Observed,
    /// From now on.
    pub(crate) now: Instant,
}

/// What became of a request that cannot be granted at once.
#[derive(Debug)]
pub(crate) enum Waits {
    /// It waits by mail.
    Queued(BoxId),
    /// It waits, and its client is blocked.
    Blocked,
    /// The server does not let its client be blocked.
    No,
    /// It need not wait: it may have the lock now, ahead of the requests for several keys that stand there.
    LetPast,
}

/// Blocks the client that sent `request`.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxWaiters`] if too many wait.
pub(crate) fn block(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
) -> Result<Waits, Error> {
    let plan = plan(ctx, key, request, &place)?;
    if is_let_past(ctx, &place, &plan) {
        return Ok(Waits::LetPast);
    }
    let max = config::max_waiters(ctx);
    if blocked(state::get(ctx)) >= max {
        return Err(Error::MaxWaiters(max));
    }
    let Some(blocked) = ctx.block() else {
        return Ok(Waits::No);
    };
    let id = push(ctx, key, request, place, until, &plan);
    waiters::add(state::get(ctx), id, blocked);
    due::arm(ctx);
    Ok(Waits::Blocked)
}

/// Queues `request`, whose answer goes to the box. One that is queued already keeps its place.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxQueued`] or [`Error::BoxFull`] if too many wait.
pub(crate) fn queue(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
    mailbox: Mailbox<'_>,
) -> Result<Waits, Error> {
    let now = place.now;
    let waiter = match mail::queued_already(state::get(ctx), key, request) {
        Some(waiter) => {
            mail::check_move(ctx, waiter, mailbox, 1)?;
            let mut queues = queue::all(ctx).borrow_mut();
            let changed = queues.take_over(waiter, request.terms, until);
            drop(queues);
            if changed {
                // The lock may be free for what it requests now.
                work::settle(ctx, key);
            }
            waiter
        }
        None => {
            let plan = plan(ctx, key, request, &place)?;
            if is_let_past(ctx, &place, &plan) {
                return Ok(Waits::LetPast);
            }
            mail::check_room(ctx, mailbox, 1)?;
            push(ctx, key, request, place, until, &plan)
        }
    };
    let id = mailbox.open(ctx, now);
    mail::expect(state::get(ctx), waiter, id);
    due::arm(ctx);
    Ok(Waits::Queued(id))
}

/// Whether `request`, which cannot wait, may have the lock ahead of the requests for several keys that stand there: only to
/// end a cycle through its place behind them. If not, nobody has moved.
pub(crate) fn is_let_past_without_wait(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: &Place,
) -> bool {
    let is_behind_several = {
        let queues = queue::all(ctx).borrow();
        let several = queues.get(key).and_then(Queue::first_several);
        several.is_some()
    };
    if !place.is_free || !is_behind_several {
        return false;
    }
    let plan = find_plan(ctx, key, request, place);
    plan.deadlock.is_none() && is_let_past(ctx, place, &plan)
}

/// Whether the lock is free, and nobody stands ahead once others have moved as planned. Then they have moved.
fn is_let_past(ctx: &Context<'_>, place: &Place, plan: &WaitPlan) -> bool {
    let is_let_past = place.is_free && plan.is_first;
    if is_let_past {
        make_moves(ctx, plan);
    }
    is_let_past
}

/// How `request` may begin to wait: which requests have to move first, so that it closes no cycle through a place behind a request for several keys.
///
/// # Errors
/// [`Error::Deadlock`] if it closes a cycle all the same.
fn plan(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: &Place,
) -> Result<WaitPlan, Error> {
    let plan = find_plan(ctx, key, request, place);
    check(ctx, plan, |ctx| ctx.viewer())
}

fn find_plan(ctx: &Context<'_>, key: KeyRef<'_>, request: &Request<'_>, place: &Place) -> WaitPlan {
    let wait = Wait {
        key: key.to_id(),
        owner: request.owner.to_owner(),
        terms: request.terms,
        rank: place.rank,
    };
    let mut queues = queue::all(ctx).borrow_mut();
    queues.plan_wait(wait, &place.held, place.now)
}

/// Refuses a wait that closes a cycle; `viewer` gets the error.
pub(crate) fn check(
    ctx: &Context<'_>,
    plan: WaitPlan,
    viewer: impl FnOnce(&Context<'_>) -> Viewer,
) -> Result<WaitPlan, Error> {
    match &plan.deadlock {
        None => Ok(plan),
        Some(cycle) => Err(deadlock(ctx, cycle, &viewer(ctx))),
    }
}

/// Moves other requests as planned, and has their keys settled.
pub(crate) fn make_moves(ctx: &Context<'_>, plan: &WaitPlan) {
    let keys = queue::all(ctx).borrow_mut().make_moves(plan);
    for key in keys {
        work::settle(ctx, key.as_ref());
    }
}

/// The error of a wait that is refused because it closes `cycle`; `viewer` gets it.
pub(crate) fn deadlock(ctx: &Context<'_>, cycle: &[KeyId], viewer: &Viewer) -> Error {
    totals::get(ctx).deadlocks.add_one();
    let visible = cycle.iter().filter(|key| viewer.may_name(key.as_ref()));
    let keys: Vec<_> = visible.map(|key| key.name.to_vec()).collect();
    let hidden = cycle.len() - keys.len();
    Error::Deadlock { keys, hidden }
}

/// Queues the request, after others have moved as planned.
fn push(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
    plan: &WaitPlan,
) -> WaiterId {
    make_moves(ctx, plan);
    let mut queues = queue::all(ctx).borrow_mut();
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: request.owner.to_owner(),
        terms: request.terms,
        since: place.now,
        until,
    };
    queues.push(key, waiter, plan.rank);
    queues.observe(key, place.held);
    if time::grace(ctx).forbids_grants(place.now) {
        // Its owner may hold the lock, and gets its re-entry as soon as anything is granted.
        queues.recheck_holders(key);
    }
    id
}
