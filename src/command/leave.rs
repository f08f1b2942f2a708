//! `LOCK.LEAVE key owner [FOR ms]`: the owner wants nothing here any more.

use mortise_core::{How, KeyId};

use super::check_primary;
use super::docs::{self, Docs};
use super::parse::Parse;
use super::release::release;
use crate::error::Error;
use crate::ffi::{Args, Command, Context};
use crate::time::clock;
use crate::turn::settle::OpenLock;
use crate::waiting;

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
        let (state, db) = (ctx.state(), ctx.db() as u32);
        if let Some(ms) = stays_away {
            let until = clock::now().after(ms);
            let mut left = state.left.borrow_mut();
            left.leave(db, key.bytes(), owner, until);
        }
        let name = key.bytes().into();
        // The queue first: opening the key may let somebody in, and that must not be this owner.
        let waited = waiting::leave(state, &KeyId { db, name }, owner);
        let everything = mortise_core::Release {
            owner,
            how: How::All,
            token: None,
        };
        let held = match OpenLock::open(ctx, key) {
            Ok(mut lock) => release(&mut lock, &everything).is_ok(),
            // Something else is at the key, so nobody holds a lock there.
            Err(_) => false,
        };
        ctx.reply_integer(i64::from(waited || held));
        Ok(())
    }
}
