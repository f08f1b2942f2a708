//! How much of everything.

use std::time::Duration;

/// The module leaves effects out once its cron has seen that nobody listens, which takes it up to a second. Until then
/// an acquire costs more than it does in a server's ordinary life.
pub(crate) const SETTLING_IN: Duration = Duration::from_millis(1500);

/// How much is done, and how often.
#[derive(Debug)]
pub(crate) struct Scale {
    /// Rounds of a comparison.
    pub(crate) rounds: usize,
    /// Acquire and release pairs in a round.
    pub(crate) pairs: usize,
    /// Locks that are held beside the measured ones: few, and many.
    pub(crate) few: usize,
    pub(crate) many: usize,
    /// Readers of one lock.
    pub(crate) readers: usize,
    /// Pairs of servers, with the module and without, that are started one after the other.
    pub(crate) server_pairs: usize,
    /// Rounds of a mass expiry.
    pub(crate) expiries: usize,
}

impl Scale {
    pub(crate) fn full() -> Scale {
        Scale {
            rounds: 101,
            pairs: 4_800,
            few: 1_000,
            many: 1_000_000,
            readers: 10_000,
            server_pairs: 10,
            expiries: 3,
        }
    }

    pub(crate) fn quick() -> Scale {
        Scale {
            rounds: 3,
            pairs: 1_600,
            few: 100,
            many: 10_000,
            readers: 1_000,
            server_pairs: 1,
            expiries: 1,
        }
    }
}
