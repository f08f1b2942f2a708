//! Requests to hold, for one key or for several at once:
//!
//! * `LOCK.ACQUIRE`, `LOCK.WLOCK` and `LOCK.RLOCK key owner lease [WAIT ms [MAIL box]] [HOLDS n] [LIMIT n] [FENCE token] [TOKEN t]`, `LIMIT` in
//!   `LOCK.RLOCK` only
//! * `LOCK.MACQUIRE owner lease numkeys key [key …] [WAIT ms [MAIL box]] [FENCE token]`: several locks at once, all or none

mod attempt;

use std::ffi::CStr;

use super::{check_token, has_left};
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::totals::{self, Total};
use crate::waiting::mail::NamedBox;
use crate::waiting::pending::{self, How, Waits};
use crate::work::open_lock::Notices;
use crate::work::slice::Stretch;

use attempt::{Attempt, Call, Form, attempt, parse};

pub(crate) struct Acquire;
pub(crate) struct WLock;
pub(crate) struct RLock;
pub(crate) struct MAcquire;

const WRITE_USAGE: &str =
    "key owner lease [WAIT milliseconds [MAIL box]] [HOLDS holds] [FENCE fence] [TOKEN token]";
const READ_USAGE: &str = "key owner lease [WAIT milliseconds [MAIL box]] [HOLDS holds] [LIMIT limit] [FENCE fence] [TOKEN token]";

const fn docs(name: &'static str, usage: &'static str, summary: &'static CStr) -> Docs {
    Docs {
        name,
        usage,
        summary,
        complexity: c"O(log N) with N the number of holders and waiters, plus O(M log N) where it waits and others wait for its task, with M the steps of the search for deadlocks, 4000 at most",
        flags: "write deny-oom fast blocking",
        keys: Keys::Write,
    }
}

const WRITE_SUMMARY: &CStr =
    c"Takes a lock exclusively, at once or after a wait, and returns its fencing token.";

impl Command for Acquire {
    const DOCS: Docs = docs("LOCK.ACQUIRE", WRITE_USAGE, WRITE_SUMMARY);

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Write)
    }
}

impl Command for WLock {
    const DOCS: Docs = docs("LOCK.WLOCK", WRITE_USAGE, WRITE_SUMMARY);

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Write)
    }
}

impl Command for RLock {
    const DOCS: Docs = docs(
        "LOCK.RLOCK",
        READ_USAGE,
        c"Takes a lock shared with other readers, at once or after a wait, and returns its fencing token. With a limit, a lock is a semaphore.",
    );

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Read)
    }
}

impl Command for MAcquire {
    const DOCS: Docs = Docs {
        complexity: c"O(K log N) with K the number of keys and N that of holders and waiters, plus what LOCK.ACQUIRE adds for each key where it waits",
        keys: Keys::WriteNumbered,
        ..docs(
            "LOCK.MACQUIRE",
            "owner lease numkeys key … [WAIT milliseconds [MAIL box]] [FENCE fence]",
            c"Takes several locks exclusively, all or none, and returns one fencing token for all.",
        )
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        run(ctx, args, Form::Several)
    }
}

fn run(ctx: &Context<'_>, args: Args<'_>, form: Form) -> Result<(), Error> {
    let call = parse(ctx, args, form)?;
    let owner = call.request.owner;
    if let Some(fence) = call.request.terms.fence {
        check_token(ctx, "FENCE", fence, clock::command_wall())?;
    }
    let mut names = call.named.as_slice().iter();
    if names.any(|key| has_left(ctx, *key, owner)) {
        return Err(Error::LEFT);
    }
    let mailbox = call
        .mailbox
        .map(|name| NamedBox::find(ctx, name))
        .transpose()?;
    let _stretch = Stretch::begin(ctx);
    let mut notices = Notices::default();
    let outcome = decide(ctx, &call, mailbox, &mut notices);
    notices.send(ctx);
    outcome
}

/// Grants the request, or lets it wait, or neither, and replies to it.
fn decide<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    mailbox: Option<NamedBox<'_>>,
    notices: &mut Notices<'c>,
) -> Result<(), Error> {
    let mut outcome = attempt(ctx, call, false, notices)?;
    if let Attempt::Busy(busy) = outcome {
        let how = match mailbox {
            Some(mailbox) => How::ByMail(mailbox),
            None if call.may_wait(ctx) => How::Blocked,
            None => How::Never,
        };
        let (is_free, repeats) = (busy.is_free, busy.repeats);
        let waits = match how {
            How::Never if !is_free => Waits::No,
            how => pending::wait(ctx, &busy.into_request(call), is_free, repeats, how)?,
        };
        match waits {
            Waits::Queued(id) => {
                ctx.reply_array(2);
                ctx.reply_text(c"QUEUED");
                ctx.reply_integer(id.0 as i64);
                return Ok(());
            }
            Waits::Blocked => return Ok(()),
            Waits::No => {
                reply_null(ctx);
                return Ok(());
            }
            Waits::LetPast => outcome = attempt(ctx, call, true, notices)?,
        }
    }
    // The request was not refused, so its box exists from now on.
    if let Some(mailbox) = mailbox {
        mailbox.open_if_room(ctx);
    }
    match outcome {
        Attempt::Granted(token) => ctx.reply_integer(token.get() as i64),
        // Busy only if a callback of another module has come in between.
        Attempt::Denied | Attempt::Busy(_) => reply_null(ctx),
    }
    Ok(())
}

fn reply_null(ctx: &Context<'_>) {
    totals::add(ctx, Total::Denied);
    ctx.reply_null();
}
