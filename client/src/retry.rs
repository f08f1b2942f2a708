//! The retry policy, as pure functions: which failures the client retries, after which pause, and until when. "Time limits" in
//! the crate's documentation is a table of what follows from it.
//!
//! Tried again is what a restart, a failover or a migration explains ([`Error::passes`]). Every other error is reported at once.

use std::time::Duration;

use crate::error::{Error, Failed};
use crate::time::BootInstant;

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Tries {
    /// How long it may wait: not at all if that is zero, without limit if `None`.
    wait: Option<Duration>,
    began: BootInstant,
    pause: Duration,
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Tries {
    pub(crate) fn new(wait: Option<Duration>, now: BootInstant) -> Tries {
        Tries {
            wait,
            began: now,
            pause: FIRST_PAUSE,
        }
    }

    /// The `WAIT` of the next request, in milliseconds; `None` if it must not wait, 0 if it waits without limit.
    pub(crate) fn to_queue(&self, now: BootInstant) -> Option<u64> {
        match self.wait {
            None => Some(0),
            Some(Duration::ZERO) => None,
            Some(_) => {
                let left = self.left(now).as_nanos().div_ceil(1_000_000);
                Some(u64::try_from(left).unwrap_or(u64::MAX).clamp(1, 1 << 53))
            }
        }
    }

    /// How long the request may still wait.
    pub(crate) fn left(&self, now: BootInstant) -> Duration {
        let left = |limit| (self.began + limit).since(now);
        self.wait.map_or(Duration::MAX, left)
    }

    pub(crate) fn is_over(&self, now: BootInstant) -> bool {
        self.left(now).is_zero()
    }

    /// That others held the lock all the time.
    pub(crate) fn busy(&self, now: BootInstant) -> Error {
        Error::Busy {
            waited: now.since(self.began),
        }
    }

    /// The pause before the next try: the first ones are short.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        pause
    }

    /// How long to pause before the next try, or the error to report.
    pub(crate) fn after(&mut self, failed: Failed, now: BootInstant) -> Result<Duration, Error> {
        let error = failed.error(self.busy(now));
        if !error.is_retried() {
            return Err(error);
        }
        let (is_first, pause) = (self.pause == FIRST_PAUSE, self.pause());
        if self.wait == Some(Duration::ZERO) {
            // The connection may have been dead for hours.
            return match is_first && error.is_broken() {
                true => Ok(Duration::ZERO),
                false => Err(error),
            };
        }
        match pause < self.left(now) {
            true => Ok(pause),
            false => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn connection(kind: io::ErrorKind) -> Failed {
        let error = io::Error::from(kind).into();
        Failed::Unknown(Error::Connection {
            server: "s".into(),
            error,
        })
    }

    fn broken() -> Failed {
        connection(io::ErrorKind::BrokenPipe)
    }

    #[test]
    fn an_acquisition_without_a_limit_is_tried_for_ever_and_at_last_once_a_second() {
        let now = BootInstant::now();
        let mut tries = Tries::new(None, now);
        let pauses: Vec<_> = (0..100)
            .map(|_| tries.after(broken(), now).unwrap())
            .collect();
        assert_eq!(pauses[..3], [ms(20), ms(40), ms(80)]);
        assert_eq!(pauses[99], ms(1_000));
        assert_eq!(tries.to_queue(now), Some(0));
    }

    #[test]
    fn an_acquisition_with_a_limit_is_tried_until_it_is_over() {
        let now = BootInstant::now();
        let mut tries = Tries::new(Some(ms(100)), now);
        assert_eq!(tries.after(broken(), now).unwrap(), ms(20));
        assert_eq!(
            tries.to_queue(now + Duration::from_micros(20_500)),
            Some(80)
        );
        assert_eq!(tries.after(broken(), now + ms(20)).unwrap(), ms(40));
        assert!(matches!(
            tries.after(broken(), now + ms(60)),
            Err(Error::Connection { .. })
        ));
        assert!(tries.is_over(now + ms(100)) && !tries.is_over(now + ms(99)));
        assert_eq!(tries.to_queue(now + ms(200)), Some(1));
    }

    #[test]
    fn an_attempt_is_repeated_once_where_its_connection_was_dead_and_not_where_the_server_is_silent()
     {
        let now = BootInstant::now();
        let mut tries = Tries::new(Some(Duration::ZERO), now);
        assert_eq!(tries.after(broken(), now).unwrap(), Duration::ZERO);
        assert!(tries.after(broken(), now).is_err());
        let silent = connection(io::ErrorKind::TimedOut);
        assert!(
            Tries::new(Some(Duration::ZERO), now)
                .after(silent, now)
                .is_err()
        );
        assert_eq!(tries.to_queue(now), None);
    }

    #[test]
    fn a_refusal_and_a_denial_are_reported_at_once_and_a_failover_is_waited_for() {
        let now = BootInstant::now();
        let refused = |code| Failed::Refused(Error::of_line("s", code, "text"));
        let mut tries = Tries::new(None, now);
        assert!(tries.after(refused("WRONGTYPE"), now).is_err());
        assert!(matches!(
            tries.after(Failed::Denied, now),
            Err(Error::Busy { .. })
        ));
        assert!(tries.after(refused("READONLY"), now).is_ok());
    }
}
