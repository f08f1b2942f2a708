//! `LOCK.PASS key owner newowner lease [TOKEN t]`: passes the hold to another owner.

use mortise_core::{PassError, Token};

use super::docs;
use super::parse::Parse;
use super::{check_primary, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs};
use crate::time::{self, clock};
use crate::work::open_lock::OpenLock;

pub(crate) struct Pass;

struct Call<'c> {
    key: Arg<'c>,
    pass: mortise_core::Pass<'c>,
}

fn parse<'c>(ctx: &Context<'_>, args: Args<'c>) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let (key, owner, new_owner) = (parse.key()?, parse.owner()?, parse.new_owner()?);
    let lease = parse.lease()?;
    let token = parse.only_token()?;
    let pass = mortise_core::Pass {
        owner,
        new_owner,
        lease,
        token,
        client: ctx.client_id(),
    };
    Ok(Call { key, pass })
}

impl Command for Pass {
    const NAME: &'static str = "LOCK.PASS";
    const MIN_ARGS: usize = 5;
    const DOCS: &'static Docs = &docs::PASS;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let call = parse(ctx, args)?;
        if has_left(ctx, call.key, call.pass.owner) {
            ctx.reply_null();
            return Ok(());
        }
        match OpenLock::with(ctx, call.key, |lock| pass(lock, &call))?? {
            Some(token) => ctx.reply_integer(token.get() as i64),
            None => ctx.reply_null(),
        }
        Ok(())
    }
}

/// Passes the hold on. Without a hold the reply is null before any other error, because a pass that
/// is sent again after a lost reply must not seem to have failed.
fn pass(lock: &mut OpenLock<'_>, call: &Call<'_>) -> Result<Option<Token>, Error> {
    let (ctx, now) = (lock.ctx, lock.now);
    let Call { key, pass } = call;
    let held = revivable(lock, pass.owner).and_then(|live| live.passable(pass.owner, pass.token));
    if held.is_none() {
        return Ok(None);
    }
    if time::grace(ctx).forbids_grants(now) {
        return Err(Error::NotGranting(time::grace(ctx).left(now)));
    }
    if has_left(ctx, *key, pass.new_owner) {
        return Err(Error::Left);
    }
    match lock.pass(pass, clock::command_wall()) {
        Ok(passed) => Ok(Some(passed.token)),
        Err(PassError::NotHeld) => Ok(None),
        Err(PassError::AlreadyHeld) => Err(Error::AlreadyHeld),
        Err(PassError::OutOfTokens) => Err(Error::OutOfTokens),
    }
}
