//! A request that cannot be granted at once: whether it may wait, and who will hear of it: a client that is blocked,
//! or a box.

use mortise_core::mail::BoxId;
use mortise_core::{Changed, Instant, KeyId, Lock, Request, Wait, Waiter, WaiterId};

use crate::error::Error;
use crate::ffi::{Access, Context};
use crate::state::State;
use crate::turn::timers;
use crate::waiting::{self, mail};

/// How a request that has to wait waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// It stands ahead of the line.
    pub(crate) upgrade: bool,
    /// Until when; `None` for no limit.
    pub(crate) limit: Option<Instant>,
}

/// Blocks the client that sent `request`.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxWaiters`] if too many wait.
pub(crate) fn block(
    ctx: &Context<'_>,
    name: &[u8],
    request: &Request<'_>,
    how: Waiting,
    now: Instant,
) -> Result<(), Error> {
    let (state, key) = (ctx.state(), key_id(ctx, name));
    check_cycle(ctx, &key, request, how, now)?;
    let max = state.max_waiters.get();
    if waiting::blocked(state) >= max {
        return Err(Error::MaxWaiters(max));
    }
    let id = push(ctx, &key, request, how, now);
    let blocked = ctx.block();
    state.waiters.borrow_mut().add(id, blocked);
    timers::arm_due(ctx, state);
    Ok(())
}

/// Queues `request`, whose answer goes to the box. One that is queued already keeps its place.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxQueued`] or [`Error::BoxFull`] if too many wait.
pub(crate) fn queue(
    ctx: &Context<'_>,
    name: &[u8],
    request: &Request<'_>,
    how: Waiting,
    now: Instant,
    id: BoxId,
) -> Result<(), Error> {
    let (state, key) = (ctx.state(), key_id(ctx, name));
    let waiter = match mail::queued_already(state, &key, request) {
        Some(waiter) => {
            mail::check_move(state, waiter, id)?;
            let changed = Changed {
                lease: request.lease,
                holds: request.holds,
                fence: request.fence,
                token: request.token,
                limit: how.limit,
            };
            state.queues.borrow_mut().take_over(waiter, changed);
            waiter
        }
        None => {
            check_cycle(ctx, &key, request, how, now)?;
            mail::check_room(state, id)?;
            push(ctx, &key, request, how, now)
        }
    };
    mail::expect(state, waiter, id);
    timers::arm_due(ctx, state);
    Ok(())
}

fn key_id(ctx: &Context<'_>, name: &[u8]) -> KeyId {
    KeyId {
        db: ctx.db() as u32,
        name: name.into(),
    }
}

fn check_cycle(
    ctx: &Context<'_>,
    key: &KeyId,
    request: &Request<'_>,
    how: Waiting,
    now: Instant,
) -> Result<(), Error> {
    let closing = Wait {
        key: key.clone(),
        owner: request.owner.to_owner(),
        mode: request.mode,
        upgrade: how.upgrade,
    };
    match find_cycle(ctx, ctx.state(), &closing, now) {
        None => Ok(()),
        Some(cycle) => {
            ctx.state().totals.deadlocks.add_one();
            Err(Error::Deadlock(cycle))
        }
    }
}

fn push(
    ctx: &Context<'_>,
    key: &KeyId,
    request: &Request<'_>,
    how: Waiting,
    now: Instant,
) -> WaiterId {
    let state = ctx.state();
    let mut queues = state.queues.borrow_mut();
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: request.owner.to_owner(),
        mode: request.mode,
        lease: request.lease,
        holds: request.holds,
        fence: request.fence,
        token: request.token,
        client: request.client,
        since: now,
        limit: how.limit,
    };
    queues.push(key.db, &key.name, waiter, how.upgrade);
    drop(queues);
    expect_deadline(ctx, state, key);
    id
}

/// The names of the keys of a cycle that `wait` closes.
pub(crate) fn find_cycle(
    ctx: &Context<'_>,
    state: &State,
    wait: &Wait,
    now: Instant,
) -> Option<Vec<Vec<u8>>> {
    let selected = ctx.db();
    let cycle = state.queues.borrow().find_cycle(wait, now, |key, found| {
        look(ctx, key, found);
    });
    ctx.select(selected);
    Some(cycle?.iter().map(|key| key.name.to_vec()).collect())
}

/// Whoever waits is to be let in when the first lease is over.
fn expect_deadline(ctx: &Context<'_>, state: &State, key: &KeyId) {
    let mut deadline = None;
    look(ctx, key, &mut |lock| deadline = lock.next_deadline());
    state.queues.borrow_mut().expect(key, deadline);
}

fn look(ctx: &Context<'_>, key: &KeyId, found: &mut dyn FnMut(&Lock)) {
    ctx.select(key.db as i32);
    if let Some(value) = ctx.open_named(&key.name, Access::Read).value() {
        found(&value.lock);
    }
}
