//! `LOCK.GUARD key owner token [command [arg …]]`
//!
//! For data on the same server a lease is a fence: nothing comes between the check of the hold and the command.

use mortise_core::{OwnerRef, Token};

use super::docs;
use super::parse::Parse;
use super::{check_primary, check_renewable, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs, Keys};
use crate::work::open_lock::OpenLock;

pub(crate) struct Guard;

impl Command for Guard {
    const NAME: &'static str = "LOCK.GUARD";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::GUARD;
    const KEYS: Keys = Keys::AlsoOfCommandAt(4);

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        if ctx.runs_carried_command() {
            return Err(Error::NotInside(Self::NAME));
        }
        check_primary(ctx)?;
        let mut parse = Parse::new(ctx, args);
        let call = Call {
            key: parse.key()?,
            owner: parse.owner()?,
            token: parse.token()?,
            command: parse.rest(),
        };
        if has_left(ctx, call.key, call.owner) {
            return Err(Error::NotHeld);
        }
        if !call.run(ctx, false)? {
            call.run(ctx, true)?;
        }
        Ok(())
    }
}

struct Call<'c> {
    key: Arg<'c>,
    owner: OwnerRef<'c>,
    token: Token,
    command: Args<'c>,
}

impl Call<'_> {
    /// Runs the command if the owner holds the lock. False if the check has ended leases that were over: their subscribers have been notified
    /// instead, and may have changed this lock. With `notifies_later` they are notified after the command.
    fn run(&self, ctx: &Context<'_>, notifies_later: bool) -> Result<bool, Error> {
        let confirm = |lock: &mut OpenLock<'_>| {
            check_renewable(ctx, lock.now)?;
            let confirmed = revivable(lock, self.owner)
                .is_some_and(|mut live| live.confirm(self.owner, self.token));
            if confirmed {
                Ok(lock.has_notices())
            } else {
                Err(Error::NotHeld)
            }
        };
        // The key is closed by then, for the command may open it.
        OpenLock::with_then(ctx, self.key, confirm, |confirmed| {
            if confirmed? && !notifies_later {
                return Ok(false);
            }
            if self.command.len() == 0 {
                ctx.reply_integer(self.token.get() as i64);
            } else {
                ctx.run_for_caller(self.command)?;
            }
            Ok(true)
        })?
    }
}
