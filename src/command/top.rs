//! `LOCK.TOP [COUNT n]`: the locks with the most waiters.
//!
//! It visits every queue of the server: a command for people and dashboards. It shows what the queues know about the locks, because in a
//! cluster a command can open only its own key.
//!
//! It names no key that the caller may not read. The server cannot check that by itself, because
//! the caller names no key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mortise_core::{Instant, KeyId, Mode};

use super::info::mode_name;
use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};
use crate::time::clock;
use crate::waiting;

/// How many locks are shown unless COUNT says otherwise.
const SHOWN: usize = 10;

/// How many locks it skips because the caller may not read them, which takes some milliseconds. After that many it stops.
const PASSED_OVER: usize = 10_000;

pub(crate) struct Top;

struct Entry {
    key: KeyId,
    mode: Option<Mode>,
    holders: usize,
    waiters: usize,
    oldest: Option<Instant>,
}

impl Command for Top {
    const DOCS: Docs = Docs {
        name: "LOCK.TOP",
        usage: "[COUNT count]",
        summary: c"Shows which locks have the most waiters, of those that the user may read.",
        complexity: c"O(N + M log N) with N the number of locks with waiters, and M those shown, or passed over for the user's key patterns (10000 at most)",
        flags: "readonly",
        keys: Keys::None,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::new(ctx, args);
        let mut count = None;
        parse.options(|parse| parse.option("COUNT", &mut count, Parse::shown))?;
        let now = clock::now();
        let entries = most_waiters(ctx, count.unwrap_or(SHOWN), now);
        ctx.reply_array(entries.len());
        for entry in entries {
            reply(ctx, &entry, now);
        }
        Ok(())
    }
}

/// The keys with the most waiters that the caller may read, most first; among equals the one that has waited longest.
fn most_waiters(ctx: &Context<'_>, count: usize, now: Instant) -> Vec<Entry> {
    let viewer = ctx.viewer();
    let queues = waiting::queues(ctx).borrow();
    let ordered = queues
        .iter()
        .map(|(key, queue)| Reverse((Reverse(queue.len()), queue.oldest(), key)));
    let mut ordered: BinaryHeap<_> = ordered.collect();
    let (mut shown, mut passed_over) = (Vec::new(), 0);
    while shown.len() < count
        && passed_over < PASSED_OVER
        && let Some(Reverse((_, oldest, key))) = ordered.pop()
    {
        let named = key.as_ref();
        let Some(queue) = queues.get(named).filter(|_| viewer.may_read(named)) else {
            passed_over += 1;
            continue;
        };
        shown.push(Entry {
            key: key.clone(),
            mode: queue.held().mode(now),
            holders: queue.held().live_len(now),
            waiters: queue.len(),
            oldest,
        });
    }
    shown
}

fn reply(ctx: &Context<'_>, entry: &Entry, now: Instant) {
    ctx.reply_map(6);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&entry.key.name);
    ctx.reply_field(c"db", i64::from(entry.key.db.0));
    ctx.reply_text(c"mode");
    ctx.reply_text(mode_name(entry.mode));
    let oldest = entry.oldest.map_or(0, |oldest| now.millis_since(oldest));
    ctx.reply_field(c"holders", entry.holders as i64);
    ctx.reply_field(c"waiters", entry.waiters as i64);
    ctx.reply_field(c"oldest", oldest as i64);
}
