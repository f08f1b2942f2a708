//! `LOCK.REVOKE key owner [TOKEN t]`
//!
//! It changes nothing that a holder relies on. So it works whenever a release does, also in the grace and while nothing is renewed.

use super::docs;
use super::parse::Parse;
use super::{check_primary, has_left};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::work::open_lock::OpenLock;

pub(crate) struct Revoke;

impl Command for Revoke {
    const NAME: &'static str = "LOCK.REVOKE";
    const MIN_ARGS: usize = 3;
    const DOCS: &'static Docs = &docs::REVOKE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let mut parse = Parse::new(ctx, args);
        let (key, owner) = (parse.key()?, parse.owner()?);
        let token = parse.only_token()?;
        if has_left(ctx, key, owner) {
            ctx.reply_null();
            return Ok(());
        }
        match OpenLock::with(ctx, key, |lock| lock.revoke(owner, token))? {
            Some(revoked) => ctx.reply_integer(revoked.left as i64),
            None => ctx.reply_null(),
        }
        Ok(())
    }
}
