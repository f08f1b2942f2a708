//! The settings: `lock.max-lease`, `lock.max-waiters`, `lock.max-queued`, `lock.mail-timeout`, `lock.grace`,
//! `lock.promotion-grace`.

use std::cell::Cell;

use crate::ffi::{Context, MainThread, Setting};

struct Values {
    max_lease: Cell<u64>,
    max_waiters: Cell<u64>,
    max_queued: Cell<u64>,
    mail_timeout: Cell<u64>,
    grace: Cell<u64>,
    /// `None` where it is the same as `grace`.
    promotion_grace: Cell<Option<u64>>,
}

static VALUES: MainThread<Values> = MainThread::new(Values {
    max_lease: Cell::new(0),
    max_waiters: Cell::new(0),
    max_queued: Cell::new(0),
    mail_timeout: Cell::new(0),
    grace: Cell::new(0),
    promotion_grace: Cell::new(None),
});

/// `lock.max-lease`, in milliseconds.
pub(crate) fn max_lease(ctx: &Context<'_>) -> u64 {
    VALUES.get(ctx).max_lease.get()
}

/// `lock.max-waiters`.
pub(crate) fn max_waiters(ctx: &Context<'_>) -> u64 {
    VALUES.get(ctx).max_waiters.get()
}

/// `lock.max-queued`.
pub(crate) fn max_queued(ctx: &Context<'_>) -> u64 {
    VALUES.get(ctx).max_queued.get()
}

/// `lock.mail-timeout`, in milliseconds.
pub(crate) fn mail_timeout(ctx: &Context<'_>) -> u64 {
    VALUES.get(ctx).mail_timeout.get()
}

/// `lock.grace`, in milliseconds.
pub(crate) fn grace(ctx: &Context<'_>) -> u64 {
    VALUES.get(ctx).grace.get()
}

/// `lock.promotion-grace`, in milliseconds; `None` where it is the same as `lock.grace`.
pub(crate) fn own_promotion_grace(ctx: &Context<'_>) -> Option<u64> {
    VALUES.get(ctx).promotion_grace.get()
}

/// The grace after a promotion, in milliseconds.
pub(crate) fn promotion_grace(ctx: &Context<'_>) -> u64 {
    own_promotion_grace(ctx).unwrap_or_else(|| grace(ctx))
}

/// The longest lease that can be configured: ten years, in milliseconds.
const LONGEST: i64 = 10 * 365 * 86_400_000;

pub(crate) static SETTINGS: &[Setting] = &[
    Setting {
        name: c"max-lease",
        default: 86_400_000,
        min: 1,
        max: LONGEST,
        get: |ctx| max_lease(ctx) as i64,
        set: |ctx, value| VALUES.get(ctx).max_lease.set(value as u64),
    },
    Setting {
        name: c"max-waiters",
        default: 10_000,
        min: 0,
        max: 1_000_000,
        get: |ctx| max_waiters(ctx) as i64,
        set: |ctx, value| VALUES.get(ctx).max_waiters.set(value as u64),
    },
    Setting {
        name: c"max-queued",
        default: 500_000,
        min: 0,
        max: 10_000_000,
        get: |ctx| max_queued(ctx) as i64,
        set: |ctx, value| VALUES.get(ctx).max_queued.set(value as u64),
    },
    Setting {
        name: c"mail-timeout",
        default: 5_000,
        min: 100,
        max: 60_000,
        get: |ctx| mail_timeout(ctx) as i64,
        set: |ctx, value| VALUES.get(ctx).mail_timeout.set(value as u64),
    },
    Setting {
        name: c"grace",
        default: 0,
        min: 0,
        max: LONGEST,
        get: |ctx| grace(ctx) as i64,
        set: |ctx, value| VALUES.get(ctx).grace.set(value as u64),
    },
    Setting {
        name: c"promotion-grace",
        default: -1,
        min: -1,
        max: LONGEST,
        get: |ctx| own_promotion_grace(ctx).map_or(-1, |ms| ms as i64),
        set: |ctx, value| {
            VALUES
                .get(ctx)
                .promotion_grace
                .set(u64::try_from(value).ok())
        },
    },
];
