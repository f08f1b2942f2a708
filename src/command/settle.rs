//! `LOCK.SETTLE key`, internal: drops the holds whose lease is over and lets waiters in.

use super::docs;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::turn::dismissals;
use crate::turn::settle::{self, MOST, OpenLock};
use crate::waiting::undelivered;

pub(crate) struct Settle;

impl Command for Settle {
    const NAME: &'static str = "LOCK.SETTLE";
    const MIN_ARGS: usize = 2;
    const DOCS: &'static Docs = &docs::SETTLE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let Some(name) = args.get(1) else {
            return Err(Error::Arity);
        };
        let Some(recheck_holders) = settle::called_with(ctx) else {
            return Err(Error::Internal(Self::NAME));
        };
        let undelivered = undelivered::take(ctx, ctx.db(), name.bytes(), MOST);
        match OpenLock::open(ctx, name) {
            Ok(mut lock) => {
                lock.live();
                lock.take_back(undelivered);
                lock.settle(recheck_holders);
            }
            // The key holds something else by now, so nobody can get a lock here.
            Err(error) => dismissals::refuse_all(ctx, ctx.db(), name.bytes(), error),
        }
        ctx.reply_null();
        Ok(())
    }
}
