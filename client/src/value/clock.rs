//! The clock that leases are kept on: time since boot, suspension included.
//!
//! On Linux and macOS [`std::time::Instant`] stands still while the machine is suspended, and the wall clock jumps. A guard
//! judged by either would believe in a lease that has long run out.

use std::time::Duration;

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

/// A moment on the boot-time clock of this machine.
///
/// It means nothing on another machine, nor after a reboot.
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
    /// This moment.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::BootInstant;
    ///
    /// assert!(BootInstant::now() <= BootInstant::now());
    /// ```
    pub fn now() -> BootInstant {
        BootInstant(since_boot())
    }

    /// How far this moment lies ahead; zero once it has come.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::BootInstant;
    /// use std::time::Duration;
    ///
    /// assert_eq!(BootInstant::now().remaining(), Duration::ZERO);
    /// assert!((BootInstant::now() + Duration::from_secs(9)).remaining() <= Duration::from_secs(9));
    /// ```
    pub fn remaining(self) -> Duration {
        self.since(BootInstant::now())
    }

    /// How long ago this moment was; zero while it lies ahead.
    ///
    /// # Examples
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

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    ///
    /// # Examples
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

    /// How long to sleep before the clock is read again, to be awake at this moment: timers stand still in suspend, where this
    /// clock runs on.
    pub(crate) fn next_sleep(self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(1);
        self.remaining().min(LONGEST)
    }

    /// `duration` before this moment, not before boot.
    pub(crate) fn back(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_sub(duration))
    }
}

impl std::ops::Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
