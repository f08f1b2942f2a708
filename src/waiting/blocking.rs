//! A request that cannot be granted at once: decides whether it may wait, and whether its result goes to a blocked client or to a box.

use mortise_core::mail::BoxId;
use mortise_core::{
    Ended, Instant, KeyId, KeyRef, Observed, Queue, Rank, Request, Wait, Waiter, WaiterId,
};

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, Viewer};
use crate::keys::dirty;
use crate::time;
use crate::totals;
use crate::waiting::due;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::queue;
use crate::waiting::readers;
use crate::waiting::state::{self, Waiting};
use crate::waiting::waiters;

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
    mut place: Place,
    until: Instant,
) -> Result<Waits, Error> {
    end_cycles(ctx, key, request, &mut place)?;
    if is_let_past(ctx, key, &place) {
        return Ok(Waits::LetPast);
    }
    let max = config::max_waiters(ctx);
    if blocked(state::get(ctx)) >= max {
        return Err(Error::MaxWaiters(max));
    }
    let Some(blocked) = ctx.block() else {
        return Ok(Waits::No);
    };
    let id = push(ctx, key, request, place, until);
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
    mut place: Place,
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
                dirty::mark(ctx, key);
            }
            waiter
        }
        None => {
            end_cycles(ctx, key, request, &mut place)?;
            if is_let_past(ctx, key, &place) {
                return Ok(Waits::LetPast);
            }
            mail::check_room(ctx, mailbox, 1)?;
            push(ctx, key, request, place, until)
        }
    };
    let id = mailbox.open(ctx, now);
    mail::expect(state::get(ctx), waiter, id);
    due::arm(ctx);
    Ok(Waits::Queued(id))
}

/// Whether `request`, which cannot wait, may have the lock ahead of the requests for several keys that stand there: only to
/// end a cycle through its place behind them.
pub(crate) fn is_let_past_without_wait(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    mut place: Place,
) -> bool {
    let is_behind_several = {
        let queues = queue::all(ctx).borrow();
        let several = queues.get(key).and_then(Queue::first_several);
        several.is_some()
    };
    place.is_free
        && is_behind_several
        && end_cycles(ctx, key, request, &mut place).is_ok()
        && is_let_past(ctx, key, &place)
}

/// The lock is free, and nobody stands ahead any more.
fn is_let_past(ctx: &Context<'_>, key: KeyRef<'_>, place: &Place) -> bool {
    place.is_free && queue::all(ctx).borrow().is_let_past(key, place.rank)
}

/// Refuses a wait that closes a cycle. A cycle through a place behind a request for several keys is ended by moving whoever
/// stands there, or the new request, to the head of the queue.
fn end_cycles(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: &mut Place,
) -> Result<(), Error> {
    let mut closing = Wait {
        key: key.to_id(),
        owner: request.owner.to_owner(),
        terms: request.terms,
        rank: place.rank,
    };
    let mut queues = queue::all(ctx).borrow_mut();
    let ended = queues.end_cycles(&mut closing, &place.held, place.now);
    drop(queues);
    place.rank = closing.rank;
    settle_moved(ctx, ended, |ctx| ctx.viewer())
}

/// Marks the keys where others were moved to the head, and refuses a wait that closes a cycle.
pub(crate) fn settle_moved(
    ctx: &Context<'_>,
    ended: Ended,
    viewer: impl FnOnce(&Context<'_>) -> Viewer,
) -> Result<(), Error> {
    for key in ended.moved {
        dirty::mark(ctx, key.as_ref());
    }
    match ended.deadlock {
        None => Ok(()),
        Some(cycle) => Err(deadlock(ctx, &cycle, &viewer(ctx))),
    }
}

/// A wait is refused because it closes `cycle`; `viewer` gets the error.
pub(crate) fn deadlock(ctx: &Context<'_>, cycle: &[KeyId], viewer: &Viewer) -> Error {
    totals::get(ctx).deadlocks.add_one();
    let visible = cycle.iter().filter(|key| viewer.may_name(key.as_ref()));
    let keys: Vec<_> = visible.map(|key| key.name.to_vec()).collect();
    let hidden = cycle.len() - keys.len();
    Error::Deadlock { keys, hidden }
}

fn push(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
) -> WaiterId {
    let mut queues = queue::all(ctx).borrow_mut();
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: request.owner.to_owner(),
        terms: request.terms,
        since: place.now,
        until,
    };
    queues.push(key, waiter, place.rank);
    queues.observe(key, place.held);
    if time::grace(ctx).forbids_grants(place.now) {
        // Its owner may hold the lock, and gets its re-entry as soon as anything is granted.
        queues.recheck_holders(key);
    }
    id
}
