//! What is next after an attempt that has failed. Every attempt has a name of its own; where the outcome is unknown the name
//! is left, and the lock asked for again under a new one.

use std::time::Duration;

use crate::lock::Failed;
use crate::value::{BootInstant, Error, Loss, is_passing};

/// How long to wait for others to leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimit {
    started: BootInstant,
    /// When it has waited for as long as it may; `None` without limit.
    end: Option<BootInstant>,
    waits: bool,
}

impl WaitLimit {
    /// Zero does not wait, and nothing waits without limit.
    pub(crate) fn new(wait: Option<Duration>, now: BootInstant) -> WaitLimit {
        WaitLimit {
            started: now,
            end: wait.map(|limit| now + limit),
            waits: wait != Some(Duration::ZERO),
        }
    }

    pub(crate) fn waits(self) -> bool {
        self.waits
    }

    pub(crate) fn end(self) -> Option<BootInstant> {
        self.end
    }

    pub(crate) fn is_over(self, now: BootInstant) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// How many milliseconds a request may wait in a queue now, 0 without limit; `None`: it does not queue.
    pub(crate) fn to_queue(self, now: BootInstant) -> Option<u64> {
        const LONGEST: u128 = 1 << 53;
        let limit = self.end.map_or(0, |end| {
            let left = end.since(now).as_micros().div_ceil(1000);
            left.clamp(1, LONGEST) as u64
        });
        self.waits.then_some(limit)
    }

    pub(crate) fn busy(self, now: BootInstant) -> Error {
        let waited = now.since(self.started);
        Error::Busy { waited }
    }
}

/// So often in a row a request without limit is refused for a reason that passes by itself.
const TRIES: u32 = 20;
/// So often a request that a broken connection has lost is sent again, even if it does not wait.
const LOST_TRIES: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often an acquisition has failed, and why.
#[derive(Debug)]
pub(crate) struct Retries {
    limit: WaitLimit,
    /// Another server may take the place of one that is not there.
    fails_over: bool,
    failures: u32,
    lost: u32,
}

impl Retries {
    pub(crate) fn new(limit: WaitLimit, fails_over: bool) -> Retries {
        Retries {
            limit,
            fails_over,
            failures: 0,
            lost: 0,
        }
    }

    /// It stands in a queue: what had failed has passed.
    pub(crate) fn on_queued(&mut self) {
        (self.failures, self.lost) = (0, 0);
    }

    /// How long to pause before the lock is asked for again; an error if it is not.
    pub(crate) fn after(&mut self, failed: Failed, now: BootInstant) -> Result<Duration, Error> {
        match failed {
            Failed::Denied => Err(self.limit.busy(now)),
            // What had waited was granted for too short a time.
            Failed::Unknown(Error::Lost(_)) if self.limit.waits() => {
                self.again(Duration::ZERO, self.limit.busy(now), now)
            }
            // It took longer than the lease until the grant was known: nothing was won.
            Failed::Unknown(Error::Lost(_)) => Err(Error::Lost(Loss::Expired)),
            Failed::Unknown(error @ Error::Connection { .. })
                if is_broken(&error) && self.lost < LOST_TRIES =>
            {
                self.lost += 1;
                self.again(Duration::ZERO, error, now)
            }
            Failed::Unknown(error) | Failed::Refused(error) => self.after_refusal(error, now),
        }
    }

    /// The same after an error, whatever became of the request.
    pub(crate) fn after_refusal(
        &mut self,
        error: Error,
        now: BootInstant,
    ) -> Result<Duration, Error> {
        if !self.limit.waits() || !self.may_pass(&error) {
            return Err(error);
        }
        self.failures += 1;
        let may_last = self.limit.end().is_some() || self.failures <= TRIES;
        let pause = FIRST_PAUSE * (1 << self.failures.min(7));
        match may_last {
            true => self.again(pause.min(LONGEST_PAUSE), error, now),
            false => Err(error),
        }
    }

    fn may_pass(&mut self, error: &Error) -> bool {
        match error {
            Error::Refused { code, .. } if code == "READONLY" => {
                // Another server takes its place, whatever leads there.
                self.fails_over = true;
                true
            }
            Error::Refused { code, .. } => is_passing(code),
            // The server may be restarting. One that is silent is waited for only where another one may take its place.
            Error::Connection { error: broken, .. } => {
                !broken.is_denied() && (broken.is_broken() || self.fails_over)
            }
            _ => false,
        }
    }

    /// Asks again after a pause, unless that is too late. What did not wait yet is sent once more all the same.
    fn again(&self, pause: Duration, error: Error, now: BootInstant) -> Result<Duration, Error> {
        match self.limit.waits() && self.limit.is_over(now + pause) {
            true => Err(error),
            false => Ok(pause),
        }
    }
}

