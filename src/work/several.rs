//! Grants several keys to one request, all or none (`LOCK.MACQUIRE`).
//!
//! The keys are opened one after the other: first each is checked, then each is granted, with one token. All of this happens
//! in one command, so that the server replicates the effects as one transaction. Subscribers are notified when all is done.

use mortise_core::{
    AcquireError, Busy, Decided, Grant, Instant, KeyList, Owner, Request, Stake, Token, Verdict,
    Waiter, WaiterId,
};

use crate::error::Error;
use crate::ffi::{Arg, Context, Refusal};
use crate::keys::tokens;
use crate::time::last_deadline;
use crate::time::{self, clock, role};
use crate::totals;
use crate::waiting::queue as queues;
use crate::waiting::undelivered::UndeliveredGrant;
use crate::waiting::waiters;
use crate::work::failing;
use crate::work::notices::{Notice, Notices};
use crate::work::open_lock::OpenLock;
use crate::work::queue;
use crate::work::refuse;
use crate::work::settle_call;
use crate::work::slots;

/// Grants the next request whose keys all seem to be free. False if there is none.
pub(crate) fn grant_next(ctx: &Context<'_>) -> bool {
    let mut queues = queues::all(ctx).borrow_mut();
    let Some(id) = queues.next_due() else {
        return false;
    };
    let keys = queues.keys_of(id);
    drop(queues);
    if let Some(keys) = keys
        && role::is_primary(time::state(ctx))
    {
        call(ctx, id, &keys);
    }
    true
}

fn call(ctx: &Context<'_>, id: WaiterId, keys: &KeyList) {
    let keys = keys.as_slice();
    let Some(first) = keys.first() else { return };
    // The request becomes due again when one of its keys is settled.
    if queue::is_blocked(ctx) {
        return queue::hold_back(ctx, first.as_ref());
    }
    let Err(refused) = settle_call::call_several(ctx, keys, id) else {
        return;
    };
    match refused.kind {
        Refusal::SlotElsewhere => {
            let error = match slots::is_moving(ctx, first.as_ref()) {
                true => Error::SlotMoves,
                false => refuse::SLOT_HAS_LEFT,
            };
            waiters::refuse(ctx, id, error);
        }
        Refusal::Gate => {
            queue::set_gate_closed(ctx, true);
            queue::hold_back(ctx, first.as_ref());
        }
        Refusal::Failed => failing::failed(ctx, first.as_ref(), &refused.why),
    }
}

/// Grants the request `id`, which waits at these keys, if it is the first at each and all are free.
pub(crate) fn grant_waiting<'c>(ctx: &'c Context<'c>, names: &[Arg<'c>], id: WaiterId) {
    let (granted, waiter, keys) = match grant_enqueued(ctx, names, id) {
        Ok(Some(Enqueued {
            granted,
            waiter,
            keys,
        })) => (granted, waiter, keys),
        Ok(None) => return,
        Err(error) => return waiters::refuse(ctx, id, error),
    };
    let now = granted.now;
    totals::get(ctx).handoffs.add_one();
    let waited = now.millis_since(waiter.since);
    totals::wait_times(ctx).borrow_mut().record(waited);
    let decided = Decided {
        waiter: Box::new(waiter),
        keys: Some(keys.clone()),
        verdict: Verdict::Granted {
            grant: Grant::New(granted.token()),
            stake: granted.stake,
            before: None,
            alone: true,
        },
    };
    if let Some(first) = keys.as_slice().first() {
        waiters::decide(ctx, first, &decided, now);
    }
    granted.notify(ctx, names);
}

/// A request that stood in its queues and was granted.
struct Enqueued {
    granted: Granted,
    waiter: Waiter,
    keys: KeyList,
}

fn grant_enqueued<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    id: WaiterId,
) -> Result<Option<Enqueued>, Error> {
    if time::grace(ctx).forbids_grants(clock::now()) || !is_ready(ctx, names, id) {
        return Ok(None);
    }
    let found = {
        let queues = queues::all(ctx).borrow();
        let waiter = queues.waiter(id).map(|(_, waiter)| waiter.clone());
        waiter.zip(queues.keys_of(id))
    };
    let Some((waiter, keys)) = found else {
        return Ok(None);
    };
    let wall = clock::wall();
    let token = tokens::clock(ctx)
        .borrow_mut()
        .next(wall, waiter.terms.fence);
    let token = token.ok_or(Error::OutOfTokens)?;
    let granted = grant_all(ctx, names, &waiter.owner, |lock| {
        let (ctx, key) = (lock.ctx, lock.key_ref());
        lock.with_live(|live| {
            let mut queues = queues::all(ctx).borrow_mut();
            queues.grant_last_member(key, id, live, token)
        })
    });
    let granted = granted.ok_or(Error::KeysChanged)?;
    Ok(Some(Enqueued {
        granted,
        waiter,
        keys,
    }))
}

