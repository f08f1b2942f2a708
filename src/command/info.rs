//! `LOCK.INFO key [OWNER owner] [COUNT n]`
//!
//! It changes nothing that a client could see. It leaves out a hold whose lease is over, and does not drop it.

use std::ffi::CStr;

use mortise_core::{Count, Instant, Lock, Mode, OwnerRef, Queue, Stake, Waiter};

use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Access, Args, Command, Context, Docs, Keys};
use crate::keys::leases;
use crate::time::clock;
use crate::waiting;

/// How many holds, and how many waiters, are shown without COUNT.
const SHOWN: usize = 100;

pub(crate) struct Info;

impl Command for Info {
    const DOCS: Docs = Docs {
        name: "LOCK.INFO",
        usage: "key [OWNER owner] [COUNT count]",
        summary: c"Shows who holds a lock and who waits for it.",
        complexity: c"O(N) with N the number of holds and waiters shown",
        flags: "readonly",
        keys: Keys::Read,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::new(args);
        let name = parse.key()?;
        let (mut wanted, mut count) = (None, None);
        parse.options(|parse| {
            let is_owner = parse.option("OWNER", &mut wanted, |parse, _| parse.owner("owner"))?;
            Ok(is_owner || parse.option("COUNT", &mut count, Parse::shown)?)
        })?;
        let mut key = ctx.open(name, Access::Read)?;
        let now = clock::now();
        let value = key.value();
        if let Some(value) = &value
            && value.listed.get().is_none()
        {
            // RENAME or MOVE brought it here, and only now is its name known: from now on it is swept.
            leases::follow(ctx, ctx.key(name), value, now);
            let mut queues = waiting::queues(ctx).borrow_mut();
            queues.recheck_holders(ctx.key(name));
        }
        let lock = value.map(|value| &value.lock);
        match wanted {
            Some(wanted) => match lock.and_then(|lock| lock.hold(wanted)) {
                Some(stake) if !stake.is_over(now) => hold(ctx, wanted, &stake, now),
                _ => ctx.reply_null(),
            },
            None => {
                let queues = waiting::queues(ctx).borrow();
                let queue = queues.get(ctx.key(name));
                whole(ctx, lock, queue, now, count.unwrap_or(SHOWN));
            }
        }
        Ok(())
    }
}

fn whole(
    ctx: &Context<'_>,
    lock: Option<&Lock>,
    queue: Option<Queue<'_>>,
    now: Instant,
    count: usize,
) {
    let mode = lock.and_then(|lock| lock.mode(now));
    if mode.is_none() && queue.is_none() {
        return ctx.reply_null();
    }
    let holders = lock.map_or(0, |lock| lock.live_len(now));
    let waiters = queue.map_or(0, Queue::len);
    ctx.reply_map(5);
    ctx.reply_text(c"mode");
    ctx.reply_text(mode_name(mode));
    ctx.reply_field(c"holders", holders as i64);
    ctx.reply_field(c"waiters", waiters as i64);
    ctx.reply_text(c"holds");
    ctx.reply_array(holders.min(count));
    let holds = lock.map(|lock| lock.live_holds(now, count));
    for (owner, stake) in holds.into_iter().flatten() {
        hold(ctx, owner.as_ref(), &stake, now);
    }
    ctx.reply_text(c"queue");
    ctx.reply_array(waiters.min(count));
    for entry in queue.into_iter().flat_map(Queue::iter).take(count) {
        waiter(ctx, entry, now);
    }
}

pub(super) fn mode_name(mode: Option<Mode>) -> &'static CStr {
    match mode {
        Some(Mode::Write) => c"write",
        Some(Mode::Read) => c"read",
        None => c"none",
    }
}

fn hold(ctx: &Context<'_>, owner: OwnerRef<'_>, stake: &Stake, now: Instant) {
    ctx.reply_map(8);
    ctx.reply_text(c"owner");
    ctx.reply_bytes(&owner.text());
    for (field, value) in [
        (c"write", u64::from(stake.write)),
        (c"read", u64::from(stake.read)),
        (c"token", stake.token.get()),
        (c"lease", stake.deadline.millis_since(now)),
        (c"held", now.millis_since(stake.since)),
        (c"client", stake.touched.client()),
        (c"revoked", u64::from(stake.revoked)),
    ] {
        ctx.reply_field(field, value as i64);
    }
}

fn waiter(ctx: &Context<'_>, waiter: &Waiter, now: Instant) {
    let left = match waiter.until {
        Instant::NEVER => -1,
        until => until.millis_since(now) as i64,
    };
    let terms = &waiter.terms;
    ctx.reply_map(9);
    ctx.reply_text(c"owner");
    ctx.reply_bytes(&waiter.owner.text());
    ctx.reply_text(c"mode");
    ctx.reply_text(mode_name(Some(terms.mode())));
    for (field, value) in [
        (c"lease", terms.lease.as_millis() as i64),
        (c"waited", now.millis_since(waiter.since) as i64),
        (c"left", left),
        (c"client", terms.client as i64),
        (c"count", terms.holds.map_or(1, Count::get).into()),
        (c"limit", terms.sharing.limit().map_or(0, Count::get).into()),
        (c"keys", terms.sharing.keys().unwrap_or(1).into()),
    ] {
        ctx.reply_field(field, value);
    }
}
