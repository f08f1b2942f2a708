//! `LOCK.REVOKE key owner [TOKEN t]`
//!
//! It changes nothing that a holder relies on. So it works whenever a release does, also in the grace and while nothing is renewed.

use super::change_hold;
use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};

pub(crate) struct Revoke;

impl Command for Revoke {
    const DOCS: Docs = Docs {
        name: "LOCK.REVOKE",
        usage: "key owner [TOKEN token]",
        summary: c"Makes an owner's hold end with its current lease and returns how much of that is left.",
        complexity: c"O(log N) with N the number of holders and waiters, plus O(M) for M waiters answered",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let token = parse.only_token()?;
        change_hold(ctx, key, owner, |lock| {
            let revoked = lock.revoke(owner, token);
            Ok(revoked.map(|revoked| revoked.left))
        })
    }
}
