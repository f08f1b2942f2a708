//! A request for one key: takes the lock if it is free, or waits.

use mortise_core::{
    AcquireError, Grant, Instant, Micros, Observed, PendingKey, Rank, Request, Turn,
};

use super::call::{Call, answer_of};
use crate::command::answer::Answer;
use crate::error::Error;
use crate::ffi::{Arg, Context};
use crate::keys::tokens;
use crate::time::last_deadline;
use crate::time::{self, clock};
use crate::totals;
use crate::waiting;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::pending::{self, How, Waits};
use crate::waiting::queue;
use crate::work::notices::Notice;
use crate::work::open_lock::OpenLock;

pub(super) fn acquire(
    ctx: &Context<'_>,
    call: &Call<'_>,
    key: Arg<'_>,
    mailbox: Option<Mailbox<'_>>,
) -> Result<Answer, Error> {
    let wall = clock::command_wall();
    let attempt = |turn: Option<Turn>| {
        let step = |lock: &mut OpenLock<'_>| take(lock, &call.request, turn, wall);
        OpenLock::with_then(ctx, key, step, |taken| {
            decide(ctx, call, key, mailbox, taken?)
        })?
    };
    let answer = match attempt(None)? {
        // It may overtake the requests for several keys that stand ahead of it.
        None => attempt(Some(Turn::First))?,
        answer => answer,
    };
    // Twice only if a callback of another module has come in between.
    Ok(answer.unwrap_or(Answer::Null))
}

/// A request as the open lock has decided it.
enum Taken {
    Granted(Grant),
    /// It may wait.
    Busy(Busy),
    Failed(AcquireError),
}

/// Why a request was not granted at once.
struct Busy {
    rank: Rank,
    /// The lock would admit it if nobody stood ahead of it.
    is_free: bool,
    held: Observed,
    now: Instant,
}

/// Takes the lock if it is free now. No `turn` stands for the last place in the queue.
///
/// # Errors
/// [`Error::WaitsForSeveral`] if its owner waits here already, for several keys at once.
fn take(
    lock: &mut OpenLock<'_>,
    request: &Request<'_>,
    turn: Option<Turn>,
    wall: Micros,
) -> Result<Taken, Error> {
    let (ctx, now) = (lock.ctx, lock.now);
    let is_behind = lock.has_waiters();
    if is_behind && queue::waits_for_several(waiting::state(ctx), lock.key_ref(), request.owner) {
        return Err(Error::WaitsForSeveral);
    }
    let turn = turn.unwrap_or(match is_behind {
        true => Turn::Behind,
        false => Turn::First,
    });
    Ok(match grant(lock, request, turn, wall) {
        Ok(grant) => {
            last_deadline::note(time::state(ctx), now.after(request.terms.lease.as_millis()));
            lock.replicate(request.owner);
            lock.notify(Notice::Acquired);
            totals::get(ctx).count_grant(grant);
            Taken::Granted(grant)
        }
        Err(AcquireError::Busy(busy)) => Taken::Busy(Busy {
            rank: busy.into(),
            is_free: turn == Turn::Behind && may_pass(lock, request),
            held: lock.observe(),
            now,
        }),
        Err(error) => Taken::Failed(error),
    })
}

fn grant(
    lock: &mut OpenLock<'_>,
    request: &Request<'_>,
    turn: Turn,
    wall: Micros,
) -> Result<Grant, AcquireError> {
    let ctx = lock.ctx;
    let grace = time::grace(ctx).forbids_grants(lock.now);
    lock.with_live(|live| match grace {
        true => Err(live.refuse_in_grace(request)),
        false => live.acquire(request, turn, &mut tokens::clock(ctx).borrow_mut(), wall),
    })
}

/// Requests for several keys stand at the key, and the lock would admit this one if nobody stood ahead.
fn may_pass(lock: &mut OpenLock<'_>, request: &Request<'_>) -> bool {
    let (ctx, now) = (lock.ctx, lock.now);
    queue::any_several(waiting::state(ctx))
        && !time::grace(ctx).forbids_grants(now)
        && lock.with_live(|live| live.admits(request))
}

/// Decides what the client is answered; a request that has to wait is queued. `None`: it may have the lock now, ahead of the
/// requests for several keys that stand there.
fn decide(
    ctx: &Context<'_>,
    call: &Call<'_>,
    key: Arg<'_>,
    mailbox: Option<Mailbox<'_>>,
    taken: Taken,
) -> Result<Option<Answer>, Error> {
    match taken {
        Taken::Granted(grant) => {
            accepted(ctx, mailbox);
            Ok(Some(Answer::Granted(grant.token())))
        }
        Taken::Failed(AcquireError::NotHeldByToken | AcquireError::NoRoom) => {
            accepted(ctx, mailbox);
            Ok(Some(Answer::Null))
        }
        Taken::Failed(error) => Err(error.into()),
        Taken::Busy(busy) => {
            let waits = wait(ctx, call, key, mailbox, busy)?;
            Ok(answer_of(waits))
        }
    }
}

fn wait(
    ctx: &Context<'_>,
    call: &Call<'_>,
    key: Arg<'_>,
    mailbox: Option<Mailbox<'_>>,
    busy: Busy,
) -> Result<Waits, Error> {
    let Busy {
        rank,
        is_free,
        held,
        now,
    } = busy;
    let (key, how) = (ctx.key(key), call.how(ctx, mailbox));
    if matches!(how, How::Never) && !is_free {
        return Ok(Waits::No);
    }
    let pending = PendingKey {
        key: key.to_id(),
        is_ready: false,
        held,
    };
    let request = call.pending(pending, Vec::new(), rank, now);
    if let Some(mailbox) = mailbox
        && let Some(id) = mail::queued_already(waiting::state(ctx), key, &call.request)
    {
        return pending::repeat(ctx, id, &request, mailbox);
    }
    pending::wait(ctx, &request, is_free, how)
}

/// The request was not refused: its box exists from now on.
fn accepted(ctx: &Context<'_>, mailbox: Option<Mailbox<'_>>) {
    if let Some(mailbox) = mailbox {
        mailbox.open_if_room(ctx);
    }
}
