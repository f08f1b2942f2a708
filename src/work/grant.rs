//! Grants several keys to one request, all or none (`LOCK.MACQUIRE`).
//!
//! The keys are opened one after the other: first each is checked, then each is granted, with one token. All of this happens
//! in one command, so that the server replicates the effects as one transaction. Subscribers are notified when all is done.

use mortise_core::{
    AcquireError, Busy, Decided, Grant, Instant, Owner, Request, Stake, Token, Undo, Verdict,
    WaiterId,
};

use crate::error::Error;
use crate::ffi::{Arg, Context};
use crate::keys::tokens;
use crate::time::{self, clock};
use crate::totals::{self, Total};
use crate::waiting::{self, waiters};
use crate::work::open_lock::OpenLock;
use crate::work::open_lock::{Notice, Notices};
use crate::work::refuse;

/// Grants the request `id`, which waits at these keys, if it is the first at each and all are free.
pub(crate) fn waiting<'c>(ctx: &'c Context<'c>, names: &[Arg<'c>], id: WaiterId) {
    let mut notices = Notices::default();
    if let Err(error) = enqueued(ctx, names, id, &mut notices) {
        waiters::refuse(ctx, id, &error);
    }
    notices.send(ctx);
}

fn enqueued<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    id: WaiterId,
    notices: &mut Notices<'c>,
) -> Result<(), Error> {
    let now = clock::now();
    let is_grantable = |name: &Arg<'c>| is_grantable(ctx, *name, id, now, notices);
    if time::grace(ctx).forbids_grants(now) || !names.iter().all(is_grantable) {
        return Ok(());
    }
    let found = {
        let queues = waiting::queues(ctx).borrow();
        let waiter = queues.waiter(id).map(|(_, waiter)| waiter.clone());
        waiter.zip(queues.keys_of(id))
    };
    let Some((waiter, keys)) = found else {
        return Ok(());
    };
    let token = next_token(ctx, waiter.terms.fence)?;
    let stake = all(ctx, names, &waiter.owner, now, notices, |lock| {
        let (ctx, key) = (lock.ctx, lock.key_ref());
        lock.with_live(|live| {
            let mut queues = waiting::queues(ctx).borrow_mut();
            queues.grant_last_key(key, id, live, token)
        })
    })?;
    totals::add(ctx, Total::Handoffs);
    let waited = now.millis_since(waiter.since);
    totals::wait_times(ctx).borrow_mut().record(waited);
    let decided = Decided {
        waiter: Box::new(waiter),
        keys,
        verdict: Verdict::Granted {
            grant: Grant::New(stake),
            before: None,
            alone: true,
        },
    };
    waiters::decide(ctx, &decided, now);
    Ok(())
}

fn next_token(ctx: &Context<'_>, fence: Option<Token>) -> Result<Token, Error> {
    let mut tokens = tokens::clock(ctx).borrow_mut();
    tokens
        .next(clock::wall(), fence)
        .ok_or(Error::OUT_OF_TOKENS)
}

/// Whether the request is the first at the key, which is free.
fn is_grantable<'c>(
    ctx: &'c Context<'c>,
    name: Arg<'c>,
    id: WaiterId,
    now: Instant,
    notices: &mut Notices<'c>,
) -> bool {
    let checked = OpenLock::with_notices(ctx, name, now, notices, |lock| {
        let key = lock.key_ref();
        lock.with_live(|live| {
            let queues = waiting::queues(ctx).borrow();
            queues.is_grantable(key, id, live)
        })
    });
    checked.unwrap_or_else(|error| {
        refuse::at_key(ctx, ctx.key(name), error);
        false
    })
}

/// Grants several keys, which were free just now, to a request that has not waited. `may_overtake`: ahead of those that wait there, if any.
///
/// # Errors
/// [`Error::KEYS_CHANGED`] if one of them is not free any more, and [`Error::OUT_OF_TOKENS`]. Nothing is held.
pub(crate) fn new<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    request: &Request<'_>,
    may_overtake: bool,
    notices: &mut Notices<'c>,
) -> Result<Token, Error> {
    let token = next_token(ctx, request.terms.fence)?;
    let owner = request.owner.to_owner();
    all(ctx, names, &owner, clock::now(), notices, |lock| {
        if lock.has_waiters() && !may_overtake {
            return Err(AcquireError::Busy(Busy::Held));
        }
        lock.with_live(|live| live.take(request, token))
    })?;
    Ok(token)
}

/// Grants each key, from the last to the first, or none if one of them cannot be granted: the server calls other modules for each new key,
/// and a callback of theirs may have changed another of the keys. Returns the hold at each of them.
///
/// # Errors
/// [`Error::KEYS_CHANGED`].
fn all<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    owner: &Owner,
    now: Instant,
    notices: &mut Notices<'c>,
    grant: impl Fn(&mut OpenLock<'c>) -> Result<Stake, AcquireError>,
) -> Result<Stake, Error> {
    let (mut from, mut granted) = (names.len(), None);
    while from > 0 {
        let one = OpenLock::with_notices(ctx, names[from - 1], now, notices, |lock| {
            let stake = grant(lock).ok()?;
            lock.replicate_hold(owner.as_ref(), stake);
            Some(stake)
        });
        let Ok(Some(stake)) = one else { break };
        (from, granted) = (from - 1, Some(stake));
    }
    for name in &names[from..] {
        notices.add(Notice::Acquired, *name);
    }
    let stake = granted.ok_or(Error::KEYS_CHANGED)?;
    if from > 0 {
        undo(ctx, &names[from..], owner, &stake, notices);
        return Err(Error::KEYS_CHANGED);
    }
    totals::add_grant(ctx, Grant::New(stake));
    Ok(stake)
}

/// Undoes what was granted at these keys.
fn undo<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    owner: &Owner,
    stake: &Stake,
    notices: &mut Notices<'c>,
) {
    for name in names {
        let undo = Undo {
            owner: owner.clone(),
            granted: stake.touched,
            token: stake.token,
            before: None,
        };
        // If the key holds something else by now, there is nothing to undo.
        let _ = OpenLock::with_notices(ctx, *name, clock::now(), notices, |lock| {
            lock.undo_grants(vec![undo]);
        });
    }
}
