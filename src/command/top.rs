//! `LOCK.TOP [COUNT n]`: the locks with the most waiters.
//!
//! It looks at every queue of the server: a command for people and dashboards.

use mortise_core::Instant;

use super::docs::{self, Docs};
use super::info::mode_name;
use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Access, Args, Command, Context};
use crate::state::STATE;
use crate::time::clock;

/// How many locks are shown unless COUNT says otherwise.
const SHOWN: usize = 10;

pub(crate) struct Top;

struct Entry {
    db: u32,
    name: Vec<u8>,
    waiters: usize,
    oldest: Option<Instant>,
}

impl Command for Top {
    const NAME: &'static str = "LOCK.TOP";
    const MIN_ARGS: usize = 1;
    const DOCS: &'static Docs = &docs::TOP;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::new(ctx, args);
        let mut count = None;
        while let Some(option) = parse.option() {
            if !option.is("COUNT") {
                return Err(option.unknown());
            }
            parse.count_into(&mut count)?;
        }
        let selected = ctx.db();
        let entries = most_waiters(count.unwrap_or(SHOWN));
        let now = clock::now();
        ctx.reply_array(entries.len());
        for entry in entries {
            reply(ctx, &entry, now);
        }
        ctx.select(selected);
        Ok(())
    }
}

/// The keys with the most waiters, most first; among equals the one that has waited longest.
fn most_waiters(count: usize) -> Vec<Entry> {
    STATE.with(|state| {
        let queues = state.queues.borrow();
        let mut found: Vec<_> = queues.iter().collect();
        found.sort_unstable_by_key(|(db, name, queue)| {
            (std::cmp::Reverse(queue.len()), queue.oldest(), *db, *name)
        });
        let top = found.into_iter().take(count);
        top.map(|(db, name, queue)| Entry {
            db,
            name: name.to_vec(),
            waiters: queue.len(),
            oldest: queue.oldest(),
        })
        .collect()
    })
}

fn reply(ctx: &Context<'_>, entry: &Entry, now: Instant) {
    ctx.select(entry.db as i32);
    let mut key = ctx.open_named(&entry.name, Access::Read);
    let lock = key.value().map(|value| &value.lock);
    ctx.reply_map(6);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&entry.name);
    ctx.reply_text(c"db");
    ctx.reply_integer(i64::from(entry.db));
    ctx.reply_text(c"mode");
    ctx.reply_text(mode_name(lock.and_then(|lock| lock.mode(now))));
    ctx.reply_text(c"holders");
    ctx.reply_integer(lock.map_or(0, |lock| lock.live_len(now)) as i64);
    ctx.reply_text(c"waiters");
    ctx.reply_integer(entry.waiters as i64);
    ctx.reply_text(c"oldest");
    ctx.reply_integer(entry.oldest.map_or(0, |oldest| now.millis_since(oldest)) as i64);
}
