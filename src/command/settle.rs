//! `LOCK.SETTLE waiter key [key …]`, internal: drops the holds whose lease is over and grants waiters; or, if `waiter` is not 0, grants that
//! request all of these keys.

use mortise_core::WaiterId;

use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs, Keys};
use crate::waiting::undelivered;
use crate::work::open_lock::OpenLock;
use crate::work::settle::MOST;
use crate::work::{grant, refuse, settle_key};

pub(crate) struct Settle;

impl Command for Settle {
    const DOCS: Docs = Docs {
        name: "LOCK.SETTLE",
        usage: "waiter key …",
        summary: c"Internal: how the module's timers change a lock.",
        complexity: c"O(log N) with N the number of holders and waiters",
        flags: "write no-monitor",
        keys: Keys::WriteAll,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        if !settle_key::is_own_call(ctx) {
            return Err(Error::internal(Self::DOCS.name));
        }
        let mut parse = Parse::new(args);
        match parse.waiter()? {
            WaiterId(0) => settle(ctx, parse.key()?),
            id => {
                let names: Vec<_> = parse.rest().iter().collect();
                grant::waiting(ctx, &names, id);
            }
        }
        ctx.reply_null();
        Ok(())
    }
}

fn settle(ctx: &Context<'_>, name: Arg<'_>) {
    let undelivered = undelivered::take_at(ctx, ctx.key(name), MOST);
    let settled = OpenLock::with(ctx, name, |lock| {
        lock.live();
        lock.undo_grants(undelivered);
    });
    if let Err(error) = settled {
        // The key holds something else by now, so nobody can get a lock here.
        refuse::at_key(ctx, ctx.key(name), error);
    }
}
