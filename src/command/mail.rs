//! `LOCK.MAIL box [AFTER since number] [WAIT ms] [COUNT n]`: collects the answers to requests by
//! mail.
//!
//! It names no key: a box is routed like one in a cluster, and is kept in memory alone.

use super::check_primary;
use super::parse::Parse;
use crate::config;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::waiting::clients::MailCall;
use crate::waiting::{self, due, mail, pending, readers};

/// How many letters are delivered without COUNT.
const DEFAULT_COUNT: usize = 100;

pub(crate) struct Mail;

struct Call<'c> {
    name: &'c [u8],
    after: Option<(u64, u64)>,
    /// Milliseconds, 0 for as long as is allowed; `None` to be answered at once.
    wait: Option<u64>,
    count: usize,
}

fn parse<'c>(ctx: &Context<'_>, args: Args<'c>) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let name = parse.mailbox("box")?;
    let (mut after, mut wait, mut count) = (None, None, None);
    parse.options(|parse| {
        Ok(parse.option("AFTER", &mut after, Parse::after)?
            || parse.option("WAIT", &mut wait, Parse::wait)?
            || parse.option("COUNT", &mut count, Parse::shown)?)
    })?;
    let count = count.unwrap_or(DEFAULT_COUNT);
    Ok(Call {
        name,
        after,
        wait,
        count,
    })
}

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
        check_primary(ctx)?;
        let Call {
            name,
            after,
            wait,
            count,
        } = parse(ctx, args)?;
        let (ctx, now) = (ctx, clock::now());
        let call = MailCall {
            arrived: clock::now_micros(),
            count,
        };
        let mailbox = mail::find(ctx, name)?;
        mailbox.check_room(ctx, 0)?;
        let found = mailbox.id;
        let is_of_it = |since: u64| found.is_some_and(|id| id.0 == since);
        // A client that knows another box has to learn that its requests are gone.
        let is_new = after.is_some_and(|(since, _)| !is_of_it(since));
        let after = after.and_then(|(since, number)| is_of_it(since).then_some(number));
        let has_letters =
            found.is_some_and(|id| readers::has_letters_after(waiting::state(ctx), id, after));
        let waits = !is_new && !has_letters && !ctx.denies_blocking();
        let Some(wait) = wait.filter(|_| waits) else {
            let id = mailbox.open(ctx, now);
            readers::ask(ctx, id, after, now);
            readers::reply(ctx, id, call);
            return Ok(());
        };
        // An older call that waits for this box ends.
        let others = pending::blocked(waiting::state(ctx))
            - u64::from(found.is_some_and(|id| readers::is_read(waiting::state(ctx), id)));
        let max = config::max_waiters(ctx);
        if others >= max {
            return Err(Error::MaxWaiters(max));
        }
        let id = mailbox.open(ctx, now);
        readers::ask(ctx, id, after, now);
        let longest = config::mail_timeout(ctx) / 2;
        let wait = if wait == 0 {
            longest
        } else {
            wait.min(longest)
        };
        readers::wait(ctx, id, call, now.after(wait));
        due::arm(ctx);
        Ok(())
    }
}
