//! A request that cannot be granted at once: whether it may wait, and who will hear of it: a client that is blocked,
//! or a box.

use mortise_core::mail::BoxId;
use mortise_core::{Instant, KeyId, KeyRef, Observed, Queues, Request, Wait, Waiter, WaiterId};

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, Viewer};
use crate::keys::dirty;
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
    /// Ahead of the line.
    pub(crate) upgrade: bool,
    /// Who holds the lock.
    pub(crate) held: Observed,
    /// From now on.
    pub(crate) now: Instant,
}

/// Blocks the client that sent `request`. False if the server does not let it be blocked.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxWaiters`] if too many wait.
pub(crate) fn block(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
) -> Result<bool, Error> {
    check_cycle(ctx, key, request, &place)?;
    let max = config::max_waiters(ctx);
    if blocked(state::get(ctx)) >= max {
        return Err(Error::MaxWaiters(max));
    }
    let Some(blocked) = ctx.block() else {
        return Ok(false);
    };
    let mut queues = queue::all(ctx).borrow_mut();
    let id = push(&mut queues, key, request, place, until);
    drop(queues);
    waiters::add(state::get(ctx), id, blocked);
    due::arm(ctx);
    Ok(true)
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
) -> Result<BoxId, Error> {
    let now = place.now;
    let waiter = match mail::queued_already(state::get(ctx), key, request) {
        Some(waiter) => {
            mail::check_move(ctx, waiter, mailbox)?;
            let mut queues = queue::all(ctx).borrow_mut();
            let changed = queues.take_over(waiter, request.terms, until);
            drop(queues);
            if changed {
                // What it asks for now may be free.
                dirty::mark_queue(ctx, key);
            }
            waiter
        }
        None => {
            check_cycle(ctx, key, request, &place)?;
            mail::check_room(ctx, mailbox)?;
            let mut queues = queue::all(ctx).borrow_mut();
            push(&mut queues, key, request, place, until)
        }
    };
    let id = mailbox.open(ctx, now);
    mail::expect(state::get(ctx), waiter, id);
    due::arm(ctx);
    Ok(id)
}

fn check_cycle(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: &Place,
) -> Result<(), Error> {
    let closing = Wait {
        key: key.to_id(),
        owner: request.owner.to_owner(),
        terms: request.terms,
        upgrade: place.upgrade,
    };
    let queues = queue::all(ctx).borrow();
    let cycle = queues.find_cycle(&closing, &place.held, place.now);
    drop(queues);
    match cycle {
        None => Ok(()),
        Some(cycle) => Err(deadlock(ctx, &cycle, &ctx.viewer())),
    }
}

/// A wait is refused because it closes `cycle`; `viewer` is told of it.
pub(crate) fn deadlock(ctx: &Context<'_>, cycle: &[KeyId], viewer: &Viewer) -> Error {
    totals::get(ctx).deadlocks.add_one();
    let visible = cycle.iter().filter(|key| viewer.may_name(key.as_ref()));
    let keys: Vec<_> = visible.map(|key| key.name.to_vec()).collect();
    let hidden = cycle.len() - keys.len();
    Error::Deadlock { keys, hidden }
}

fn push(
    queues: &mut Queues,
    key: KeyRef<'_>,
    request: &Request<'_>,
    place: Place,
    until: Instant,
) -> WaiterId {
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: request.owner.to_owner(),
        terms: request.terms,
        since: place.now,
        until,
    };
    queues.push(key, waiter, place.upgrade);
    queues.observe(key, place.held);
    id
}
