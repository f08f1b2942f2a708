//! The settings: `lock.max-lease`, `lock.max-waiters`, `lock.max-queued`, `lock.mail-timeout`, `lock.grace`.

use crate::ffi::Setting;
use crate::state::STATE;

/// The longest lease that can be configured: ten years, in milliseconds.
const LONGEST: i64 = 10 * 365 * 86_400_000;

pub(crate) static SETTINGS: &[Setting] = &[
    Setting {
        name: c"max-lease",
        default: 86_400_000,
        min: 1,
        max: LONGEST,
        get: || STATE.with(|state| state.max_lease.get() as i64),
        set: |value| STATE.with(|state| state.max_lease.set(value as u64)),
    },
    Setting {
        name: c"max-waiters",
        default: 10_000,
        min: 0,
        max: 1_000_000,
        get: || STATE.with(|state| state.max_waiters.get() as i64),
        set: |value| STATE.with(|state| state.max_waiters.set(value as u64)),
    },
    Setting {
        name: c"max-queued",
        default: 500_000,
        min: 0,
        max: 10_000_000,
        get: || STATE.with(|state| state.max_queued.get() as i64),
        set: |value| STATE.with(|state| state.max_queued.set(value as u64)),
    },
    Setting {
        name: c"mail-timeout",
        default: 5_000,
        min: 100,
        max: 60_000,
        get: || STATE.with(|state| state.mail_timeout.get() as i64),
        set: |value| STATE.with(|state| state.mail_timeout.set(value as u64)),
    },
    Setting {
        name: c"grace",
        default: 0,
        min: 0,
        max: LONGEST,
        get: || STATE.with(|state| state.grace_ms.get() as i64),
        set: |value| STATE.with(|state| state.grace_ms.set(value as u64)),
    },
];
