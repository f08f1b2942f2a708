//! A request that cannot be granted at once: whether it may wait, and how its client is blocked.

use mortise_core::{Instant, KeyId, Lock, Request, Wait, Waiter};

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
    if let Some(cycle) = find_cycle(ctx, state, &closing, now) {
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
    drop(queues);
    expect_deadline(ctx, state, &closing.key);
    let blocked = ctx.block();
    state.waiters.borrow_mut().add(id, blocked);
    timers::arm_due(ctx, state);
    Ok(())
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
