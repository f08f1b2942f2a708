//! `LOCK.FENCE key owner token`

use super::docs;
use super::parse::Parse;
use super::{check_primary, check_renewable, check_token, has_left, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::keys::tokens;
use crate::time::clock;
use crate::work::open_lock::OpenLock;

pub(crate) struct Fence;

/// The one that has a bound.
const ARGUMENT: &str = "token";

impl Command for Fence {
    const NAME: &'static str = "LOCK.FENCE";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::FENCE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let mut parse = Parse::new(ctx, args);
        let (key, owner, token) = (parse.key()?, parse.owner()?, parse.token()?);
        if let Some(option) = parse.option() {
            return Err(option.unknown());
        }
        let wall = clock::wall();
        check_token(ctx, ARGUMENT, token, wall)?;
        if has_left(ctx, key, owner) {
            ctx.reply_null();
            return Ok(());
        }
        let fenced = OpenLock::with(ctx, key, |lock| {
            check_renewable(ctx, lock.now)?;
            let fenced = match revivable(lock, owner) {
                Some(mut live) => {
                    live.fence(owner, token, &mut tokens::clock(ctx).borrow_mut(), wall)
                }
                None => Ok(None),
            };
            if let Ok(Some(_)) = fenced {
                lock.replicate(owner);
            }
            fenced.map_err(|error| Error::too_high(ARGUMENT, Some(token), error))
        })?;
        match fenced? {
            Some(stake) => ctx.reply_integer(stake.token.get() as i64),
            None => ctx.reply_null(),
        }
        Ok(())
    }
}
