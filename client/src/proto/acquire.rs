//! One acquisition on one server: what each answer means for it, and what is done next. Every request has a name of its own;
//! whose outcome is not known is left, and asked for again under a new name.

use std::time::Duration;

use crate::proto::mailbox::Decision;
use crate::proto::reply::{Answer, Failure, Reply, refusal, unexpected};
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss, is_passing};
use crate::value::lease::Lease;
use crate::value::mode::Mode;
use crate::value::token::Token;

/// How long a request may wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    Limit(Duration),
    Forever,
}

impl Patience {
    pub(crate) fn of(limit: Duration) -> Patience {
        match limit.is_zero() {
            true => Patience::None,
            false => Patience::Limit(limit),
        }
    }

    /// When it is over, begun now.
    pub(crate) fn end(self, now: BootInstant) -> Option<BootInstant> {
        match self {
            Patience::None => Some(now),
            Patience::Limit(limit) => Some(now + limit),
            Patience::Forever => None,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
    /// Whether the server's place may be taken by another: who meets none asks again.
    pub(crate) fails_over: bool,
}

/// What a granted request gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    /// From when the lease counts.
    pub(crate) since: BootInstant,
}

/// What is done next.
#[derive(Debug)]
pub(crate) enum Next {
    /// A letter decides.
    AwaitLetter,
    /// Half of the lease is gone: the server is to confirm this grant with a renewal.
    Confirm(Grant),
    Granted(Grant),
    /// The same again, after a pause, under a new name; `leave`: the old one has to be left.
    Again {
        leave: bool,
        pause: Duration,
    },
    Failed {
        leave: bool,
        error: Error,
    },
}

/// So often a request without a limit is repeated that fails for a reason which passes by itself.
const TRIES: u32 = 20;
/// So often one that was lost with its connection.
const LOST_TRIES: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One acquisition; from its first request to its end.
#[derive(Debug)]
pub(crate) struct Acquisition {
    terms: Terms,
    started: BootInstant,
    end: Option<BootInstant>,
    /// When the last request was sent.
    sent: BootInstant,
    failures: u32,
    lost: u32,
}

impl Acquisition {
    pub(crate) fn new(terms: Terms, now: BootInstant) -> Acquisition {
        Acquisition {
            terms,
            started: now,
            end: terms.patience.end(now),
            sent: now,
            failures: 0,
            lost: 0,
        }
    }

    /// A request is sent now; how long it may wait in the queue, in milliseconds as on the wire.
    pub(crate) fn ask(&mut self, now: BootInstant) -> Option<u64> {
        self.sent = now;
        queue_limit(self.terms.patience, self.end, now)
    }

    /// The answer to the request.
    pub(crate) fn on_answer(&mut self, answer: Answer, server: &str, now: BootInstant) -> Next {
        match answer {
            Ok(Reply::Nil) => self.busy(now),
            Ok(Reply::Int(token)) if token > 0 => {
                let grant = Grant {
                    token: Token::new(token.unsigned_abs()),
                    since: self.sent,
                };
                self.hand_out(grant, now)
            }
            Ok(Reply::Array(_)) => {
                self.failures = 0;
                Next::AwaitLetter
            }
            Ok(Reply::Error(line)) => self.refused(refusal(line, server), now),
            Ok(other) => Next::Failed {
                leave: true,
                error: unexpected(&other),
            },
            Err(failure) => self.unanswered(failure, server, now),
        }
    }

    /// What was decided of a request that waited.
    pub(crate) fn on_decision(
        &mut self,
        decision: Decision,
        server: &str,
        now: BootInstant,
    ) -> Next {
        match decision {
            Decision::Granted { token, since } => {
                let since = since.max(self.sent);
                let grant = Grant { token, since };
                if now >= self.terms.lease.believed_until(since) {
                    // Never taken up again.
                    return self.again(true, Duration::ZERO, || Error::Lost(Loss::Expired), now);
                }
                match now.since(since) > self.terms.lease.duration() / 2 {
                    true => Next::Confirm(grant),
                    false => Next::Granted(grant),
                }
            }
            Decision::Denied => self.busy(now),
            Decision::Refused(line) => self.refused(refusal(line, server), now),
            // Whatever waited there waits no more, or was granted and given back.
            Decision::NewBox => {
                let busy = self.waited(now);
                self.again(true, Duration::ZERO, || busy, now)
            }
            // It waits there, or has been granted.
            Decision::Unreachable(Failure::NotSent(error)) => {
                self.unanswered(Failure::Unknown(error), server, now)
            }
            Decision::Unreachable(failure) => self.unanswered(failure, server, now),
        }
    }

