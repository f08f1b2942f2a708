//! `LOCK.ACQUIRE`, `LOCK.WLOCK` and `LOCK.RLOCK key owner lease [WAIT ms] [HOLDS n] [FENCE token]`

use mortise_core::{AcquireError, Busy, Count, Grant, Lock, Mode, Request};

use super::check_primary;
use super::parse::{Parse, token_too_high};
use crate::clock;
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context};
use crate::settle::Place;
use crate::state::STATE;
use crate::value::Value;

pub(crate) struct Acquire;
pub(crate) struct WLock;
pub(crate) struct RLock;

impl Command for Acquire {
    const NAME: &'static str = "LOCK.ACQUIRE";
    const MIN_ARGS: usize = 4;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Write)
    }
}

impl Command for WLock {
    const NAME: &'static str = "LOCK.WLOCK";
    const MIN_ARGS: usize = 4;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Write)
    }
}

impl Command for RLock {
    const NAME: &'static str = "LOCK.RLOCK";
    const MIN_ARGS: usize = 4;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Mode::Read)
    }
}

struct Call<'c> {
    key: Arg<'c>,
    request: Request<'c>,
}

fn parse<'c>(args: Args<'c>, mode: Mode) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(args);
    let (key, owner, lease) = (parse.key()?, parse.owner()?, parse.lease()?);
    let (mut wait, mut holds, mut fence) = (None, None, None);
    while let Some(option) = parse.option() {
        if option.is("WAIT") {
            parse.wait_into(&mut wait)?;
        } else if option.is("HOLDS") {
            parse.holds_into(1, &mut holds)?;
        } else if option.is("FENCE") {
            parse.token_into("FENCE", &mut fence)?;
        } else {
            return Err(option.unknown());
        }
    }
    let holds = holds.and_then(Count::new);
    Ok(Call {
        key,
        request: Request {
            owner,
            mode,
            lease,
            holds,
            fence,
            client: 0,
        },
    })
}

fn run(ctx: &Context<'_>, args: Args<'_>, mode: Mode) -> Result<(), Error> {
    check_primary()?;
    let Call { key, mut request } = parse(args, mode)?;
    request.client = ctx.client_id();
    let mut place = Place::open(ctx, key)?;
    match acquire(&mut place, &request) {
        Ok(grant) => {
            place.announce(request.owner);
            place.close();
            ctx.notify(c"lock.acquire", key);
            STATE.with(|state| match grant {
                Grant::Reentry(_) => state.totals.reentries.add_one(),
                Grant::New(_) | Grant::Upgrade(_) => state.totals.grants.add_one(),
            });
            ctx.reply_integer(grant.token().get() as i64);
            Ok(())
        }
        Err(error) => {
            place.close();
            if let AcquireError::Busy(_) = error {
                STATE.with(|state| state.totals.denied.add_one());
                ctx.reply_null();
                return Ok(());
            }
            Err(refusal(error, &request))
        }
    }
}

fn acquire(place: &mut Place<'_>, request: &Request<'_>) -> Result<Grant, AcquireError> {
    let (now, wall) = (place.now, clock::wall());
    STATE.with(|state| {
        if state.in_grace(now) {
            if let Some(fence) = request.fence {
                let tokens = state.tokens.borrow();
                tokens
                    .check(fence, wall)
                    .map_err(AcquireError::TokenTooHigh)?;
            }
            return Err(AcquireError::Busy(Busy::Held));
        }
        if let Some(mut live) = place.live() {
            return live.acquire(request, &mut state.tokens.borrow_mut(), wall);
        }
        let mut lock = Lock::free();
        let mut live = lock.at(now, |_, _| {});
        let grant = live.acquire(request, &mut state.tokens.borrow_mut(), wall)?;
        place.create(Value::new(lock));
        Ok(grant)
    })
}

fn refusal(error: AcquireError, request: &Request<'_>) -> Error {
    match (error, request.fence) {
        (AcquireError::TokenTooHigh(error), Some(fence)) => token_too_high("FENCE", fence, error),
        (AcquireError::CountTooHigh, _) => Error::CountTooHigh,
        _ => Error::OutOfTokens,
    }
}
