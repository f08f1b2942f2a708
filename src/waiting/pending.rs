//! A request that cannot be granted at once, for one key or for several: decides whether it may wait, and who gets its result.
//!
//! The request enters its queues, which are searched for deadlocks. Then there has to be room. If it may not wait, it leaves the queues as
//! they were.

use mortise_core::mail::BoxId;
use mortise_core::{Deadlock, KeyId, PendingRequest, Queue, Request, WaiterId};

use crate::config;
use crate::error::{Error, shown};
use crate::ffi::{Context, Viewer};
use crate::time;
use crate::totals::{self, Total};
use crate::waiting;
use crate::waiting::mail::NamedBox;
use crate::work::queue as work;

/// How a request may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How<'c> {
    /// Its client is blocked.
    Blocked,
    /// Its answer goes to the box.
    ByMail(NamedBox<'c>),
    /// It may not wait.
    Never,
}

/// What became of a request that cannot be granted at once.
#[derive(Debug)]
pub(crate) enum Waits {
    /// It waits by mail.
    Queued(BoxId),
    /// It waits, and its client is blocked.
    Blocked,
    /// It may not wait, or the server does not let its client be blocked.
    No,
    /// It need not wait: it may have its locks now, ahead of the requests for several keys that stand there.
    LetPast,
}

/// Lets the request wait. `is_free`: its locks would admit it if nobody stood ahead. `repeats`: the request that it repeats, which keeps its
/// place.
///
/// # Errors
/// `DEADLOCK` if the wait would close a cycle; `MAXWAITERS` if too many wait. Nobody has moved then.
pub(crate) fn wait(
    ctx: &Context<'_>,
    request: &PendingRequest,
    is_free: bool,
    repeats: Option<WaiterId>,
    how: How<'_>,
) -> Result<Waits, Error> {
    if let (Some(id), How::ByMail(mailbox)) = (repeats, how) {
        return repeat(ctx, id, request, mailbox);
    }
    let may_wait = !matches!(how, How::Never);
    if !(may_wait || is_free && is_behind_several(ctx, request)) {
        return Ok(Waits::No);
    }
    let enqueued = waiting::queues(ctx).borrow_mut().enqueue(request);
    let enqueued = match enqueued {
        Ok(enqueued) => enqueued,
        Err(_) if !may_wait => return Ok(Waits::No),
        Err(deadlock) => return Err(refuse(ctx, &deadlock, &ctx.viewer())),
    };
    if is_free && enqueued.is_first {
        waiting::queues(ctx).borrow_mut().remove(enqueued.id);
        settle_all(ctx, &enqueued.moved);
        return Ok(Waits::LetPast);
    }
    let waits = match how {
        How::Blocked => block(ctx, enqueued.id),
        How::ByMail(mailbox) => mailbox
            .check(ctx, request.keys.len() as u64, None)
            .map(|()| expect(ctx, enqueued.id, request, mailbox)),
        How::Never => Ok(Waits::No),
    };
    match waits {
        Ok(Waits::Blocked | Waits::Queued(_)) => {
            begin(ctx, request);
            settle_all(ctx, &enqueued.moved);
        }
        _ => waiting::queues(ctx).borrow_mut().withdraw(enqueued),
    }
    waits
}

/// Requests for several keys stand at one of its keys.
fn is_behind_several(ctx: &Context<'_>, request: &PendingRequest) -> bool {
    let queues = waiting::queues(ctx).borrow();
    let several = |key: &KeyId| queues.get(key.as_ref()).and_then(Queue::first_several);
    request.keys.iter().any(|key| several(&key.key).is_some())
}

fn block(ctx: &Context<'_>, id: WaiterId) -> Result<Waits, Error> {
    let max = config::MAX_WAITERS.get();
    if waiting::clients(ctx).borrow().waiting() as u64 >= max {
        return Err(Error::max_waiters(max));
    }
    let Some(blocked) = ctx.block() else {
        return Ok(Waits::No);
    };
    waiting::clients(ctx).borrow_mut().add_waiter(blocked, id);
    waiting::arm(ctx);
    Ok(Waits::Blocked)
}

