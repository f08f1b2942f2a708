//! `LOCK.SETTLE key [key …]`, internal: drops the holds whose lease is over and grants waiters; or grants several keys at once.

use super::docs;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::waiting::undelivered;
use crate::work::open_lock::OpenLock;
use crate::work::refuse;
use crate::work::settle::MOST;
use crate::work::settle_call::{self, SettleCall};
use crate::work::several;

pub(crate) struct Settle;

impl Command for Settle {
    const NAME: &'static str = "LOCK.SETTLE";
    const MIN_ARGS: usize = 2;
    const DOCS: &'static Docs = &docs::SETTLE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let Some(name) = args.get(1) else {
            return Err(Error::Arity);
        };
        let Some(call) = settle_call::take(ctx) else {
            return Err(Error::Internal(Self::NAME));
        };
        if let SettleCall::Several(id) = call {
            let names: Vec<_> = (1..args.len()).filter_map(|nth| args.get(nth)).collect();
            several::grant_waiting(ctx, &names, id);
            ctx.reply_null();
            return Ok(());
        }
        let undelivered = undelivered::take(ctx, ctx.key(name), MOST);
        let settled = OpenLock::with(ctx, name, |lock| {
            lock.live();
            lock.undo_grants(undelivered);
            lock.settle();
        });
        if let Err(error) = settled {
            // The key holds something else by now, so nobody can get a lock here.
            refuse::at_key(ctx, ctx.key(name), error);
        }
        ctx.reply_null();
        Ok(())
    }
}
