//! A request that cannot be granted at once: whether it may wait, and who will hear of it: a client that is blocked,
//! or a box.

use mortise_core::mail::BoxId;
use mortise_core::{Changed, Instant, KeyId, Observed, Request, Wait, Waiter, WaiterId};

use crate::config;
use crate::error::Error;
use crate::ffi::{Access, Context, Viewer};
use crate::keys::name::key_id;
use crate::totals;
use crate::waiting::due;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::queue;
use crate::waiting::readers;
use crate::waiting::waiters;

/// How many clients are blocked and not answered yet.
pub(crate) fn blocked(ctx: &Context<'_>) -> u64 {
    (waiters::blocked(ctx) + readers::len(ctx)) as u64
}

/// How a request that has to wait waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// It stands ahead of the line.
    pub(crate) upgrade: bool,
    /// Until when; `None` for no limit.
    pub(crate) limit: Option<Instant>,
}

/// Blocks the client that sent `request`. False if the server does not let it be blocked.
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxWaiters`] if too many wait.
pub(crate) fn block(
    ctx: &Context<'_>,
    name: &[u8],
    request: &Request<'_>,
    how: Waiting,
    now: Instant,
) -> Result<bool, Error> {
    let (ctx, key) = (ctx, key_id(ctx.db(), name));
    let held = held_at(ctx, name);
    check_cycle(ctx, &key, request, how, &held, now)?;
    let max = config::max_waiters(ctx);
    if blocked(ctx) >= max {
        return Err(Error::MaxWaiters(max));
    }
    let Some(blocked) = ctx.block() else {
        return Ok(false);
    };
    let id = push(ctx, &key, request, how, held, now);
    waiters::add(ctx, id, blocked);
    due::arm(ctx);
    Ok(true)
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
    mailbox: Mailbox<'_>,
) -> Result<BoxId, Error> {
    let (ctx, key) = (ctx, key_id(ctx.db(), name));
    let waiter = match mail::queued_already(ctx, &key, request) {
        Some(waiter) => {
            mail::check_move(ctx, waiter, mailbox)?;
            let changed = Changed {
                lease: request.lease,
                holds: request.holds,
                fence: request.fence,
                token: request.token,
                limit: how.limit,
            };
            queue::all(ctx).borrow_mut().take_over(waiter, changed);
            waiter
        }
        None => {
            let held = held_at(ctx, name);
            check_cycle(ctx, &key, request, how, &held, now)?;
            mail::check_room(ctx, mailbox)?;
            push(ctx, &key, request, how, held, now)
        }
    };
    let id = mailbox.open(ctx, now);
    mail::expect(ctx, waiter, id);
    due::arm(ctx);
    Ok(id)
}

fn check_cycle(
    ctx: &Context<'_>,
    key: &KeyId,
    request: &Request<'_>,
    how: Waiting,
    held: &Observed,
    now: Instant,
) -> Result<(), Error> {
    let closing = Wait {
        key: key.clone(),
        owner: request.owner.to_owner(),
        mode: request.mode,
        upgrade: how.upgrade,
    };
    let cycle = queue::all(ctx).borrow().find_cycle(&closing, held, now);
    match cycle {
        None => Ok(()),
        Some(cycle) => Err(deadlock(ctx, &cycle, &ctx.viewer())),
    }
}

/// A wait is refused because it closes `cycle`; `viewer` is told of it.
pub(crate) fn deadlock(ctx: &Context<'_>, cycle: &[KeyId], viewer: &Viewer) -> Error {
    totals::get(ctx).deadlocks.add_one();
    let visible = cycle
        .iter()
        .filter(|key| viewer.may_name(key.db, &key.name));
    let keys: Vec<_> = visible.map(|key| key.name.to_vec()).collect();
    let hidden = cycle.len() - keys.len();
    Error::Deadlock { keys, hidden }
}

fn push(
    ctx: &Context<'_>,
    key: &KeyId,
    request: &Request<'_>,
    how: Waiting,
    held: Observed,
    now: Instant,
) -> WaiterId {
    let mut queues = queue::all(ctx).borrow_mut();
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
    queues.observe(key, held);
    id
}

/// Who holds at the command's own key: of other keys a command in a cluster sees nothing.
fn held_at(ctx: &Context<'_>, name: &[u8]) -> Observed {
    let mut key = ctx.open_named(name, Access::Read);
    let value = key.value();
    value.map_or(Observed::Free, |value| value.lock.observe())
}