    /// The answer to the renewal of a grant, sent at `sent`.
    pub(crate) fn on_confirmation(
        &mut self,
        grant: Grant,
        (answer, sent): (Answer, BootInstant),
        server: &str,
        now: BootInstant,
    ) -> Next {
        let until = self.terms.lease.believed_until(grant.since);
        match answer {
            Ok(Reply::Int(token)) if token.unsigned_abs() == grant.token.get() && now < until => {
                let since = sent;
                self.hand_out(Grant { since, ..grant }, now)
            }
            Ok(Reply::Nil) => self.again(false, Duration::ZERO, || Error::Lost(Loss::Denied), now),
            Ok(Reply::Error(line)) => self.again(true, FIRST_PAUSE, || refusal(line, server), now),
            Ok(_) => self.again(true, Duration::ZERO, || Error::Lost(Loss::Expired), now),
            Err(failure) => self.unanswered(failure, server, now),
        }
    }

    /// Whether the limit is over.
    pub(crate) fn is_over(&self, now: BootInstant) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// That others held the lock until now.
    pub(crate) fn waited(&self, now: BootInstant) -> Error {
        Error::Busy {
            waited: now.since(self.started),
        }
    }

    fn busy(&self, now: BootInstant) -> Next {
        Next::Failed {
            leave: false,
            error: self.waited(now),
        }
    }

    fn hand_out(&self, grant: Grant, now: BootInstant) -> Next {
        match now < self.terms.lease.believed_until(grant.since) {
            true => Next::Granted(grant),
            // It took longer than the lease to be told: nothing was won.
            false => Next::Failed {
                leave: true,
                error: Error::Lost(Loss::Expired),
            },
        }
    }

    fn refused(&mut self, error: Error, now: BootInstant) -> Next {
        let passes = matches!(&error, Error::Refused { code, .. } if is_passing(code));
        match passes && self.terms.patience != Patience::None {
            true => self.later(false, error, now),
            false => Next::Failed {
                leave: false,
                error,
            },
        }
    }

    fn unanswered(&mut self, failure: Failure, server: &str, now: BootInstant) -> Next {
        let leave = !matches!(failure, Failure::NotSent(_));
        let lost = matches!(&failure, Failure::Unknown(error) if !error.is_timeout());
        let is_gone = matches!(failure, Failure::Gone);
        let error = failure.error(server);
        if lost && self.lost < LOST_TRIES {
            self.lost += 1;
            return self.again(leave, Duration::ZERO, || error, now);
        }
        match self.terms.fails_over && !is_gone && self.terms.patience != Patience::None {
            true => self.later(leave, error, now),
            false => Next::Failed { leave, error },
        }
    }

    /// Again after a pause, unless that is in vain.
    fn later(&mut self, leave: bool, error: Error, now: BootInstant) -> Next {
        self.failures += 1;
        if self.end.is_none() && self.failures > TRIES {
            return Next::Failed { leave, error };
        }
        let pause = FIRST_PAUSE * (1 << self.failures.min(7));
        self.again(leave, pause.min(LONGEST_PAUSE), || error, now)
    }

