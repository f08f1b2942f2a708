//! Leases: how long a hold lives without renewal, and how much of that may be believed.

use std::time::Duration;

use crate::value::clock::BootInstant;
use crate::value::error::Error;

/// A lease in whole milliseconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lease(u64);

impl Lease {
    pub(crate) const DEFAULT: Duration = Duration::from_secs(10);

    pub(crate) fn new(duration: Duration) -> Result<Lease, Error> {
        match u64::try_from(duration.as_millis()) {
            Ok(ms) if (1..1 << 53).contains(&ms) => Ok(Lease(ms)),
            _ => Err(Error::Invalid(format!(
                "a lease is 1 ms to 2^53 ms long, not {duration:?}"
            ))),
        }
    }

    /// One that a hold can live by: longer than what clocks may differ by.
    pub(crate) fn of_a_hold(duration: Duration) -> Result<Lease, Error> {
        match Lease::new(duration) {
            Ok(lease) if lease.duration() <= lease.drift() => Err(Error::Invalid(format!(
                "a lease of {duration:?} is over before anybody knows of it: clocks may differ by {:?}",
                lease.drift()
            ))),
            other => other,
        }
    }

    pub(crate) fn as_millis(self) -> u64 {
        self.0
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// What clocks may differ by over the lease: a hundredth of it, and 2 ms.
    pub(crate) fn drift(self) -> Duration {
        self.duration() / 100 + Duration::from_millis(2)
    }

    /// Until when a hold may be believed in whose request was sent at `sent`. Never counted from the reply: nobody
    /// knows how long that was on its way.
    pub(crate) fn believed_until(self, sent: BootInstant) -> BootInstant {
        sent + self.duration().saturating_sub(self.drift())
    }

    /// How long after its last renewal a hold is renewed again.
    pub(crate) fn renewal_period(self) -> Duration {
        self.duration() / 3
    }

    /// This lease, or the shortest one that is believed in for as long as `limit`.
    pub(crate) fn limited(self, limit: Duration) -> Lease {
        // The lease of which 99 in 100, less 2 ms, are the limit.
        let believed = limit.saturating_add(Duration::from_millis(2)).as_nanos();
        let needed = (believed * 100).div_ceil(99 * 1_000_000);
        Lease(u64::try_from(needed).map_or(self.0, |needed| self.0.min(needed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(ms: u64) -> Lease {
        Lease::new(Duration::from_millis(ms)).unwrap()
    }

    #[test]
    fn belief_is_the_lease_less_a_hundredth_and_two_milliseconds_from_the_request() {
        let sent = BootInstant::now();
        let until = lease(10_000).believed_until(sent);
        assert_eq!(until.since(sent), Duration::from_millis(10_000 - 102));
    }

    #[test]
    fn a_lease_shorter_than_its_drift_is_never_believed_in() {
        let sent = BootInstant::now();
        assert_eq!(lease(1).believed_until(sent), sent);
    }

    #[test]
    fn a_lease_too_short_to_believe_in_is_refused() {
        assert!(Lease::of_a_hold(Duration::from_millis(2)).is_err());
        assert!(Lease::of_a_hold(Duration::from_millis(3)).is_ok());
    }

    #[test]
    fn a_lease_below_a_millisecond_is_refused() {
        assert!(Lease::new(Duration::from_micros(999)).is_err());
        assert!(Lease::new(Duration::MAX).is_err());
    }

    #[test]
    fn a_limited_lease_is_the_shortest_one_that_is_valid_up_to_the_limit() {
        let sent = BootInstant::now();
        for limit in (0..20_000).map(|n| Duration::from_micros(n * 777)) {
            let limited = lease(60_000).limited(limit);
            assert!(limited.believed_until(sent) >= sent + limit, "{limit:?}");
            let shorter = Lease(limited.0 - 1).believed_until(sent);
            assert!(shorter < sent + limit || limit.is_zero(), "{limit:?}");
        }
        assert_eq!(lease(500).limited(Duration::from_millis(499)), lease(500));
        assert_eq!(lease(500).limited(Duration::MAX), lease(500));
    }
}
