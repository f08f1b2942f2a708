//! One acquisition, on one server or over a quorum: what is next after a round that was not won. Every round has a name of
//! its own; where the outcome is not known the name is left, and the lock asked for again under a new one.

use std::time::Duration;

use crate::proto::{Round, Vote};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, is_passing};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    /// How long to wait for others to leave: zero is not at all, and nothing without limit.
    pub(crate) wait: Option<Duration>,
    /// Another server may take the place of one that is not there.
    pub(crate) fails_over: bool,
}

/// What is done next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Asks again, after a pause.
    Again(Duration),
    Failed(Error),
    /// Too few servers have answered.
    NoQuorum,
}

/// So often in a row a request without limit is refused by what passes.
const TRIES: u32 = 20;
/// So often a request that a broken connection has lost is sent again.
const LOST_TRIES: u32 = 2;
/// How many rounds in a row may find no majority that answers before that is the answer.
const ROUNDS_WITHOUT_MAJORITY: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Servers that have been lost are connected to again by then, if they are there.
const UNREACHED_PAUSE: Duration = Duration::from_millis(150);

#[derive(Debug)]
pub(crate) struct Acquisition {
    pub(crate) terms: Terms,
    started: BootInstant,
    /// When it has waited for as long as it may.
    end: Option<BootInstant>,
    /// The server that it queues on next, or all are asked.
    pub(crate) queues: Option<usize>,
    failures: u32,
    lost: u32,
}

impl Acquisition {
    /// Over so many servers.
    pub(crate) fn new(terms: Terms, servers: usize, now: BootInstant) -> Acquisition {
        Acquisition {
            terms,
            started: now,
            end: terms.wait.map(|limit| now + limit),
            queues: (servers == 1).then_some(0),
            failures: 0,
            lost: 0,
        }
    }

    /// How many milliseconds a request may wait in a queue now, 0 without limit; `None`: it does not queue.
    pub(crate) fn queue_limit(&self, now: BootInstant) -> Option<u64> {
        const LONGEST: u128 = 1 << 53;
        let limit = self.end.map_or(0, |end| {
            let left = end.since(now).as_micros().div_ceil(1000);
            left.clamp(1, LONGEST) as u64
        });
        self.waits().then_some(limit)
    }

    /// It stands in a queue: what had failed has passed.
    pub(crate) fn on_queued(&mut self) {
        (self.failures, self.lost) = (0, 0);
    }

    pub(crate) fn waits(&self) -> bool {
        self.terms.wait != Some(Duration::ZERO)
    }

    fn is_over(&self, now: BootInstant) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    pub(crate) fn busy(&self, now: BootInstant) -> Error {
        let waited = now.since(self.started);
        Error::Busy { waited }
    }

    /// What is next after a round that was not won. `random` is between 0 and 1, and `took` how long the round was.
    pub(crate) fn after(
        &mut self,
        round: &Round,
        (took, random): (Duration, f64),
        now: BootInstant,
    ) -> Next {
        let is_over = self.is_over(now);
        let back_off = took.clamp(Duration::from_millis(2), Duration::from_millis(200));
        let back_off = back_off + back_off.mul_f64(random);
        let has_majority = round.answered().count() >= round.majority();
        if let [vote] = &round[..] {
            return self.after_vote(vote, now);
        }
        match self.queues.take() {
            Some(at) if is_over || matches!(round[at], Vote::Busy) => Next::Failed(self.busy(now)),
            Some(_) => Next::Again(back_off),
            _ if !has_majority => {
                self.failures += 1;
                match is_over || self.failures >= ROUNDS_WITHOUT_MAJORITY {
                    true => Next::NoQuorum,
                    false => Next::Again(back_off.max(UNREACHED_PAUSE)),
                }
            }
            _ if is_over => Next::Failed(self.busy(now)),
            _ => {
                self.failures = 0;
                self.queues = round.first_in_line();
                Next::Again(self.queues.map_or(back_off, |_| Duration::ZERO))
            }
        }
    }