    fn again(
        &self,
        leave: bool,
        pause: Duration,
        error: impl FnOnce() -> Error,
        now: BootInstant,
    ) -> Next {
        let is_over = match self.terms.patience {
            // It did not wait yet: what was lost on the way is sent once more.
            Patience::None => false,
            _ => self.is_over(now + pause),
        };
        match is_over {
            true => Next::Failed {
                leave,
                error: error(),
            },
            false => Next::Again { leave, pause },
        }
    }
}

/// How long a request sent now may wait in the queue: `WAIT` in milliseconds, rounded up.
pub(crate) fn queue_limit(
    patience: Patience,
    end: Option<BootInstant>,
    now: BootInstant,
) -> Option<u64> {
    /// What the wire takes at most, in milliseconds.
    const LONGEST: u128 = 1 << 53;
    match (patience, end) {
        (Patience::None, _) => None,
        (_, None) => Some(0),
        (_, Some(end)) => {
            let left = end.since(now).as_micros().div_ceil(1000);
            Some(left.clamp(1, LONGEST) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::error::ConnectionError;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn begin(patience: Patience, fails_over: bool) -> (Acquisition, BootInstant) {
        let now = BootInstant::now();
        let terms = Terms {
            mode: Mode::Write,
            lease: Lease::new(ms(1000)).unwrap(),
            patience,
            fails_over,
        };
        (Acquisition::new(terms, now), now)
    }

    fn granted(token: u64, since: BootInstant) -> Decision {
        let token = Token::new(token);
        Decision::Granted { token, since }
    }

    #[test]
    fn a_grant_counts_from_the_request_and_not_from_the_reply() {
        let (mut it, start) = begin(Patience::None, false);
        assert_eq!(it.ask(start), None);
        let next = it.on_answer(Ok(Reply::Int(5)), "", start + ms(400));
        assert!(matches!(next, Next::Granted(grant) if grant.since == start));
        let next = it.on_answer(Ok(Reply::Int(5)), "", start + ms(988));
        assert!(
            matches!(
                next,
                Next::Failed {
                    leave: true,
                    error: Error::Lost(_)
                }
            ),
            "{next:?}"
        );
    }

    #[test]
    fn a_letter_counts_from_the_grant_and_is_confirmed_where_half_of_the_lease_is_gone() {
        let (mut it, start) = begin(Patience::Forever, false);
        assert_eq!(it.ask(start), Some(0));
        let queued = Reply::Array(vec![Reply::Text(b"QUEUED".to_vec()), Reply::Int(1)]);
        assert!(matches!(
            it.on_answer(Ok(queued), "", start),
            Next::AwaitLetter
        ));
        let at = start + ms(60_000);
        let next = it.on_decision(granted(7, at), "", at + ms(500));
        assert!(matches!(next, Next::Granted(grant) if grant.since == at));
        let next = it.on_decision(granted(7, at), "", at + ms(501));
        let Next::Confirm(grant) = next else {
            panic!("{next:?}")
        };
        let sent = at + ms(510);
        let renewed = it.on_confirmation(grant, (Ok(Reply::Int(7)), sent), "", at + ms(900));
        assert!(matches!(renewed, Next::Granted(grant) if grant.since == sent));
        // The belief has run out meanwhile, and is not taken up again.
        let renewed = it.on_confirmation(grant, (Ok(Reply::Int(7)), sent), "", at + ms(988));
        assert!(
            matches!(renewed, Next::Again { leave: true, .. }),
            "{renewed:?}"
        );
        let denied = it.on_confirmation(grant, (Ok(Reply::Nil), sent), "", at + ms(900));
        assert!(
            matches!(denied, Next::Again { leave: false, .. }),
            "{denied:?}"
        );
        // A letter never counts from before its request.
        let next = it.on_decision(granted(7, start.back(ms(900))), "", start + ms(10));
        assert!(matches!(next, Next::Granted(grant) if grant.since == start));
    }

    #[test]
    fn what_is_not_known_is_left_and_asked_for_again_and_a_silent_server_is_told_of() {
        let (mut it, start) = begin(Patience::None, false);
        let broken = || Err(Failure::Unknown(ConnectionError::new("reset")));
        let silent = || {
            Err(Failure::Unknown(ConnectionError::silence(
                "no answer",
                ms(1),
            )))
        };
        for _ in 0..LOST_TRIES {
            let next = it.on_answer(broken(), "", start);
            assert!(matches!(next, Next::Again { leave: true, .. }), "{next:?}");
        }
        for answer in [broken(), silent()] {
            let next = it.on_answer(answer, "", start);
            assert!(matches!(
                next,
                Next::Failed {
                    leave: true,
                    error: Error::Connection { .. }
                }
            ));
        }
        let (mut it, start) = begin(Patience::Limit(ms(100)), true);
        let next = it.on_answer(silent(), "", start);
        assert!(matches!(next, Next::Again { leave: true, .. }), "{next:?}");
        let next = it.on_answer(silent(), "", start + ms(100));
        assert!(matches!(next, Next::Failed { leave: true, .. }), "{next:?}");
        let unsent = Err(Failure::NotSent(ConnectionError::new("refused")));
        let next = it.on_answer(unsent, "", start + ms(100));
        assert!(
            matches!(next, Next::Failed { leave: false, .. }),
            "{next:?}"
        );
    }

    #[test]
    fn who_is_sent_away_asks_again_until_his_limit() {
        let (mut it, start) = begin(Patience::Limit(ms(10_000)), false);
        let unblocked = || Decision::Refused("UNBLOCKED the server is no primary".to_owned());
        for _ in 0..2 * TRIES {
            let next = it.on_decision(unblocked(), "", start);
            assert!(matches!(next, Next::Again { leave: false, .. }), "{next:?}");
        }
        let next = it.on_decision(unblocked(), "", start + ms(9_500));
        assert!(
            matches!(next, Next::Failed { leave: false, .. }),
            "{next:?}"
        );
        let (mut it, start) = begin(Patience::Forever, false);
        let again = |_: &u32| matches!(it.on_decision(unblocked(), "", start), Next::Again { .. });
        assert_eq!((0..2 * TRIES).take_while(again).count(), TRIES as usize);
        let deadlock = Decision::Refused("DEADLOCK a".to_owned());
        let next = it.on_decision(deadlock, "", start);
        assert!(matches!(
            next,
            Next::Failed {
                error: Error::Deadlock(_),
                ..
            }
        ));
    }
}
