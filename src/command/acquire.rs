//! `LOCK.ACQUIRE`, `LOCK.WLOCK` and `LOCK.RLOCK key owner lease [WAIT ms [MAIL box]] [HOLDS n] [LIMIT n] [FENCE token]
//! [TOKEN t]`, `LIMIT` in `LOCK.RLOCK` only

use mortise_core::{AcquireError, Grant, Micros, Mode, Request, Sharing, Terms, Turn};

use super::answer::{self, Answer};
use super::docs;
use super::parse::Parse;
use super::{check_primary, check_token, has_left};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs};
use crate::keys::tokens;
use crate::time::last_deadline;
use crate::time::{self, clock};
use crate::totals;
use crate::waiting;
use crate::waiting::blocking::{self, Place, Waits};
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::queue;
use crate::work::notices::Notice;
use crate::work::open_lock::OpenLock;

pub(crate) struct Acquire;
pub(crate) struct WLock;
pub(crate) struct RLock;

impl Command for Acquire {
    const NAME: &'static str = "LOCK.ACQUIRE";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::ACQUIRE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Write)
    }
}

impl Command for WLock {
    const NAME: &'static str = "LOCK.WLOCK";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::ACQUIRE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Write)
    }
}

impl Command for RLock {
    const NAME: &'static str = "LOCK.RLOCK";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::RLOCK;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Read)
    }
}

struct Call<'c> {
    key: Arg<'c>,
    request: Request<'c>,
    /// Milliseconds, 0 for no limit; `None` to be answered at once.
    wait: Option<u64>,
    /// The box to which the answer goes if it has to wait.
    mailbox: Option<&'c [u8]>,
}

fn parse<'c>(ctx: &Context<'_>, args: Args<'c>, mode: Mode) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let (key, owner, lease) = (parse.key()?, parse.owner()?, parse.lease()?);
    let (mut wait, mut holds, mut fence) = (None, None, None);
    let (mut mailbox, mut token, mut limit) = (None, None, None);
    while let Some(option) = parse.option() {
        if option.is("WAIT") {
            parse.wait_into(&mut wait)?;
        } else if option.is("HOLDS") {
            parse.count_of_holds_into("HOLDS", &mut holds)?;
        } else if option.is("FENCE") {
            parse.token_into("FENCE", &mut fence)?;
        } else if option.is("TOKEN") {
            parse.token_into("TOKEN", &mut token)?;
        } else if option.is("LIMIT") && mode == Mode::Read {
            parse.count_of_holds_into("LIMIT", &mut limit)?;
        } else if option.is("MAIL") {
            parse.mailbox_into(&mut mailbox)?;
        } else {
            return Err(option.unknown());
        }
    }
    if mailbox.is_some() && (wait.is_none() || holds.is_none()) {
        return Err(Error::Needs("MAIL", "WAIT and HOLDS"));
    }
    if let Some(limit) = limit
        && let Some(holds) = holds
        && holds > limit
    {
        return Err(Error::Bounds {
            argument: "HOLDS",
            bounds: format!("at most {} (LIMIT)", limit.get()),
            got: holds.get().to_string().into(),
        });
    }
    let terms = Terms {
        sharing: limit.map_or(mode.into(), Sharing::within),
        lease,
        holds,
        fence,
        token,
        client: 0,
    };
    let request = Request { owner, terms };
    Ok(Call {
        key,
        request,
        wait,
        mailbox,
    })
}

fn run(ctx: &Context<'_>, args: Args<'_>, mode: Mode) -> Result<(), Error> {
    check_primary(ctx)?;
    let mut call = parse(ctx, args, mode)?;
    let wall = clock::command_wall();
    if let Some(fence) = call.request.terms.fence {
        check_token(ctx, "FENCE", fence, wall)?;
    }
    if has_left(ctx, call.key, call.request.owner) {
        return Err(Error::Left);
    }
    let mailbox = answer::find_mailbox(ctx, call.mailbox, &mut call.request.terms)?;
    let attempt = |turn: Option<Turn>| {
        let step = |lock: &mut OpenLock<'_>| take(lock, &call.request, turn, wall);
        OpenLock::with_then(ctx, call.key, step, |taken| {
            decide(ctx, &call, mailbox, taken?)
        })?
    };
    let answer = match attempt(None)? {
        // It may overtake the requests for several keys that stand ahead of it.
        None => attempt(Some(Turn::First))?,
        answer => answer,
    };
    // Twice only if a callback of another module has come in between.
    answer.unwrap_or(Answer::Null).reply(ctx);
    Ok(())
}

/// A request as the open lock has decided it.
enum Taken {
    Granted(Grant),
    /// It may wait.
    Busy(Place),
    Failed(AcquireError),
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
    Ok(match acquire(lock, request, turn, wall) {
        Ok(grant) => {
            last_deadline::note(time::state(ctx), now.after(request.terms.lease.as_millis()));
            lock.replicate(request.owner);
            lock.notify(Notice::Acquired);
            totals::get(ctx).count_grant(grant);
            Taken::Granted(grant)
        }
        Err(AcquireError::Busy(busy)) => Taken::Busy(Place {
            rank: busy.into(),
            is_free: turn == Turn::Behind && may_pass(lock, request),
            held: lock.observe(),
            now,
        }),
        Err(error) => Taken::Failed(error),
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
    mailbox: Option<Mailbox<'_>>,
    taken: Taken,
) -> Result<Option<Answer>, Error> {
    let (key, request) = (ctx.key(call.key), &call.request);
    match taken {
        Taken::Granted(grant) => {
            accepted(ctx, call, mailbox);
            Ok(Some(Answer::Granted(grant.token())))
        }
        Taken::Failed(AcquireError::NotHeldByToken | AcquireError::NoRoom) => {
            accepted(ctx, call, mailbox);
            Ok(Some(Answer::Null))
        }
        Taken::Failed(error) => Err(error.into()),
        Taken::Busy(place) => {
            let until = answer::until(call.wait, place.now);
            let waits = if let Some(mailbox) = mailbox {
                blocking::queue(ctx, key, request, place, until, mailbox)?
            } else if call.wait.is_some() && !ctx.denies_blocking() {
                blocking::block(ctx, key, request, place, until)?
            } else if blocking::is_let_past_without_wait(ctx, key, request, &place) {
                Waits::LetPast
            } else {
                Waits::No
            };
            Ok(match waits {
                Waits::Queued(id) => {
                    mail::withdraw_refusal(waiting::state(ctx), key, request);
                    Some(Answer::Queued(id))
                }
                Waits::Blocked => Some(Answer::Blocked),
                Waits::No => Some(Answer::Null),
                Waits::LetPast => None,
            })
        }
    }
}

/// The request was not refused: its box exists from now on, and an earlier refusal is withdrawn.
fn accepted(ctx: &Context<'_>, call: &Call<'_>, mailbox: Option<Mailbox<'_>>) {
    let Some(mailbox) = mailbox else { return };
    mailbox.open_if_room(ctx);
    mail::withdraw_refusal(waiting::state(ctx), ctx.key(call.key), &call.request);
}

fn acquire(
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