    /// The same after what one server has said.
    pub(crate) fn after_vote(&mut self, vote: &Vote, now: BootInstant) -> Next {
        let waits = self.waits();
        match vote {
            Vote::Busy => Next::Failed(self.busy(now)),
            // What had waited was granted for too short a time.
            Vote::Unasked | Vote::Unknown(Error::Lost(_)) if waits => {
                self.again(Duration::ZERO, self.busy(now), now)
            }
            // It took longer than the lease to be told: nothing was won.
            Vote::Held(_) | Vote::Unasked | Vote::Pending | Vote::Ahead(_) => {
                Next::Failed(Error::Lost(Loss::Expired))
            }
            Vote::Unknown(error @ Error::Connection { error: broken, .. })
                if !broken.is_timeout() && self.lost < LOST_TRIES =>
            {
                self.lost += 1;
                self.again(Duration::ZERO, error.clone(), now)
            }
            Vote::Unknown(error) | Vote::Failed(error) => {
                let passes = match error {
                    Error::Refused { code, .. } if code == "READONLY" => {
                        // Another server takes its place, whatever leads there.
                        self.terms.fails_over = true;
                        true
                    }
                    Error::Refused { code, .. } => is_passing(code),
                    Error::Connection { .. } => self.terms.fails_over,
                    _ => false,
                };
                self.failures += u32::from(passes);
                let may_last = self.end.is_some() || self.failures <= TRIES;
                let pause = FIRST_PAUSE * (1 << self.failures.min(7));
                match waits && passes && may_last {
                    true => self.again(pause.min(LONGEST_PAUSE), error.clone(), now),
                    false => Next::Failed(error.clone()),
                }
            }
        }
    }

