//! `LOCK.RENEW key owner lease [TOKEN t]`

use super::docs;
use super::parse::Parse;
use super::{check_primary, check_renewable, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::totals;
use crate::work::open_lock::OpenLock;

pub(crate) struct Renew;

impl Command for Renew {
    const NAME: &'static str = "LOCK.RENEW";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::RENEW;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let mut parse = Parse::new(ctx, args);
        let (key, owner, lease) = (parse.key()?, parse.owner()?, parse.lease()?);
        let token = parse.only_token()?;
        if has_left(ctx, key, owner) {
            ctx.reply_null();
            return Ok(());
        }
        let renewed = OpenLock::with(ctx, key, |lock| {
            check_renewable(ctx, lock.now)?;
            if revivable(lock, owner).is_none() {
                return Ok(None);
            }
            let renewed = lock.renew(owner, lease, token);
            if renewed.is_some() {
                totals::get(ctx).renewals.add_one();
            }
            Ok::<_, Error>(renewed)
        })?;
        match renewed? {
            Some(token) => ctx.reply_integer(token.get() as i64),
            None => ctx.reply_null(),
        }
        Ok(())
    }
}
