//! The settings.

use crate::ffi::{Context, Setting};

/// The longest lease that can be configured: ten years, in milliseconds.
const LONGEST: i64 = 10 * 365 * 86_400_000;

static MAX_LEASE: Setting = Setting::new(c"max-lease", 86_400_000, 1, LONGEST);
static MAX_WAITERS: Setting = Setting::new(c"max-waiters", 10_000, 0, 1_000_000);
static MAX_QUEUED: Setting = Setting::new(c"max-queued", 500_000, 0, 10_000_000);
static MAIL_TIMEOUT: Setting = Setting::new(c"mail-timeout", 5_000, 100, 60_000);
static GRACE: Setting = Setting::new(c"grace", 0, 0, LONGEST);
static PROMOTION_GRACE: Setting = Setting::new(c"promotion-grace", -1, -1, LONGEST);

pub(crate) static SETTINGS: &[&Setting] = &[
    &MAX_LEASE,
    &MAX_WAITERS,
    &MAX_QUEUED,
    &MAIL_TIMEOUT,
    &GRACE,
    &PROMOTION_GRACE,
];

/// `lock.max-lease`, in milliseconds.
pub(crate) fn max_lease(ctx: &Context<'_>) -> u64 {
    MAX_LEASE.get(ctx) as u64
}

/// `lock.max-waiters`.
pub(crate) fn max_waiters(ctx: &Context<'_>) -> u64 {
    MAX_WAITERS.get(ctx) as u64
}

/// `lock.max-queued`.
pub(crate) fn max_queued(ctx: &Context<'_>) -> u64 {
    MAX_QUEUED.get(ctx) as u64
}

/// `lock.mail-timeout`, in milliseconds.
pub(crate) fn mail_timeout(ctx: &Context<'_>) -> u64 {
    MAIL_TIMEOUT.get(ctx) as u64
}

/// `lock.grace`, in milliseconds.
pub(crate) fn grace(ctx: &Context<'_>) -> u64 {
    GRACE.get(ctx) as u64
}

/// `lock.promotion-grace`, in milliseconds; `None` where it is the same as `lock.grace`.
pub(crate) fn own_promotion_grace(ctx: &Context<'_>) -> Option<u64> {
    u64::try_from(PROMOTION_GRACE.get(ctx)).ok()
}

/// The grace after a promotion, in milliseconds.
pub(crate) fn promotion_grace(ctx: &Context<'_>) -> u64 {
    own_promotion_grace(ctx).unwrap_or_else(|| grace(ctx))
}
