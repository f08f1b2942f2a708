//! `LOCK.FENCE key owner token`

use super::parse::Parse;
use super::{change_hold, check_renewable, check_token, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::keys::tokens;
use crate::time::clock;

pub(crate) struct Fence;

/// The one that has a bound.
const ARGUMENT: &str = "token";

impl Command for Fence {
    const DOCS: Docs = Docs {
        name: "LOCK.FENCE",
        usage: "key owner token",
        summary: c"Raises the fencing token of an owner's hold, and every later token with it.",
        complexity: c"O(log N) with N the number of holders",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let token = parse.token(ARGUMENT)?;
        let wall = clock::wall();
        check_token(ctx, ARGUMENT, token, wall)?;
        change_hold(ctx, key, owner, |lock| {
            check_renewable(ctx, lock.now)?;
            let Some(mut live) = revivable(lock, owner) else {
                return Ok(None);
            };
            let fenced = live.fence(owner, token, &mut tokens::clock(ctx).borrow_mut(), wall);
            let fenced = fenced.map_err(|error| Error::too_high(ARGUMENT, token, error))?;
            if let Some(stake) = fenced {
                lock.replicate_hold(owner, stake);
            }
            Ok(fenced.map(|stake| stake.token.get()))
        })
    }
}
