//! `LOCK.TOP [COUNT n]`: the locks with the most waiters.
//!
//! It visits every queue of the server: a command for people and dashboards. It shows what the queues know about the locks, because in a
//! cluster a command can open only its own key.
//!
//! It names no key that the caller may not read. The server cannot check that by itself, because
//! the caller names no key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use mortise_core::{Instant, KeyId, Queue, Queues};

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
        let mut parse = Parse::new(args);
        let mut count = None;
        parse.options(|parse| parse.option("COUNT", &mut count, Parse::shown))?;
        let (now, queues) = (clock::now(), waiting::queues(ctx).borrow());
        let keys = most_waiters(ctx, &queues, count.unwrap_or(SHOWN));
        ctx.reply_array(keys.len());
        for (key, queue) in keys {
            reply(ctx, key, queue, now);
        }
        Ok(())
    }
}

/// The keys with the most waiters that the caller may read, most first; among equals the one that has waited longest.
fn most_waiters<'q>(
    ctx: &Context<'_>,
    queues: &'q Queues,
    count: usize,
) -> Vec<(&'q KeyId, Queue<'q>)> {
    let viewer = ctx.viewer();
    let ordered = queues
        .iter()
        .map(|(key, queue)| Reverse((Reverse(queue.len()), queue.oldest(), key)));
    let mut ordered: BinaryHeap<_> = ordered.collect();
    let (mut shown, mut passed_over) = (Vec::new(), 0);
    while shown.len() < count
        && passed_over < PASSED_OVER
        && let Some(Reverse((.., key))) = ordered.pop()
    {
        let named = key.as_ref();
        match queues.get(named).filter(|_| viewer.may_read(named)) {
            Some(queue) => shown.push((key, queue)),
            None => passed_over += 1,
        }
    }
    shown
}

fn reply(ctx: &Context<'_>, key: &KeyId, queue: Queue<'_>, now: Instant) {
    let (held, oldest) = (queue.held(), queue.oldest());
    ctx.reply_map(6);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&key.name);
    ctx.reply_field(c"db", i64::from(key.db.0));
    ctx.reply_text(c"mode");
    ctx.reply_text(mode_name(held.mode(now)));
    let oldest = oldest.map_or(0, |oldest| now.millis_since(oldest));
    ctx.reply_field(c"holders", held.live_len(now) as i64);
    ctx.reply_field(c"waiters", queue.len() as i64);
    ctx.reply_field(c"oldest", oldest as i64);
}
