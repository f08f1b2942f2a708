//! The sizes of all measurements.

use std::time::Duration;

/// Once its cron has seen that effects have no receiver, within a second, the module skips them. Until then an acquire costs more than
/// usual.
pub(crate) const SETTLING_IN: Duration = Duration::from_millis(1500);

/// How much each measurement does, and how often.
#[derive(Debug)]
pub(crate) struct Scale {
    /// Rounds of a comparison.
    pub(crate) rounds: usize,
    /// Acquire and release pairs in a round.
    pub(crate) pairs: usize,
    /// Locks that are held in addition to the measured ones: few, and many.
    pub(crate) few: usize,
    pub(crate) many: usize,
    /// Readers of one lock.
    pub(crate) readers: usize,
    /// Readers of one lock that end together, and keys with a waiter.
    pub(crate) crowd: usize,
    pub(crate) waiting_keys: usize,
    /// How long nothing happens at those keys.
    pub(crate) idle: Duration,
    /// Leases that end with a waiter.
    pub(crate) late: usize,
    /// Pairs of servers, with the module and without, that are started one after the other.
    pub(crate) server_pairs: usize,
    /// Rounds of a mass expiry.
    pub(crate) expiries: usize,
    /// How long many clients compete for one lock, and in how many rounds.
    pub(crate) contention: Duration,
    pub(crate) contention_rounds: usize,
    /// Hand-offs from one client to the next.
    pub(crate) handoffs: usize,
    /// Blocked clients, all together.
    pub(crate) waiters: usize,
    /// Requests that wait by mail on one server, and tasks of one process that contend by mail.
    pub(crate) waiting_by_mail: usize,
    pub(crate) tasks_by_mail: usize,
    /// Rounds of a comparison of client crates, and how long each crate runs in a round.
    pub(crate) crate_rounds: usize,
    pub(crate) crate_span: Duration,
    /// A crate that takes longer counts as stuck.
    pub(crate) patience: Duration,
    /// How often a server stalls during an acquisition.
    pub(crate) stalls: usize,
}

impl Scale {
    pub(crate) fn full() -> Scale {
        Scale {
            rounds: 101,
            pairs: 4_800,
            few: 1_000,
            many: 1_000_000,
            readers: 10_000,
            crowd: 200_000,
            waiting_keys: 6_000,
            idle: Duration::from_secs(10),
            late: 200,
            server_pairs: 10,
            expiries: 3,
            contention: Duration::from_secs(2),
            contention_rounds: 3,
            handoffs: 2_000,
            waiters: 10_050,
            waiting_by_mail: 1_000_000,
            tasks_by_mail: 10_000,
            crate_rounds: 15,
            crate_span: Duration::from_millis(300),
            patience: Duration::from_secs(5),
            stalls: 5,
        }
    }

    pub(crate) fn quick() -> Scale {
        Scale {
            rounds: 3,
            pairs: 1_600,
            few: 100,
            many: 10_000,
            readers: 1_000,
            crowd: 10_000,
            waiting_keys: 500,
            idle: Duration::from_secs(1),
            late: 10,
            server_pairs: 1,
            expiries: 1,
            contention: Duration::from_millis(200),
            contention_rounds: 1,
            handoffs: 100,
            waiters: 300,
            waiting_by_mail: 10_000,
            tasks_by_mail: 300,
            crate_rounds: 1,
            crate_span: Duration::from_millis(100),
            patience: Duration::from_secs(2),
            stalls: 1,
        }
    }
}
