//! A request that cannot be granted at once: whether it may wait, and how its client is blocked.

use mortise_core::{Instant, KeyId, Observed, Request, Wait, Waiter};

use crate::error::Error;
use crate::ffi::{Access, Context};
use crate::state::State;
use crate::turn::timers;

/// Blocks the client that sent `request`, for up to `wait` ms (0: for ever).
///
/// # Errors
/// [`Error::Deadlock`] if the wait would close a cycle, [`Error::MaxWaiters`] if too many wait.
pub(crate) fn wait(
    ctx: &Context<'_>,
    name: &[u8],
    request: &Request<'_>,
    upgrade: bool,
    wait: u64,
    now: Instant,
) -> Result<(), Error> {
    let state = ctx.state();
    let db = ctx.db();
    let key = KeyId {
        db: db as u32,
        name: name.into(),
    };
    let closing = Wait {
        key,
        owner: request.owner.to_owner(),
        mode: request.mode,
        upgrade,
    };
    let held = held_at(ctx, name);
    if let Some(cycle) = find_cycle(state, &closing, &held, now) {
        state.totals.deadlocks.add_one();
        return Err(Error::Deadlock(cycle));
    }
    let max = state.max_waiters.get();
    if state.queues.borrow().len() as u64 >= max {
        return Err(Error::MaxWaiters(max));
    }
    let mut queues = state.queues.borrow_mut();
    let id = queues.next_id();
    let waiter = Waiter {
        id,
        owner: closing.owner.clone(),
        mode: request.mode,
        lease: request.lease,
        holds: request.holds,
        fence: request.fence,
        client: request.client,
        since: now,
        limit: (wait > 0).then(|| now.after(wait)),
    };
    queues.push(db as u32, name, waiter, upgrade);
    queues.observe(&closing.key, held);
    drop(queues);
    let blocked = ctx.block();
    state.waiters.borrow_mut().add(id, blocked);
    timers::arm_due(ctx, state);
    Ok(())
}

/// The names of the keys of a cycle that `wait` closes. `held`: who holds at its key.
pub(crate) fn find_cycle(
    state: &State,
    wait: &Wait,
    held: &Observed,
    now: Instant,
) -> Option<Vec<Vec<u8>>> {
    let cycle = state.queues.borrow().find_cycle(wait, held, now);
    Some(cycle?.iter().map(|key| key.name.to_vec()).collect())
}

/// Who holds at the command's own key: of other keys a command in a cluster sees nothing.
fn held_at(ctx: &Context<'_>, name: &[u8]) -> Observed {
    let mut key = ctx.open_named(name, Access::Read);
    let value = key.value();
    value.map_or(Observed::Free, |value| value.lock.observe())
}
