//! `LOCK.ACQUIRE`, `LOCK.WLOCK` and `LOCK.RLOCK key owner lease [WAIT ms [MAIL box]] [HOLDS n] [FENCE token] [TOKEN t]`

use mortise_core::mail::BoxId;
use mortise_core::{AcquireError, Busy, Count, Grant, Micros, Mode, Request};

use super::docs;
use super::parse::Parse;
use super::{check_primary, check_token, has_left};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs};
use crate::keys::tokens;
use crate::time::clock;
use crate::time::{grace, last_deadline};
use crate::totals;
use crate::turn::settle::OpenLock;
use crate::waiting::blocking;
use crate::waiting::mail::{self, Mailbox};

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
    let (mut mailbox, mut token) = (None, None);
    while let Some(option) = parse.option() {
        if option.is("WAIT") {
            parse.wait_into(&mut wait)?;
        } else if option.is("HOLDS") {
            parse.holds_into(1, &mut holds)?;
        } else if option.is("FENCE") {
            parse.token_into("FENCE", &mut fence)?;
        } else if option.is("TOKEN") {
            parse.token_into("TOKEN", &mut token)?;
        } else if option.is("MAIL") {
            parse.mailbox_into(&mut mailbox)?;
        } else {
            return Err(option.unknown());
        }
    }
    if mailbox.is_some() && (wait.is_none() || holds.is_none()) {
        return Err(Error::Needs("MAIL", "WAIT and HOLDS"));
    }
    let request = Request {
        owner,
        mode,
        lease,
        holds: holds.and_then(Count::new),
        fence,
        token,
        client: 0,
    };
    Ok(Call {
        key,
        request,
        wait,
        mailbox,
    })
}

fn run(ctx: &Context<'_>, args: Args<'_>, mode: Mode) -> Result<(), Error> {
    check_primary(ctx)?;
    let Call {
        key,
        mut request,
        wait,
        mailbox,
    } = parse(ctx, args, mode)?;
    let wall = clock::command_wall();
    if let Some(fence) = request.fence {
        check_token(ctx, "FENCE", fence, wall)?;
    }
    if has_left(ctx, key, request.owner) {
        return Err(Error::Left);
    }
    let mailbox = match mailbox {
        Some(name) => Some(mail::find(ctx, name)?),
        None => {
            request.client = ctx.client_id();
            None
        }
    };
    let mut lock = OpenLock::open(ctx, key)?;
    let now = lock.now;
    let outcome = acquire(&mut lock, &request, wall);
    if outcome.is_ok() {
        let deadline = now.after(request.lease.as_millis());
        last_deadline::note(ctx, deadline);
        lock.announce(request.owner);
    }
    drop(lock);
    match outcome {
        Ok(grant) => {
            accepted(ctx, key, &request, mailbox);
            ctx.notify(c"lock.acquire", key);
            totals::get(ctx).count_grant(grant);
            ctx.reply_integer(grant.token().get() as i64);
            Ok(())
        }
        Err(AcquireError::Busy(busy)) => {
            let how = blocking::Waiting {
                upgrade: busy == Busy::Upgrade,
                limit: wait.filter(|wait| *wait > 0).map(|wait| now.after(wait)),
            };
            match mailbox {
                Some(mailbox) => {
                    let id = blocking::queue(ctx, key.bytes(), &request, how, now, mailbox)?;
                    mail::withdraw_refusal(ctx, ctx.db(), key.bytes(), &request);
                    reply_queued(ctx, id);
                    Ok(())
                }
                None if wait.is_some() && !ctx.denies_blocking() => {
                    if !blocking::block(ctx, key.bytes(), &request, how, now)? {
                        deny(ctx);
                    }
                    Ok(())
                }
                None => {
                    deny(ctx);
                    Ok(())
                }
            }
        }
        Err(AcquireError::NotHeldByToken) => {
            accepted(ctx, key, &request, mailbox);
            deny(ctx);
            Ok(())
        }
        Err(error) => Err(Error::of(error, request.fence)),
    }
}

/// The request was not refused: its box is there from now on, and what refused it before is not told any more.
fn accepted(ctx: &Context<'_>, key: Arg<'_>, request: &Request<'_>, mailbox: Option<Mailbox<'_>>) {
    let Some(mailbox) = mailbox else { return };
    // A request that does not wait needs no box.
    if mailbox.check_room(ctx, 0).is_ok() {
        mailbox.open(ctx, clock::now());
    }
    mail::withdraw_refusal(ctx, ctx.db(), key.bytes(), request);
}

fn reply_queued(ctx: &Context<'_>, id: BoxId) {
    ctx.reply_array(2);
    ctx.reply_text(c"QUEUED");
    ctx.reply_integer(id.0 as i64);
}

fn deny(ctx: &Context<'_>) {
    totals::get(ctx).denied.add_one();
    ctx.reply_null();
}

fn acquire(
    lock: &mut OpenLock<'_>,
    request: &Request<'_>,
    wall: Micros,
) -> Result<Grant, AcquireError> {
    let now = lock.now;
    let others_wait = lock.has_waiters();
    let ctx = lock.ctx;
    if grace::get(ctx).forbids_grants(now) {
        let missing = request
            .token
            .is_some_and(|token| !lock.adds_to_hold(request.owner, token));
        if missing {
            return Err(AcquireError::NotHeldByToken);
        }
        return Err(AcquireError::Busy(busy_in_grace(lock, request)));
    }
    lock.with_live(|live| {
        // Nobody overtakes the queue but an owner that holds already.
        if others_wait && live.hold(request.owner).is_none() && request.token.is_none() {
            return Err(AcquireError::Busy(Busy::Held));
        }
        live.acquire(request, &mut tokens::clock(ctx).borrow_mut(), wall)
    })
}

/// What a request waits for while nothing is granted. A reader that asks for write waits as an upgrade then, too.
fn busy_in_grace(lock: &mut OpenLock<'_>, request: &Request<'_>) -> Busy {
    let stake = lock.live().and_then(|live| live.hold(request.owner));
    match stake {
        Some(stake) if request.mode == Mode::Write && stake.write == 0 => Busy::Upgrade,
        _ => Busy::Held,
    }
}
