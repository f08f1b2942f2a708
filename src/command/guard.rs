//! `LOCK.GUARD key owner token [command [arg …]]`
//!
//! For data on the same server a lease is a fence: nothing comes between the check of the hold and the command.

use mortise_core::{OwnerRef, Token};

use super::parse::Parse;
use super::{check_renewable, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::work::open_lock::Notices;
use crate::work::open_lock::OpenLock;

pub(crate) struct Guard;

impl Command for Guard {
    const DOCS: Docs = Docs {
        name: "LOCK.GUARD",
        usage: "key owner token [guarded: command [arg …]]",
        summary:
            c"Runs a command if an owner holds the lock by a fencing token, at this very moment.",
        complexity: c"O(log N) with N the number of holders, plus that of the command inside",
        flags: "write",
        keys: Keys::ReadAndInner,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        if ctx.runs_carried_command() {
            return Err(Error::not_inside(Self::DOCS.name));
        }
        let mut parse = Parse::of_change(ctx, args)?;
        let call = Call {
            key: parse.key()?,
            owner: parse.owner("owner")?,
            token: parse.token("token")?,
            command: parse.rest(),
        };
        if has_left(ctx, call.key, call.owner) {
            return Err(Error::NOT_HELD);
        }
        let mut notices = Notices::default();
        let mut confirmed = call.confirm(ctx, &mut notices);
        if !notices.is_empty() {
            // The check has ended leases that were over. Their subscribers may change this lock, so it is checked again.
            std::mem::take(&mut notices).send(ctx);
            confirmed = call.confirm(ctx, &mut notices);
        }
        // The key is closed by now, for the command may open it.
        let outcome = confirmed.and_then(|()| call.run(ctx));
        notices.send(ctx);
        outcome
    }
}

struct Call<'c> {
    key: Arg<'c>,
    owner: OwnerRef<'c>,
    token: Token,
    command: Args<'c>,
}

impl<'c> Call<'c> {
    /// Checks that the owner holds the lock by the token.
    fn confirm(&self, ctx: &'c Context<'c>, notices: &mut Notices<'c>) -> Result<(), Error> {
        OpenLock::with_notices(ctx, self.key, clock::now(), notices, |lock| {
            check_renewable(ctx, lock.now)?;
            let confirmed = revivable(lock, self.owner)
                .is_some_and(|mut live| live.confirm(self.owner, self.token));
            confirmed.then_some(()).ok_or(Error::NOT_HELD)
        })?
    }

    fn run(&self, ctx: &Context<'_>) -> Result<(), Error> {
        if self.command.len() > 0 {
            return ctx.run_for_caller(self.command);
        }
        ctx.reply_integer(self.token.get() as i64);
        Ok(())
    }
}
