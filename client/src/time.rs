//! The clock that leases are kept on, and leases.
//!
//! On Linux and macOS [`std::time::Instant`] stands still while the machine is suspended, and the wall clock jumps. A guard
//! judged by either would believe in a lease that has long run out.

use std::time::Duration;

use crate::error::Error;
#[cfg(simulated)]
use crate::simulated::since_boot;

/// The time since boot. Linux has a clock of its own for that; on macOS, iOS and OpenBSD the monotonic one runs on in suspend.
#[cfg(all(unix, not(simulated)))]
fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    Duration::new(
        now.tv_sec.try_into().unwrap_or(0),
        now.tv_nsec.try_into().unwrap_or(0),
    )
}

/// The time since the clock was first read here. On Windows the standard library reads `QueryPerformanceCounter`, which
/// counts the time that the machine sleeps.
#[cfg(not(any(unix, simulated)))]
fn since_boot() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;

    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed()
}

/// A moment on the boot-time clock of this machine. It means nothing on another machine, nor after a reboot.
///
/// ```
/// use mortise_client::BootInstant;
/// use std::time::Duration;
///
/// let soon = BootInstant::now() + Duration::from_secs(5);
/// assert!(soon.remaining() <= Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// After all others.
    pub(crate) const LATEST: BootInstant = BootInstant(Duration::MAX);

    /// Returns this moment.
    ///
    /// ```
    /// use mortise_client::BootInstant;
    ///
    /// assert!(BootInstant::now() <= BootInstant::now());
    /// ```
    pub fn now() -> BootInstant {
        BootInstant(since_boot())
    }

    /// Returns how far this moment lies ahead; zero once it has come.
    ///
    /// ```
    /// use mortise_client::BootInstant;
    /// use std::time::Duration;
    ///
    /// assert_eq!(BootInstant::now().remaining(), Duration::ZERO);
    /// ```
    pub fn remaining(self) -> Duration {
        self.since(BootInstant::now())
    }

    /// Returns how long ago this moment was; zero while it lies ahead.
    ///
    /// ```
    /// use mortise_client::BootInstant;
    /// use std::time::Duration;
    ///
    /// let soon = BootInstant::now() + Duration::from_secs(5);
    /// assert_eq!(soon.elapsed(), Duration::ZERO);
    /// ```
    pub fn elapsed(self) -> Duration {
        BootInstant::now().since(self)
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    ///
    /// ```
    /// use mortise_client::BootInstant;
    /// use std::time::Duration;
    ///
    /// let now = BootInstant::now();
    /// let later = now + Duration::from_secs(5);
    /// assert_eq!(later.since(now), Duration::from_secs(5));
    /// assert_eq!(now.since(later), Duration::ZERO);
    /// ```
    pub fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `duration` before this one, not before boot.
    pub(crate) fn back(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_sub(duration))
    }

    /// How long to sleep before the clock is read again, to be awake at this moment: timers stand still in suspend, where this
    /// clock runs on.
    pub(crate) fn next_sleep(self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        self.remaining().min(LONGEST)
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(duration))
    }
}

/// A lease in whole milliseconds, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Lease(u64);

impl Lease {
    /// A lease that the wire can carry, and that a hold can live by: longer than what clocks may differ by.
    pub(crate) fn new(duration: Duration) -> Result<Lease, Error> {
        // A shorter one is over before anybody knows of it.
        match u64::try_from(duration.as_millis()) {
            Ok(ms) if (3..1 << 53).contains(&ms) => Ok(Lease(ms)),
            _ => Err(Error::Invalid(format!(
                "a lease is 3 ms to 2^53 ms long, not {duration:?}"
            ))),
        }
    }

    pub(crate) fn as_millis(self) -> u64 {
        self.0
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// What clocks may differ by over the lease: a hundredth of it, and 2 ms.
    fn drift(self) -> Duration {
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

    /// How long after a renewal that failed the next one is sent.
    pub(crate) fn retry_pause(self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        (self.duration() / 20).clamp(Duration::from_millis(5), LONGEST)
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
    fn a_future_moment_remains_and_a_past_one_has_elapsed() {
        let now = BootInstant::now();
        let ahead = now + Duration::from_secs(60);
        assert!(ahead > now && ahead.elapsed().is_zero());
        assert!(ahead.remaining() > Duration::from_secs(59));
        assert_eq!(ahead.since(now), Duration::from_secs(60));
        assert_eq!(now.since(ahead), Duration::ZERO);
        assert_eq!(ahead.back(Duration::from_secs(60)), now);
    }

    #[test]
    fn belief_is_the_lease_less_a_hundredth_and_two_milliseconds_from_the_request() {
        let sent = BootInstant::now();
        let until = lease(10_000).believed_until(sent);
        assert_eq!(until.since(sent), Duration::from_millis(10_000 - 102));
    }

    #[test]
    fn a_lease_too_short_to_believe_in_or_too_long_for_the_wire_is_refused() {
        for refused in [
            Duration::from_micros(999),
            Duration::from_millis(2),
            Duration::MAX,
        ] {
            assert!(
                matches!(Lease::new(refused), Err(Error::Invalid(_))),
                "{refused:?}"
            );
        }
        assert_eq!(lease(3).as_millis(), 3);
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

    #[test]
    fn a_renewal_that_failed_is_repeated_as_often_as_the_lease_requires() {
        for (ms, pause) in [(10, 5), (1_000, 50), (60_000, 200)] {
            assert_eq!(
                lease(ms).retry_pause(),
                Duration::from_millis(pause),
                "{ms}"
            );
        }
    }
}
