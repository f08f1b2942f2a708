//! `LOCK.MAIL box [AFTER since number] [WAIT ms] [COUNT n]`: collects the answers to requests by
//! mail.
//!
//! It names no key: a box is routed like one in a cluster, and is kept in memory alone.

use super::parse::Parse;
use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::waiting::clients::MailCall;
use crate::waiting::mail::NamedBox;
use crate::waiting::{self, mail};

/// How many letters are delivered without COUNT.
const DEFAULT_COUNT: usize = 100;

pub(crate) struct Mail;

impl Command for Mail {
    const DOCS: Docs = Docs {
        name: "LOCK.MAIL",
        usage: "box [AFTER since number] [WAIT wait] [COUNT count]",
        summary: c"Collects the answers of requests that wait by mail.",
        complexity:
            c"O(N log M) with N the letters delivered and deleted, and M those of all boxes",
        flags: "fast blocking",
        keys: Keys::Route,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let (arrived, now) = (clock::now_micros(), clock::now());
        let mut parse = Parse::of_change(ctx, args)?;
        let name = parse.mailbox("box")?;
        let (mut after, mut wait, mut count) = (None, None, None);
        parse.options(|parse| {
            Ok(parse.option("AFTER", &mut after, Parse::after)?
                || parse.option("WAIT", &mut wait, Parse::wait)?
                || parse.option("COUNT", &mut count, Parse::shown)?)
        })?;
        let mailbox = NamedBox::find(ctx, name)?;
        mailbox.check(ctx, 0, None)?;
        let is_of_it = |since: u64| mailbox.id.is_some_and(|id| id.0 == since);
        // A client that knows another box has to learn that its requests are gone.
        let is_new = after.is_some_and(|(since, _)| !is_of_it(since));
        let after = after.and_then(|(since, number)| is_of_it(since).then_some(number));
        let may_wait = !is_new && !has_letters(ctx, mailbox, after) && !ctx.denies_blocking();
        let wait = wait.filter(|_| may_wait);
        if wait.is_some() {
            check_room(ctx, mailbox)?;
        }
        let id = mailbox.open(ctx, now);
        mail::ask(ctx, id, after, now);
        let call = MailCall {
            id,
            arrived,
            count: count.unwrap_or(DEFAULT_COUNT),
            client: ctx.client_id(),
        };
        let longest = config::MAIL_TIMEOUT.get() / 2;
        match wait {
            None => mail::reply(ctx, call),
            Some(0) => mail::wait(ctx, call, now.after(longest)),
            Some(wait) => mail::wait(ctx, call, now.after(wait.min(longest))),
        }
        Ok(())
    }
}

/// Whether the box has letters behind `after`.
fn has_letters(ctx: &Context<'_>, mailbox: NamedBox<'_>, after: Option<u64>) -> bool {
    let mail = waiting::boxes(ctx).mail.borrow();
    let id = mailbox.id;
    id.is_some_and(|id| mail.has_letters_after(id, after))
}

/// Checks that one more client may be blocked. An older call that waits for this box ends.
fn check_room(ctx: &Context<'_>, mailbox: NamedBox<'_>) -> Result<(), Error> {
    let (clients, max) = (waiting::clients(ctx).borrow(), config::MAX_WAITERS.get());
    let ends = mailbox.id.is_some_and(|id| clients.is_read(id));
    match clients.waiting() as u64 - u64::from(ends) >= max {
        true => Err(Error::max_waiters(max)),
        false => Ok(()),
    }
}
