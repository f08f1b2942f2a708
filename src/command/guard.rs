//! `LOCK.GUARD key owner token [command [arg …]]`
//!
//! For data on the same server a lease is a fence: nothing comes between the check of the hold and the command.

use super::docs;
use super::parse::Parse;
use super::{check_primary, check_renewable, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
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
        let (key, owner, token) = (parse.key()?, parse.owner()?, parse.token()?);
        let guarded = parse.rest();
        if has_left(ctx, key, owner) {
            return Err(Error::NotHeld);
        }
        let confirm = |lock: &mut OpenLock<'_>| {
            check_renewable(ctx, lock.now)?;
            let confirmed =
                revivable(lock, owner).is_some_and(|mut live| live.confirm(owner, token));
            if confirmed {
                Ok(())
            } else {
                Err(Error::NotHeld)
            }
        };
        // The key is closed by then, for the command may open it.
        OpenLock::with_then(ctx, key, confirm, |confirmed| {
            confirmed?;
            if guarded.len() == 0 {
                ctx.reply_integer(token.get() as i64);
                return Ok(());
            }
            ctx.run_for_caller(guarded)
        })?
    }
}
