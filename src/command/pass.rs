//! `LOCK.PASS key owner newowner lease [TOKEN t]`: passes the hold to another owner.

use mortise_core::PassError;

use super::parse::Parse;
use super::{change_hold, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::{self, clock};
use crate::work::open_lock::OpenLock;

pub(crate) struct Pass;

impl Command for Pass {
    const DOCS: Docs = Docs {
        name: "LOCK.PASS",
        usage: "key owner newowner lease [TOKEN token]",
        summary: c"Passes an owner's whole hold on to another owner and returns the new fencing token.",
        complexity: c"O(log N) with N the number of holders and waiters, plus O(M) for M requests of the new owner",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let call = mortise_core::Pass {
            owner,
            new_owner: parse.owner("newowner")?,
            lease: parse.lease()?,
            token: parse.only_token()?,
            client: ctx.client_id(),
        };
        change_hold(ctx, key, owner, |lock| pass(lock, &call))
    }
}

/// Passes the hold on. Without a hold the reply is null before any other error, because a pass that
/// is sent again after a lost reply must not seem to have failed.
fn pass(lock: &mut OpenLock<'_>, pass: &mortise_core::Pass<'_>) -> Result<Option<u64>, Error> {
    let (ctx, now) = (lock.ctx, lock.now);
    let held = revivable(lock, pass.owner).and_then(|live| live.passable(pass.owner, pass.token));
    if held.is_none() {
        return Ok(None);
    }
    if time::grace(ctx).forbids_grants(now) {
        return Err(Error::not_granting(time::grace(ctx).left(now)));
    }
    if has_left(ctx, lock.name, pass.new_owner) {
        return Err(Error::LEFT);
    }
    match lock.pass(pass, clock::command_wall()) {
        Ok(passed) => Ok(Some(passed.token.get())),
        Err(PassError::NotHeld) => Ok(None),
        Err(PassError::AlreadyHeld) => Err(Error::ALREADY_HELD),
        Err(PassError::OutOfTokens) => Err(Error::OUT_OF_TOKENS),
    }
}
