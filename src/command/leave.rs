//! `LOCK.LEAVE key owner [FOR ms]`: ends all that the owner has at this key.

use mortise_core::How;

use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::waiting::{self, waiters};
use crate::work::open_lock::OpenLock;

pub(crate) struct Leave;

impl Command for Leave {
    const DOCS: Docs = Docs {
        name: "LOCK.LEAVE",
        usage: "key owner [FOR milliseconds]",
        summary: c"Ends all that an owner holds and waits for at a key, and returns whether there was anything.",
        complexity: c"O(log N) with N the number of holders and waiters, plus O(M) for M readers granted",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let mut stay = None;
        parse.options(|parse| parse.option("FOR", &mut stay, Parse::stay))?;
        let named = ctx.key(key);
        if let Some(ms) = stay {
            // The clock counts whole milliseconds, and the first one has already begun.
            let until = clock::now().after(ms + 1);
            let mut left = waiting::left(ctx).borrow_mut();
            left.leave(named, owner, until);
        }
        let everything = mortise_core::Release {
            owner,
            how: How::All,
            token: None,
        };
        // Its hold and its requests go together: others are granted once neither blocks them.
        let found = OpenLock::with(ctx, key, |lock| {
            let held = lock.release(&everything).is_ok();
            lock.queue_has_changed();
            held | waiters::leave(ctx, named, owner)
        });
        // If the key holds another type, nobody holds a lock there.
        let found = found.unwrap_or_else(|_| waiters::leave(ctx, named, owner));
        ctx.reply_integer(i64::from(found));
        Ok(())
    }
}