fn is_broken(error: &Error) -> bool {
    matches!(error, Error::Connection { error, .. } if error.is_broken())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::ConnectionError;
    use crate::wire::reply::refusal;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn begin(wait: Option<Duration>, fails_over: bool) -> (Retries, BootInstant) {
        let now = BootInstant::now();
        (Retries::new(WaitLimit::new(wait, now), fails_over), now)
    }

    fn connection(error: ConnectionError) -> Error {
        let server = String::new();
        Error::Connection { server, error }
    }

    fn broken() -> Failed {
        Failed::Unknown(connection(ConnectionError::new("reset")))
    }

    fn silent() -> Failed {
        Failed::Unknown(connection(ConnectionError::silence("no answer", ms(1))))
    }

    fn missing() -> Failed {
        Failed::Refused(connection(ConnectionError::new("refused")))
    }

    fn refused(line: &str) -> Failed {
        Failed::Refused(refusal(line.to_owned(), ""))
    }

    #[test]
    fn a_retry_waits_for_the_rest_of_the_limit() {
        let now = BootInstant::now();
        assert_eq!(
            WaitLimit::new(Some(Duration::ZERO), now).to_queue(now),
            None
        );
        assert_eq!(WaitLimit::new(None, now).to_queue(now), Some(0));
        let limit = WaitLimit::new(Some(ms(100)), now);
        assert_eq!(limit.to_queue(now + ms(40)), Some(60));
        let late = limit.to_queue(now + ms(140));
        assert_eq!(late, Some(1), "0 is without limit");
    }

    #[test]
    fn a_grant_that_came_too_late_does_not_count_and_a_waiter_asks_again() {
        let lost = || Failed::Unknown(Error::Lost(Loss::Expired));
        let (mut at_once, now) = begin(Some(Duration::ZERO), false);
        let next = at_once.after(lost(), now);
        assert!(matches!(next, Err(Error::Lost(_))), "{next:?}");
        let (mut waiting, now) = begin(None, false);
        let next = waiting.after(lost(), now);
        assert!(next.is_ok(), "{next:?}");
    }

    #[test]
    fn a_request_lost_with_its_connection_is_repeated_and_a_silent_server_is_reported() {
        let (mut it, start) = begin(Some(Duration::ZERO), false);
        for _ in 0..LOST_TRIES {
            let next = it.after(broken(), start);
            assert!(next.is_ok(), "{next:?}");
        }
        for failed in [broken(), silent()] {
            let next = it.after(failed, start);
            assert!(matches!(next, Err(Error::Connection { .. })));
        }
        let (mut it, start) = begin(Some(ms(100)), true);
        let next = it.after(silent(), start);
        assert!(next.is_ok(), "{next:?}");
        let next = it.after(silent(), start + ms(100));
        assert!(next.is_err(), "{next:?}");
    }

    #[test]
    fn a_waiting_request_survives_a_restart_and_any_other_fails() {
        for limit in [None, Some(ms(30_000))] {
            let (mut it, start) = begin(limit, false);
            for _ in 0..10 {
                let next = it.after(missing(), start);
                assert!(next.is_ok(), "{next:?}");
            }
        }
        let (mut it, start) = begin(Some(Duration::ZERO), false);
        assert!(it.after(missing(), start).is_err());
        let (mut it, start) = begin(None, false);
        let denied = Failed::Refused(connection(ConnectionError::denied("WRONGPASS")));
        assert!(it.after(denied, start).is_err(), "it will not pass");
    }

    #[test]
    fn a_waiting_request_that_is_refused_a_connection_is_repeated_until_its_limit() {
        let (mut it, start) = begin(Some(ms(10_000)), false);
        let unblocked = || refused("UNBLOCKED the server is no primary");
        for _ in 0..2 * TRIES {
            let next = it.after(unblocked(), start);
            assert!(next.is_ok(), "{next:?}");
        }
        let next = it.after(unblocked(), start + ms(9_500));
        assert!(next.is_err(), "{next:?}");
        let (mut it, start) = begin(None, false);
        let mut again = |_: &u32| it.after(unblocked(), start).is_ok();
        let tries = (0..2 * TRIES).take_while(&mut again).count();
        assert_eq!(tries, TRIES as usize);
        it.on_queued();
        let again = it.after(unblocked(), start);
        assert!(again.is_ok(), "what had failed has passed: {again:?}");
        let next = it.after(refused("DEADLOCK a"), start);
        assert!(matches!(next, Err(Error::Deadlock(_))), "{next:?}");
        let next = it.after(refused("NOPERM may not"), start);
        assert!(matches!(next, Err(Error::Refused { .. })), "{next:?}");
    }

    #[test]
    fn a_demoted_server_may_be_silent_until_another_takes_over() {
        let (mut it, start) = begin(Some(ms(10_000)), false);
        for failed in [refused("READONLY a replica"), silent(), silent()] {
            let next = it.after(failed, start);
            assert!(next.is_ok(), "{next:?}");
        }
        let (mut it, start) = begin(Some(ms(10_000)), false);
        let next = it.after(silent(), start);
        assert!(next.is_err(), "{next:?}");
    }
}
