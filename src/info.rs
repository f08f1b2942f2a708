//! `INFO lock`.

use crate::config;
use crate::ffi::Context;
use crate::keys::{evictions, leases, tokens};
use crate::time::{self, clock, failover, lag};
use crate::totals;
use crate::waiting;
use crate::work::queue::{self as work, Kind};
use crate::work::{settle_key, slice};

/// The fields of `INFO lock`.
pub(crate) fn fields(ctx: &Context<'_>) -> Vec<(String, String)> {
    let now = clock::now();
    let [locks, holders] = leases::count(ctx);
    let mail = waiting::boxes(ctx).mail.borrow();
    let (boxes, letters, requests) = (mail.boxes(), mail.letters(), mail.requests());
    drop(mail);
    // Keys yet to be settled, and keys that are retried later, most of them as soon as the server accepts writes.
    let marked = work::len(ctx, Kind::Settle) + work::len(ctx, Kind::Enter);
    let held_back = work::len(ctx, Kind::HeldBack) + settle_key::failing(ctx);
    let numbers = [
        ("locks", locks),
        ("holders", holders),
        ("waiters", waiting::queues(ctx).borrow().len() as u64),
        ("waiters_by_mail", requests as u64),
        ("boxes", boxes as u64),
        ("letters", letters as u64),
        ("left", waiting::left(ctx).borrow().len() as u64),
        (
            "blocked_clients",
            waiting::clients(ctx).borrow().len() as u64,
        ),
        ("max_waiters", config::MAX_WAITERS.get()),
        ("max_queued", config::MAX_QUEUED.get()),
        ("held_back", held_back as u64),
        ("marked", marked as u64),
    ];
    let totals = totals::all(ctx);
    let rest = [
        ("evictable", u64::from(evictions::may_be_evicted(ctx))),
        ("longest_stretch_us", slice::longest(ctx)),
        ("grace_left_ms", time::grace(ctx).left(now)),
        (
            "replicas_late",
            u64::from(time::grace(ctx).heartbeats.are_late(now)),
        ),
        ("suspect_left_ms", time::lateness(ctx).suspect_ms(now)),
        ("last_token", tokens::last(ctx)),
    ];
    let field = |(name, value): (&str, u64)| (name.to_owned(), value.to_string());
    let numbers = numbers.into_iter().chain(totals).chain(rest);
    let mut fields: Vec<_> = numbers.map(field).collect();
    for (what, times) in [
        ("wait", totals::wait_times(ctx).borrow()),
        ("hold", totals::hold_times(ctx).borrow()),
    ] {
        for (part, value) in [
            ("p50", times.percentile(50)),
            ("p95", times.percentile(95)),
            ("p99", times.percentile(99)),
            ("max", times.max()),
            ("sum", times.sum()),
            ("count", times.count()),
        ] {
            fields.push((format!("{what}_ms_{part}"), value.to_string()));
        }
    }
    let awaited = waiting::queues(ctx).borrow().longest_lease();
    let missing = failover::missing(ctx, leases::last_deadline(ctx), awaited, now);
    let safe = u64::from(missing.is_empty());
    fields.extend([
        ("failover_safe".into(), safe.to_string()),
        ("failover_missing".into(), missing.join("; ")),
        ("hidden_settings".into(), lag::hidden(ctx)),
    ]);
    fields
}
