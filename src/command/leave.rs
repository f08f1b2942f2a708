//! `LOCK.LEAVE key owner [FOR ms]`: ends all that the owner has at this key.

use mortise_core::How;

use super::check_primary;
use super::docs;
use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs};
use crate::time::clock;
use crate::waiting::{self, left};
use crate::work::open_lock::OpenLock;

pub(crate) struct Leave;

impl Command for Leave {
    const NAME: &'static str = "LOCK.LEAVE";
    const MIN_ARGS: usize = 3;
    const DOCS: &'static Docs = &docs::LEAVE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let mut parse = Parse::new(ctx, args);
        let (key, owner) = (parse.key()?, parse.owner()?);
        let mut stays_away = None;
        while let Some(option) = parse.option() {
            if !option.is("FOR") {
                return Err(option.unknown());
            }
            parse.stay_away_into(&mut stays_away)?;
        }
        let named = ctx.key(key);
        if let Some(ms) = stays_away {
            // The clock counts whole milliseconds, and the first one has already begun.
            let until = clock::now().after(ms + 1);
            let mut left = left::all(ctx).borrow_mut();
            left.leave(named, owner, until);
        }
        // The queue first: opening the key may grant a waiter, and that must not be this owner.
        let waited = waiting::leave(ctx, named, owner);
        let everything = mortise_core::Release {
            owner,
            how: How::All,
            token: None,
        };
        // If the key holds another type, nobody holds a lock there.
        let released = OpenLock::with(ctx, key, |lock| lock.release(&everything));
        let held = matches!(released, Ok(Ok(_)));
        ctx.reply_integer(i64::from(waited || held));
        Ok(())
    }
}
