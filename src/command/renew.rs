//! `LOCK.RENEW key owner lease [TOKEN t]`

use mortise_core::Token;

use super::parse::Parse;
use super::{change_hold, check_renewable, revivable};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::totals::{self, Total};

pub(crate) struct Renew;

impl Command for Renew {
    const DOCS: Docs = Docs {
        name: "LOCK.RENEW",
        usage: "key owner lease [TOKEN token]",
        summary: c"Lengthens the lease of an owner's hold and returns its fencing token.",
        complexity: c"O(log N) with N the number of holders",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let lease = parse.lease()?;
        let token = parse.only_token()?;
        change_hold(ctx, key, owner, |lock| {
            check_renewable(ctx, lock.now)?;
            if revivable(lock, owner).is_none() {
                return Ok(None);
            }
            let renewed = lock.renew(owner, lease, token);
            if renewed.is_some() {
                totals::add(ctx, Total::Renewals);
            }
            Ok(renewed.map(Token::get))
        })
    }
}