/// The request is the first at each of its keys, and all of them are free.
fn is_ready<'c>(ctx: &'c Context<'c>, names: &[Arg<'c>], id: WaiterId) -> bool {
    names.iter().all(|name| {
        let checked = OpenLock::with(ctx, *name, |lock| {
            let key = lock.key_ref();
            lock.with_live(|live| {
                let mut queues = queues::all(ctx).borrow_mut();
                queues.recheck_member(key, id, live)
            })
        });
        match checked {
            Ok(ready) => ready,
            Err(error) => {
                let key = ctx.key(*name);
                queues::all(ctx).borrow_mut().set_not_ready(key, id);
                refuse::at_key(ctx, key, error);
                false
            }
        }
    })
}

/// Grants several keys, which were free just now, to a request that has not waited. `is_let_past`: ahead of those that wait there, if any.
///
/// # Errors
/// [`Error::KeysChanged`] if one of them is not free any more, and [`Error::OutOfTokens`]. Nothing is held.
pub(crate) fn grant_new<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    request: &Request<'_>,
    is_let_past: bool,
) -> Result<Granted, Error> {
    let wall = clock::command_wall();
    let token = tokens::clock(ctx)
        .borrow_mut()
        .next(wall, request.terms.fence);
    let token = token.ok_or(Error::OutOfTokens)?;
    let granted = grant_all(ctx, names, &request.owner.to_owner(), |lock| {
        if lock.has_waiters() && !is_let_past {
            return Err(AcquireError::Busy(Busy::Held));
        }
        lock.with_live(|live| live.take(request, token))
    });
    granted.ok_or(Error::KeysChanged)
}

/// Several keys that were granted together.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The hold at each of them.
    stake: Stake,
    now: Instant,
    /// From the last key to the first.
    notices: Vec<Notices>,
}

impl Granted {
    pub(crate) fn token(&self) -> Token {
        self.stake.token
    }

    /// Notifies subscribers. No key may be open.
    pub(crate) fn notify(self, ctx: &Context<'_>, names: &[Arg<'_>]) {
        for (name, notices) in names.iter().zip(self.notices.into_iter().rev()) {
            notices.send(ctx, *name);
        }
    }
}

/// Grants each key, from the last to the first, or none if one of them cannot be granted: the server calls other modules for each new key,
/// and a callback of theirs may have changed another of the keys.
fn grant_all<'c>(
    ctx: &'c Context<'c>,
    names: &[Arg<'c>],
    owner: &Owner,
    grant: impl Fn(&mut OpenLock<'c>) -> Result<Stake, AcquireError>,
) -> Option<Granted> {
    let mut all: Option<Granted> = None;
    for (nth, name) in names.iter().enumerate().rev() {
        let one = OpenLock::with_notices(ctx, *name, clock::now(), |lock| {
            let stake = grant(lock).ok()?;
            last_deadline::note(time::state(ctx), stake.deadline);
            lock.replicate(owner.as_ref());
            lock.notify(Notice::Acquired);
            Some((stake, lock.now))
        });
        let Ok((Some((stake, now)), notices)) = one else {
            undo_all(ctx, &names[nth + 1..], owner, all);
            return None;
        };
        let granted = all.get_or_insert(Granted {
            stake,
            now,
            notices: Vec::with_capacity(names.len()),
        });
        granted.notices.push(notices);
    }
    if let Some(granted) = &all {
        totals::get(ctx).count_grant(Grant::New(granted.token()));
    }
    all
}

/// Undoes what was granted at these keys.
fn undo_all<'c>(ctx: &'c Context<'c>, names: &[Arg<'c>], owner: &Owner, granted: Option<Granted>) {
    let Some(granted) = granted else { return };
    for name in names {
        let grant = UndeliveredGrant {
            key: ctx.key(*name).to_id(),
            keys: None,
            owner: owner.clone(),
            granted: granted.stake.touched,
            token: granted.token(),
            before: None,
        };
        // If the key holds something else by now, there is nothing to undo.
        let _ = OpenLock::with(ctx, *name, |lock| lock.undo_grants(vec![grant]));
    }
    granted.notify(ctx, names);
}
