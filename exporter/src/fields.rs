//! Which field of `INFO lock` becomes which metric, and its help text.

#[derive(Clone, Copy)]
pub(crate) enum Unit {
    One,
    Millis,
    Micros,
}

impl Unit {
    /// `number`, in the unit of the metric.
    pub(crate) fn convert(self, number: f64) -> f64 {
        match self {
            Self::One => number,
            Self::Millis => number / 1e3,
            Self::Micros => number / 1e6,
        }
    }
}

/// A field of `INFO lock`, without its prefix, the metric it becomes, and its help text.
pub(crate) type Field = (&'static str, &'static str, Unit, &'static str);

use Unit::{Micros, Millis, One};

pub(crate) const GAUGES: [Field; 17] = [
    ("locks", "mortise_locks", One, "Keys that are held now."),
    (
        "holders",
        "mortise_holders",
        One,
        "Holds now; a lock held for reading may have many.",
    ),
    (
        "waiters",
        "mortise_waiters",
        One,
        "Requests that wait now, blocked or by mail.",
    ),
    (
        "waiters_by_mail",
        "mortise_waiters_by_mail",
        One,
        "Requests that wait by mail now.",
    ),
    (
        "boxes",
        "mortise_mail_boxes",
        One,
        "Boxes of clients that wait by mail.",
    ),
    (
        "letters",
        "mortise_mail_letters",
        One,
        "Letters not deleted yet.",
    ),
    (
        "left",
        "mortise_left_names",
        One,
        "Names that stay away after LOCK.LEAVE FOR.",
    ),
    (
        "blocked_clients",
        "mortise_blocked_clients",
        One,
        "Clients that a lock blocks now.",
    ),
    (
        "max_waiters",
        "mortise_blocked_clients_limit",
        One,
        "lock.max-waiters: how many clients may be blocked.",
    ),
    (
        "max_queued",
        "mortise_mail_limit",
        One,
        "lock.max-queued: how many requests by mail, letters and boxes there may be.",
    ),
    (
        "held_back",
        "mortise_held_back_keys",
        One,
        "Keys whose next waiter is not granted because the server refuses writes.",
    ),
    (
        "marked",
        "mortise_marked_keys",
        One,
        "Keys yet to be settled.",
    ),
    (
        "longest_stretch_us",
        "mortise_longest_stretch_seconds",
        Micros,
        "Longest slice of the module's own work since it was loaded, processor time.",
    ),
    (
        "grace_left_ms",
        "mortise_grace_left_seconds",
        Millis,
        "How long at least nothing will be granted.",
    ),
    (
        "replicas_late",
        "mortise_replicas_late",
        One,
        "1 while nothing is granted because too few replicas have acknowledged recent data.",
    ),
    (
        "suspect_left_ms",
        "mortise_suspect_left_seconds",
        Millis,
        "How long after a promotion there may be holds that cannot be renewed.",
    ),
    (
        "failover_safe",
        "mortise_failover_safe",
        One,
        "1 if the settings in force keep two holders apart in a failover.",
    ),
];

pub(crate) const COUNTERS: [Field; 12] = [
    (
        "total_grants",
        "mortise_grants_total",
        One,
        "Locks granted, at once or after a wait; re-entries left out.",
    ),
    (
        "total_reentries",
        "mortise_reentries_total",
        One,
        "Requests of owners that held already.",
    ),
    (
        "total_handoffs",
        "mortise_handoffs_total",
        One,
        "Grants and re-entries out of a queue.",
    ),
    ("total_releases", "mortise_releases_total", One, "Releases."),
    (
        "total_renewals",
        "mortise_renewals_total",
        One,
        "Renewals of a lease.",
    ),
    (
        "total_passes",
        "mortise_passes_total",
        One,
        "Holds that were passed on to another owner.",
    ),
    (
        "total_revocations",
        "mortise_revocations_total",
        One,
        "Holds that were revoked.",
    ),
    (
        "total_expiries",
        "mortise_expiries_total",
        One,
        "Leases that ran out.",
    ),
    (
        "total_timeouts",
        "mortise_timeouts_total",
        One,
        "Waits that ended without a grant because their time was up.",
    ),
    (
        "total_deadlocks",
        "mortise_deadlocks_total",
        One,
        "Requests refused because their wait would have closed a cycle.",
    ),
    (
        "total_denied",
        "mortise_denied_total",
        One,
        "Requests answered null at once.",
    ),
    (
        "total_evictions",
        "mortise_evictions_total",
        One,
        "Locks that maxmemory took from their holders.",
    ),
];

/// Percentiles of times, with their help texts.
pub(crate) const TIMES: [(&str, &str, &str); 2] = [
    (
        "wait",
        "mortise_wait_seconds",
        "How long waiters waited for their grant, since the module was loaded.",
    ),
    (
        "hold",
        "mortise_hold_seconds",
        "How long holds lasted, since the module was loaded.",
    ),
];

pub(crate) const QUANTILES: [(&str, &str); 4] = [
    ("p50", "0.5"),
    ("p95", "0.95"),
    ("p99", "0.99"),
    ("max", "1"),
];
