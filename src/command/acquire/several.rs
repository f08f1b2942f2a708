//! A request for several keys at once: checks each key, then takes all or none, or waits.

use mortise_core::{KeyList, Observed, PendingKey, Rank, Request, Stake, Token};

use super::call::{Call, answer_of, ids};
use crate::command::answer::Answer;
use crate::error::Error;
use crate::ffi::{Arg, Context};
use crate::time::last_deadline;
use crate::time::{self, clock};
use crate::totals;
use crate::waiting::mail::Mailbox;
use crate::waiting::pending::{self, How};
use crate::work::open_lock::OpenLock;
use crate::work::{several as grants, slots};

/// A key as the request has found it.
struct Found {
    /// What the owner holds there.
    hold: Option<Stake>,
    has_waiters: bool,
    /// Nobody holds, and the server grants.
    is_free: bool,
    held: Observed,
}

fn find<'c>(ctx: &'c Context<'c>, request: &Request<'_>, key: Arg<'c>) -> Result<Found, Error> {
    OpenLock::with(ctx, key, |lock| {
        let grants = !time::grace(ctx).forbids_grants(lock.now);
        let (hold, is_free) =
            lock.with_live(|live| (live.hold(request.owner), live.admits(request)));
        Found {
            hold,
            has_waiters: lock.has_waiters(),
            is_free: grants && is_free,
            held: lock.observe(),
        }
    })
}

pub(super) fn acquire<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    names: &[Arg<'c>],
    mailbox: Option<Mailbox<'_>>,
) -> Result<Answer, Error> {
    let Some(first) = names.first() else {
        return Err(Error::Arity);
    };
    if slots::is_moving(ctx, ctx.key(*first)) {
        return Err(Error::SlotMoves);
    }
    let found = names.iter().map(|key| find(ctx, &call.request, *key));
    let found: Vec<Found> = found.collect::<Result<_, _>>()?;
    let keys = KeyList::new(ids(ctx, names));
    if found.iter().any(|found| found.hold.is_some()) {
        let token = repeat(ctx, &call.request, names, &found)?;
        accepted(ctx, mailbox);
        return Ok(Answer::Granted(token));
    }
    let queued = pending::queued_already(ctx, &keys, call.request.owner, mailbox.is_some())?;
    let is_free = found.iter().all(|found| found.is_free);
    let is_behind = found.iter().any(|found| found.has_waiters);
    if queued.is_none() && is_free && !is_behind {
        return grant(ctx, call, names, mailbox, false);
    }
    let how = call.how(ctx, mailbox);
    if matches!(how, How::Never) && !is_free {
        return Ok(Answer::Null);
    }
    let found = found.into_iter().zip(keys.as_slice());
    let mut places = found.map(|(found, key)| PendingKey {
        key: key.clone(),
        is_ready: found.is_free && !found.has_waiters,
        held: found.held,
    });
    let Some(first) = places.next() else {
        return Err(Error::Arity);
    };
    let request = call.pending(first, places.collect(), Rank::Last, clock::now());
    let waits = match (queued, mailbox) {
        (Some(id), Some(mailbox)) => pending::repeat(ctx, id, &request, mailbox)?,
        _ => pending::wait(ctx, &request, is_free, how)?,
    };
    match answer_of(waits) {
        Some(answer) => Ok(answer),
        None => grant(ctx, call, names, mailbox, true),
    }
}

/// Grants all keys, which were free just now. `is_let_past`: ahead of those that wait there.
fn grant<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    names: &[Arg<'c>],
    mailbox: Option<Mailbox<'_>>,
    is_let_past: bool,
) -> Result<Answer, Error> {
    let granted = grants::grant_new(ctx, names, &call.request, is_let_past)?;
    let token = granted.token();
    accepted(ctx, mailbox);
    granted.notify(ctx, names);
    Ok(Answer::Granted(token))
}

/// The request was granted: its box exists from now on.
fn accepted(ctx: &Context<'_>, mailbox: Option<Mailbox<'_>>) {
    if let Some(mailbox) = mailbox {
        mailbox.open_if_room(ctx);
    }
}

/// Its owner holds some of the keys. If it holds all of them, for writing and by one token, the reply of the same request was
/// lost: its leases are extended.
fn repeat<'c>(
    ctx: &'c Context<'c>,
    request: &Request<'_>,
    names: &[Arg<'c>],
    found: &[Found],
) -> Result<Token, Error> {
    let holds: Option<Vec<Stake>> = found.iter().map(|found| found.hold).collect();
    let holds = holds.ok_or(Error::HoldsOne)?;
    let token = holds[0].token;
    if holds
        .iter()
        .any(|hold| hold.write == 0 || hold.token != token)
    {
        return Err(Error::HoldsOne);
    }
    if holds.iter().any(|hold| hold.revoked) {
        return Err(Error::Revoked);
    }
    let now = clock::now();
    if time::grace(ctx).forbids_grants(now) {
        return Err(Error::NotGranting(time::grace(ctx).left(now)));
    }
    let Request { owner, terms } = *request;
    for key in names {
        OpenLock::with(ctx, *key, |lock| {
            let renewed = lock
                .live()
                .and_then(|mut live| live.renew(owner, terms.lease, Some(token)));
            if renewed.is_none() {
                // Its lease has ended since the check.
                return Err(Error::HoldsOne);
            }
            let deadline = lock.now.after(terms.lease.as_millis());
            last_deadline::note(time::state(ctx), deadline);
            lock.replicate(owner);
            Ok(())
        })??;
    }
    totals::get(ctx).reentries.add_one();
    Ok(token)
}