    /// Asks again after a pause, unless that is too late. What did not wait yet is sent once more all the same.
    fn again(&self, pause: Duration, error: Error, now: BootInstant) -> Next {
        match self.waits() && self.is_over(now + pause) {
            true => Next::Failed(error),
            false => Next::Again(pause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::reply::{Failure, Reply, refusal};
    use crate::value::error::ConnectionError;
    use crate::value::token::Token;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn lease() -> Lease {
        Lease::new(ms(1000)).unwrap()
    }

    fn begin(wait: Option<Duration>, fails_over: bool) -> (Acquisition, BootInstant) {
        let now = BootInstant::now();
        let terms = Terms {
            mode: Mode::Write,
            lease: lease(),
            wait,
            fails_over,
        };
        (Acquisition::new(terms, 1, now), now)
    }

    fn after(
        it: &mut Acquisition,
        votes: &[Vote],
        queued: Option<usize>,
        now: BootInstant,
    ) -> Next {
        let mut round = Round::new(votes.len());
        round.clone_from_slice(votes);
        it.queues = queued;
        it.after(&round, (ms(10), 0.5), now)
    }

    fn broken() -> Vote {
        let failure = Failure::Unknown(ConnectionError::new("reset"));
        Vote::of(Err(failure), Default::default(), "")
    }

    fn silent() -> Vote {
        let failure = Failure::Unknown(ConnectionError::silence("no answer", ms(1)));
        Vote::of(Err(failure), Default::default(), "")
    }

    #[test]
    fn a_wait_is_as_long_as_what_is_left_of_the_limit() {
        let (it, start) = begin(Some(Duration::ZERO), false);
        assert_eq!(it.queue_limit(start), None);
        let (it, start) = begin(None, false);
        assert_eq!(it.queue_limit(start), Some(0));
        let (it, start) = begin(Some(ms(100)), false);
        assert_eq!(it.queue_limit(start + ms(40)), Some(60));
        assert_eq!(
            it.queue_limit(start + ms(140)),
            Some(1),
            "0 is without limit"
        );
    }

    #[test]
    fn a_grant_that_took_longer_than_its_lease_is_none() {
        let (mut it, start) = begin(None, false);
        let until = lease().believed_until(start);
        let granted = Vote::of(Ok(Reply::Int(5)), (start, until), "");
        let next = after(&mut it, &[granted], Some(0), start + ms(988));
        assert!(matches!(next, Next::Failed(Error::Lost(_))), "{next:?}");
        // One that was told by letter is asked for again.
        for vote in [Vote::Unasked, Vote::Unknown(Error::Lost(Loss::Expired))] {
            let next = after(&mut it, &[vote], Some(0), start);
            assert!(matches!(next, Next::Again(_)), "{next:?}");
        }
    }

    #[test]
    fn what_a_broken_connection_has_lost_is_asked_for_again_and_a_silent_server_is_told_of() {
        let (mut it, start) = begin(Some(Duration::ZERO), false);
        for _ in 0..LOST_TRIES {
            let next = after(&mut it, &[broken()], Some(0), start);
            assert!(matches!(next, Next::Again(_)), "{next:?}");
        }
        for vote in [broken(), silent()] {
            let next = after(&mut it, &[vote], Some(0), start);
            assert!(matches!(next, Next::Failed(Error::Connection { .. })));
        }
        let (mut it, start) = begin(Some(ms(100)), true);
        let next = after(&mut it, &[silent()], Some(0), start);
        assert!(matches!(next, Next::Again(_)), "{next:?}");
        let next = after(&mut it, &[silent()], Some(0), start + ms(100));
        assert!(matches!(next, Next::Failed(_)), "{next:?}");
    }

    #[test]
    fn who_is_sent_away_asks_again_until_his_limit() {
        let (mut it, start) = begin(Some(ms(10_000)), false);
        let refused = |line: &str| Vote::Failed(refusal(line.to_owned(), ""));
        let unblocked = || refused("UNBLOCKED the server is no primary");
        for _ in 0..2 * TRIES {
            let next = after(&mut it, &[unblocked()], Some(0), start);
            assert!(matches!(next, Next::Again(_)), "{next:?}");
        }
        let next = after(&mut it, &[unblocked()], Some(0), start + ms(9_500));
        assert!(matches!(next, Next::Failed(_)), "{next:?}");
        let (mut it, start) = begin(None, false);
        let mut again = |_: &u32| {
            let next = after(&mut it, &[unblocked()], Some(0), start);
            matches!(next, Next::Again(_))
        };
        assert_eq!(
            (0..2 * TRIES).take_while(&mut again).count(),
            TRIES as usize
        );
        it.on_queued();
        let next = after(&mut it, &[refused("DEADLOCK a")], Some(0), start);
        assert!(matches!(next, Next::Failed(Error::Deadlock(_))), "{next:?}");
    }

    #[test]
    fn where_a_server_was_no_primary_none_may_be_there_until_another_one_is() {
        let (mut it, start) = begin(Some(ms(10_000)), false);
        let missing = || {
            let failure = Failure::NotSent(ConnectionError::new("refused"));
            Vote::of(Err(failure), Default::default(), "")
        };
        let demoted = Vote::Failed(refusal("READONLY a replica".to_owned(), ""));
        for vote in [demoted, missing(), missing()] {
            let next = after(&mut it, &[vote], Some(0), start);
            assert!(matches!(next, Next::Again(_)), "{next:?}");
        }
        let (mut it, start) = begin(Some(ms(10_000)), false);
        let next = after(&mut it, &[missing()], Some(0), start);
        assert!(matches!(next, Next::Failed(_)), "{next:?}");
    }

    #[test]
    fn over_a_quorum_the_first_server_that_answers_is_queued_on_and_a_missing_majority_is_told_of()
    {
        let (mut it, start) = begin(None, false);
        let held = || Vote::granted(Token::new(7), (start, lease().believed_until(start)));
        let next = after(&mut it, &[silent(), held(), Vote::Busy], None, start);
        assert!(matches!(next, Next::Again(Duration::ZERO)), "{next:?}");
        assert_eq!(it.queues, Some(1));
        // There it was not granted in time; or it was, and the others were not to be had.
        let next = after(&mut it, &[silent(), Vote::Busy, Vote::Busy], Some(1), start);
        assert!(matches!(next, Next::Failed(Error::Busy { .. })), "{next:?}");
        let next = after(&mut it, &[silent(), held(), silent()], Some(1), start);
        assert!(
            matches!(next, Next::Again(pause) if pause == ms(15)),
            "{next:?}"
        );
        for _ in 1..ROUNDS_WITHOUT_MAJORITY {
            let next = after(&mut it, &[silent(), held(), broken()], None, start);
            assert!(matches!(next, Next::Again(UNREACHED_PAUSE)), "{next:?}");
        }
        let next = after(&mut it, &[silent(), held(), broken()], None, start);
        assert!(matches!(next, Next::NoQuorum), "{next:?}");
    }
}
