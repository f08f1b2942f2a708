//! `LOCK.INFO key [OWNER owner] [COUNT n]`
//!
//! It changes nothing, not even a hold whose lease is over: such a hold is left out.

use mortise_core::{Instant, Lock, Mode, Owner, Stake};

use super::parse::Parse;
use crate::clock;
use crate::error::Error;
use crate::ffi::{Access, Args, Command, Context, Kind};

/// How many holds are shown unless COUNT says otherwise.
const SHOWN: usize = 100;

pub(crate) struct Info;

impl Command for Info {
    const NAME: &'static str = "LOCK.INFO";
    const MIN_ARGS: usize = 2;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::new(args);
        let name = parse.key()?;
        let (mut wanted, mut count) = (None, None);
        while let Some(option) = parse.option() {
            if option.is("OWNER") {
                parse.owner_into(&mut wanted)?;
            } else if option.is("COUNT") {
                parse.count_into(&mut count)?;
            } else {
                return Err(option.unknown());
            }
        }
        let mut key = ctx.open(name, Access::Read);
        if key.kind() == Kind::Other {
            return Err(Error::WrongType);
        }
        let now = clock::now();
        let lock = key.value().map(|value| &value.lock);
        match (lock, wanted) {
            (None, _) => ctx.reply_null(),
            (Some(lock), Some(wanted)) => {
                match lock.holds().find(|(owner, _)| owner.as_ref() == wanted) {
                    Some((owner, stake)) if !stake.is_over(now) => hold(ctx, owner, stake, now),
                    _ => ctx.reply_null(),
                }
            }
            (Some(lock), None) => whole(ctx, lock, now, count.unwrap_or(SHOWN)),
        }
        Ok(())
    }
}

fn whole(ctx: &Context<'_>, lock: &Lock, now: Instant, count: usize) {
    let Some(mode) = lock.mode(now) else {
        return ctx.reply_null();
    };
    let holders = lock.live_len(now);
    ctx.reply_map(5);
    ctx.reply_text(c"mode");
    ctx.reply_text(match mode {
        Mode::Write => c"write",
        Mode::Read => c"read",
    });
    ctx.reply_text(c"holders");
    ctx.reply_integer(holders as i64);
    ctx.reply_text(c"waiters");
    ctx.reply_integer(0);
    ctx.reply_text(c"holds");
    ctx.reply_array(holders.min(count));
    for (owner, stake) in lock
        .holds()
        .filter(|(_, stake)| !stake.is_over(now))
        .take(count)
    {
        hold(ctx, owner, stake, now);
    }
    ctx.reply_text(c"queue");
    ctx.reply_array(0);
}

fn hold(ctx: &Context<'_>, owner: &Owner, stake: &Stake, now: Instant) {
    ctx.reply_map(7);
    ctx.reply_text(c"owner");
    ctx.reply_bytes(owner.as_bytes());
    for (field, value) in [
        (c"write", u64::from(stake.write)),
        (c"read", u64::from(stake.read)),
        (c"token", stake.token.get()),
        (c"lease", stake.deadline.millis_since(now)),
        (c"held", now.millis_since(stake.since)),
        (c"client", stake.touched.client()),
    ] {
        ctx.reply_text(field);
        ctx.reply_integer(value as i64);
    }
}
