//! Requests to hold, for one key or for several at once:
//!
//! * `LOCK.ACQUIRE`, `LOCK.WLOCK` and `LOCK.RLOCK key owner lease [WAIT ms [MAIL box]] [HOLDS n] [LIMIT n] [FENCE token] [TOKEN t]`, `LIMIT` in
//!   `LOCK.RLOCK` only
//! * `LOCK.MACQUIRE owner lease numkeys key [key …] [WAIT ms [MAIL box]] [FENCE token]`: several locks at once, all or none

mod call;
mod one;
mod several;

use super::docs;
use super::{answer, check_primary, check_token, has_left};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;

use call::{Form, Named};

pub(crate) struct Acquire;
pub(crate) struct WLock;
pub(crate) struct RLock;
pub(crate) struct MAcquire;

impl Command for Acquire {
    const NAME: &'static str = "LOCK.ACQUIRE";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::ACQUIRE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Write)
    }
}

impl Command for WLock {
    const NAME: &'static str = "LOCK.WLOCK";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::ACQUIRE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Write)
    }
}

impl Command for RLock {
    const NAME: &'static str = "LOCK.RLOCK";
    const MIN_ARGS: usize = 4;
    const DOCS: &'static Docs = &docs::RLOCK;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Read)
    }
}

impl Command for MAcquire {
    const NAME: &'static str = "LOCK.MACQUIRE";
    const MIN_ARGS: usize = 5;
    const DOCS: &'static Docs = &docs::MACQUIRE;
    const KEYS: Keys = Keys::NumberedAt(3);

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Several)
    }
}

fn run(ctx: &Context<'_>, args: Args<'_>, form: Form) -> Result<(), Error> {
    check_primary(ctx)?;
    let mut call = call::parse(ctx, args, form)?;
    let owner = call.request.owner;
    if let Some(fence) = call.request.terms.fence {
        check_token(ctx, "FENCE", fence, clock::command_wall())?;
    }
    if call
        .named
        .all()
        .iter()
        .any(|key| has_left(ctx, *key, owner))
    {
        return Err(Error::Left);
    }
    let mailbox = answer::find_mailbox(ctx, call.mailbox, &mut call.request.terms)?;
    let answer = match &call.named {
        Named::One(key) => one::acquire(ctx, &call, *key, mailbox)?,
        Named::Several(keys) => several::acquire(ctx, &call, keys, mailbox)?,
    };
    answer.reply(ctx);
    Ok(())
}
