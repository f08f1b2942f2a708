//! The settings. Times are in milliseconds.

use crate::ffi::Setting;

/// The longest lease that can be configured: ten years, in milliseconds.
const LONGEST: i64 = 10 * 365 * 86_400_000;

pub(crate) static MAX_LEASE: Setting = Setting::new("max-lease", 86_400_000, 1, LONGEST);
pub(crate) static MAX_WAITERS: Setting = Setting::new("max-waiters", 10_000, 0, 1_000_000);
pub(crate) static MAX_QUEUED: Setting = Setting::new("max-queued", 500_000, 0, 10_000_000);
pub(crate) static MAIL_TIMEOUT: Setting = Setting::new("mail-timeout", 5_000, 100, 60_000);
pub(crate) static GRACE: Setting = Setting::new("grace", 0, 0, LONGEST);
static PROMOTION_GRACE: Setting = Setting::new("promotion-grace", -1, -1, LONGEST);

pub(crate) static SETTINGS: &[&Setting] = &[
    &MAX_LEASE,
    &MAX_WAITERS,
    &MAX_QUEUED,
    &MAIL_TIMEOUT,
    &GRACE,
    &PROMOTION_GRACE,
];

/// `lock.promotion-grace`; `None` where it is the same as `lock.grace`.
pub(crate) fn own_promotion_grace() -> Option<u64> {
    PROMOTION_GRACE.if_set()
}

/// The grace after a promotion.
pub(crate) fn promotion_grace() -> u64 {
    PROMOTION_GRACE.if_set().unwrap_or_else(|| GRACE.get())
}