/// The answer of the request, which is enqueued as `id`, goes to the box, which is made if it is not there.
fn expect(
    ctx: &Context<'_>,
    id: WaiterId,
    request: &PendingRequest,
    mailbox: NamedBox<'_>,
) -> Waits {
    let mailbox = mailbox.open(ctx, request.since);
    let mut mail = waiting::boxes(ctx).mail.borrow_mut();
    mail.expect(id, mailbox, request.keys.len());
    drop(mail);
    waiting::arm(ctx);
    Waits::Queued(mailbox)
}

/// The request waits from now on.
fn begin(ctx: &Context<'_>, request: &PendingRequest) {
    if time::grace(ctx).forbids_grants(request.since) {
        // Its owner may hold the lock, and gets its re-entry as soon as anything is granted.
        let mut queues = waiting::queues(ctx).borrow_mut();
        for key in &request.keys {
            queues.recheck_holders(key.key.as_ref());
        }
    }
}

/// Settles keys where requests have moved.
pub(crate) fn settle_all(ctx: &Context<'_>, keys: &[KeyId]) {
    for key in keys {
        work::settle(ctx, key.as_ref());
    }
}

/// The error of a wait that would close a cycle, for `viewer`.
pub(crate) fn refuse(ctx: &Context<'_>, deadlock: &Deadlock, viewer: &Viewer) -> Error {
    totals::add(ctx, Total::Deadlocks);
    let cycle = &deadlock.keys;
    let visible = cycle.iter().filter(|key| viewer.may_name(key.as_ref()));
    let keys: Vec<_> = visible.map(|key| shown(&key.name)).collect();
    let mut text = format!(
        "DEADLOCK the wait would close a cycle of waits, through the keys {}",
        keys.join(" ")
    );
    let hidden = cycle.len() - keys.len();
    if hidden > 0 {
        text.push_str(&format!(" and {hidden} that your ACL hides"));
    }
    Error::new(text)
}

/// The request `id`, which waits by mail for these keys, is repeated. It keeps its place.
///
/// # Errors
/// `MAXWAITERS` if there is no room in the box. Nothing has changed.
fn repeat(
    ctx: &Context<'_>,
    id: WaiterId,
    request: &PendingRequest,
    mailbox: NamedBox<'_>,
) -> Result<Waits, Error> {
    mailbox.check(ctx, request.keys.len() as u64, Some(id))?;
    let mut queues = waiting::queues(ctx).borrow_mut();
    let changed = queues.take_over(id, request.terms, request.until);
    drop(queues);
    if changed {
        // The locks may be free for what it requests now.
        for key in &request.keys {
            work::settle(ctx, key.key.as_ref());
        }
    }
    Ok(expect(ctx, id, request, mailbox))
}

/// The request of this owner for the same mode and for exactly these keys that waits by mail, if this one waits `by_mail`, too.
///
/// # Errors
/// [`Error::WAITS_FOR_SEVERAL`] or [`Error::WAITS_HERE`] if the owner waits at one of the keys for something else, and one of the two requests is
/// for several keys.
pub(crate) fn repeated(
    ctx: &Context<'_>,
    keys: &[KeyId],
    request: &Request<'_>,
    by_mail: bool,
) -> Result<Option<WaiterId>, Error> {
    let queues = waiting::queues(ctx).borrow();
    let several = request.terms.sharing.keys().is_some();
    if !several && !by_mail && !queues.any_several() {
        return Ok(None);
    }
    let is_by_mail = |id| by_mail && waiting::boxes(ctx).mail.borrow().is_expected(id);
    for key in keys {
        // Where an owner waits for several keys it has no other request.
        let Some(first) = queues.first_request_of(key.as_ref(), request.owner) else {
            continue;
        };
        let its = queues.keys_of(first);
        match its {
            Some(its) if several && is_by_mail(first) && its.are(keys) => {
                return Ok(Some(first));
            }
            _ if several => return Err(Error::WAITS_HERE),
            Some(_) => return Err(Error::WAITS_FOR_SEVERAL),
            None if by_mail => {
                let mode = request.terms.mode();
                let requests = queues.requests_of(key.as_ref(), request.owner);
                return Ok(requests.into_iter().find(|id| {
                    let waiter = queues.waiter(*id);
                    is_by_mail(*id) && waiter.is_some_and(|(_, waiter)| waiter.terms.mode() == mode)
                }));
            }
            None => {}
        }
    }
    Ok(None)
}
