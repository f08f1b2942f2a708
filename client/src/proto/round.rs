//! The votes of one server or a quorum on one name, and the one token that is made of theirs.
//!
//! The lock is won when a majority has granted it, has agreed on a token, and the lease has not run out meanwhile. The token
//! is no smaller than what any server of that majority granted, and is met by a majority before the lock counts as taken; so
//! a later majority contains a server that exceeds it. One round trip if all have granted what was proposed to them;
//! otherwise it is written back. One server is a majority of one.

use std::ops::{Deref, DerefMut};

use crate::proto::{Answer, Failure, Reply, checked, refusal, token};
use crate::value::{BootInstant, Error, NodeReason, Token};

/// A server whose token is further ahead of the others' than that counts as failed, in microseconds.
const AHEAD: u64 = 1_000_000;

/// What one server has said of a name.
#[derive(Debug, Clone)]
pub(crate) enum Vote {
    /// Not asked, in this round, or it has said since that there is nothing.
    Unasked,
    /// Asked, and not heard of.
    Pending,
    Held(Held),
    /// Others hold the lock there, or it has said that there is nothing.
    Busy,
    /// Asked, and nobody knows what became of it: it may be granted yet, or has been.
    Unknown(Error),
    /// Granted by a token far ahead of the others' that have answered: kept, and left with the rest, but not relied on.
    Ahead(Held),
    /// Refused, or never reached: there is nothing.
    Failed(Error),
}

/// One server's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) token: Token,
    /// When the server made the token, as far as that can be told from here.
    pub(crate) made: BootInstant,
    /// How long it may be believed in.
    pub(crate) until: BootInstant,
    /// That it is there is known, but the request itself was not answered: it may arrive once more.
    pub(crate) late: bool,
}

impl Vote {
    /// A grant, from when it counts, and until when it may be believed in.
    pub(crate) fn granted(token: Token, (made, until): (BootInstant, BootInstant)) -> Vote {
        let late = false;
        Vote::Held(Held {
            token,
            made,
            until,
            late,
        })
    }

    /// What the answer says to a request that was sent then; a grant may be believed in until then.
    pub(crate) fn of(answer: Answer, times: (BootInstant, BootInstant), server: &str) -> Vote {
        match answer {
            Ok(Reply::Error(line)) => Vote::Failed(refusal(line, server)),
            Err(failure @ Failure::NotSent(_)) => Vote::Failed(failure.error(server)),
            answer => match checked(answer, server).and_then(token) {
                Ok(Some(token)) => Vote::granted(token, times),
                Ok(None) => Vote::Busy,
                Err(error) => Vote::Unknown(error),
            },
        }
    }

    /// The grant, if it is one.
    pub(crate) fn held(&self) -> Option<&Held> {
        match self {
            Vote::Held(held) => Some(held),
            _ => None,
        }
    }

    /// Whether there may be something of the name, and whether something of it may arrive late.
    pub(crate) fn may_be_there(&self) -> Option<bool> {
        match self {
            Vote::Unasked | Vote::Busy | Vote::Failed(_) => None,
            Vote::Held(held) => Some(held.late),
            Vote::Ahead(_) => Some(false),
            Vote::Pending | Vote::Unknown(_) => Some(true),
        }
    }

    /// Why it is no grant.
    pub(crate) fn reason(&self) -> Option<NodeReason> {
        match self {
            Vote::Held(_) | Vote::Unasked => None,
            Vote::Busy => Some(NodeReason::Busy),
            Vote::Ahead(_) => Some(NodeReason::Ahead),
            Vote::Pending => Some(NodeReason::Silent),
            Vote::Unknown(error) | Vote::Failed(error) => Some(NodeReason::of(error.clone())),
        }
    }
}

/// What follows from the votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Those that are pending may decide.
    Open,
    Won(Token),
    /// These servers have to be raised to a token first.
    Raise(Token, Vec<usize>),
    /// There is no majority.
    Lost,
}

/// The votes for one name.
#[derive(Debug, Clone)]
pub(crate) struct Round(Box<[Vote]>);

impl Round {
    pub(crate) fn new(servers: usize) -> Round {
        Round(vec![Vote::Unasked; servers].into())
    }

    pub(crate) fn majority(&self) -> usize {
        self.len() / 2 + 1
    }

    /// Takes in what a server has said where there may be something; `is_own`: to the request that was to make it. What it is
    /// known to have is believed in for no shorter because of that.
    pub(crate) fn record(&mut self, server: usize, vote: Vote, is_own: bool) {
        let Some(late) = self[server].may_be_there() else {
            return;
        };
        let late = late && !is_own;
        self[server] = match (vote, &self[server]) {
            (Vote::Held(new), Vote::Held(old)) => {
                let latest = if new.token > old.token { new } else { *old };
                let until = new.until.max(old.until);
                Vote::Held(Held {
                    until,
                    late,
                    ..latest
                })
            }
            (Vote::Held(new), _) => Vote::Held(Held { late, ..new }),
            // What was asked may arrive yet.
            (Vote::Busy, _) if late => Vote::Pending,
            // It is there, as it was or changed.
            (Vote::Failed(error), Vote::Held(_) | Vote::Ahead(_)) => Vote::Unknown(error),
            (vote, _) => vote,
        };
    }

    /// What follows at this moment.
    pub(crate) fn outcome(&mut self, now: BootInstant) -> Outcome {
        self.set_aside_who_is_ahead(now);
        let majority = self.majority();
        let Some(until) = self.until() else {
            let may_decide = self.held().count() + self.pending().count() >= majority;
            return if may_decide {
                Outcome::Open
            } else {
                Outcome::Lost
            };
        };
        // The smallest that is no smaller than those of some majority.
        let token = nth(self.held().map(|(_, held)| held.token), majority - 1);
        let Some(token) = token.filter(|_| now < until) else {
            // The lease may have run out while the others were asked: then nothing was won.
            return Outcome::Lost;
        };
        let below = self.held().filter(|(_, it)| it.token < token);
        match self.held().count() - below.clone().count() >= majority {
            true => Outcome::Won(token),
            false => Outcome::Raise(token, below.map(|(server, _)| server).collect()),
        }
    }

    /// What to propose to the others: no less than what these have granted, unless one of them is far ahead.
    pub(crate) fn proposal(&self, proposed: Option<Token>) -> Option<Token> {
        let proposed = proposed?;
        let limit = Token::new(proposed.get().saturating_add(AHEAD));
        let tokens = self.held().map(|(_, held)| held.token);
        let near = tokens.filter(|token| *token <= limit);
        near.chain([proposed]).max()
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, &Held)> + Clone {
        let votes = self.iter().enumerate();
        votes.filter_map(|(server, vote)| Some((server, vote.held()?)))
    }

    /// Where there may be something, and whether something may arrive late.
    pub(crate) fn there(&self) -> impl Iterator<Item = (usize, bool)> {
        let votes = self.iter().enumerate();
        votes.filter_map(|(server, vote)| Some((server, vote.may_be_there()?)))
    }

    pub(crate) fn those(&self, fit: fn(&Vote) -> bool) -> impl Iterator<Item = usize> {
        let votes = self.iter().enumerate();
        votes.filter_map(move |(server, vote)| fit(vote).then_some(server))
    }

    /// Those that have said something of the lock that may be relied on.
    pub(crate) fn answered(&self) -> impl Iterator<Item = usize> {
        self.those(|vote| matches!(vote, Vote::Held(_) | Vote::Busy))
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        self.those(|vote| matches!(vote, Vote::Pending))
    }

    /// Until when the majority that is held longest may be believed in, if there is one.
    pub(crate) fn until(&self) -> Option<BootInstant> {
        let until = self.held().map(|(_, held)| held.until);
        let spare = until.clone().count().checked_sub(self.majority())?;
        nth(until, spare)
    }

    /// Where to queue: on the first server that has answered, if any is held by others.
    pub(crate) fn first_in_line(&self) -> Option<usize> {
        let is_there = |vote: &Vote| match vote {
            Vote::Held(_) | Vote::Busy => true,
            // Its connection was closed, and is opened again.
            Vote::Unknown(Error::Connection { error, .. }) => !error.is_timeout(),
            _ => false,
        };
        let first = self.iter().position(is_there)?;
        let is_busy = self.iter().any(|vote| matches!(vote, Vote::Busy));
        is_busy.then_some(first)
    }

    /// Sets aside the servers whose tokens are far ahead of the others', the time between their grants taken into account:
    /// what the lower half says is what goes. Of two who disagree, the one that is ahead is not believed. With every answer all
    /// are judged anew: those that came first may be the few that are behind.
    fn set_aside_who_is_ahead(&mut self, now: BootInstant) {
        for vote in self.iter_mut() {
            if let Vote::Ahead(held) = vote {
                *vote = Vote::Held(*held);
            }
        }
        // What the server would grant now.
        let clock = |held: &Held| {
            let age = now.since(held.made).as_micros() as u64;
            held.token.get().saturating_add(age)
        };
        let clocks = self.held().map(|(_, held)| clock(held));
        let middle = nth(clocks.clone(), clocks.count().saturating_sub(1) / 2);
        let limit = middle.map(|middle| middle.saturating_add(AHEAD));
        for vote in self.iter_mut() {
            if let Vote::Held(held) = vote
                && Some(clock(held)) > limit
            {
                *vote = Vote::Ahead(*held);
            }
        }
    }
}

/// The value with at most `n` smaller ones, the largest of those: of few, so that they need no list.
fn nth<T: Ord>(values: impl Iterator<Item = T> + Clone, n: usize) -> Option<T> {
    let smaller = |it: &T| values.clone().filter(|other| other < it).count();
    values.clone().filter(|it| smaller(it) <= n).max()
}

impl Deref for Round {
    type Target = [Vote];

    fn deref(&self) -> &[Vote] {
        &self.0
    }
}

impl DerefMut for Round {
    fn deref_mut(&mut self) -> &mut [Vote] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::value::Lease;

    const SECOND: u64 = 1_000_000;

    fn lease() -> Lease {
        Lease::new(Duration::from_secs(10)).unwrap()
    }

    fn round(servers: usize) -> Round {
        let mut round = Round::new(servers);
        round.fill(Vote::Pending);
        round
    }

    fn granted(token: u64, since: BootInstant) -> Vote {
        let until = lease().believed_until(since);
        Vote::granted(Token::new(token), (since, until))
    }

    fn grant(round: &mut Round, server: usize, token: u64, since: BootInstant) {
        round[server] = granted(token, since);
    }

    /// Grants of so many microseconds, each made so many seconds ago.
    fn grants(votes: &[(u64, u64)]) -> (Round, BootInstant) {
        let now = BootInstant::now() + Duration::from_secs(100);
        let mut round = round(votes.len());
        for (server, (token, age)) in votes.iter().enumerate() {
            let made = now.back(Duration::from_secs(*age));
            grant(&mut round, server, *token, now);
            if let Vote::Held(held) = &mut round[server] {
                held.made = made;
            }
        }
        (round, now)
    }

    fn ahead(votes: &[(u64, u64)]) -> Vec<usize> {
        let (mut round, now) = grants(votes);
        round.set_aside_who_is_ahead(now);
        round.those(|vote| matches!(vote, Vote::Ahead(_))).collect()
    }

    #[test]
    fn the_token_of_a_majority_leaves_out_the_largest() {
        let token = |tokens: &[u64]| {
            let votes: Vec<(u64, u64)> = tokens.iter().map(|token| (*token, 0)).collect();
            let (mut round, now) = grants(&votes);
            match round.outcome(now) {
                Outcome::Won(token) | Outcome::Raise(token, _) => token.get(),
                lost => panic!("{lost:?}"),
            }
        };
        assert_eq!(token(&[5, 9, 7]), 7);
        assert_eq!(token(&[5, 9, 7, 100, 6]), 7);
    }

    #[test]
    fn one_proposed_token_wins_at_once_and_different_ones_are_written_back() {
        let now = BootInstant::now();
        let mut round = round(3);
        grant(&mut round, 0, 7, now);
        assert_eq!(round.outcome(now), Outcome::Open);
        grant(&mut round, 2, 7, now);
        assert_eq!(round.clone().outcome(now), Outcome::Won(Token::new(7)));
        grant(&mut round, 2, 9, now);
        assert_eq!(round.outcome(now), Outcome::Raise(Token::new(9), vec![0]));
        let mut raised = round.clone();
        raised.record(0, granted(9, now), true);
        assert_eq!(raised.outcome(now), Outcome::Won(Token::new(9)));
        round.record(0, Vote::Busy, true);
        round[1] = Vote::Busy;
        assert_eq!(round.outcome(now), Outcome::Lost);
    }

    #[test]
    fn what_is_won_after_its_lease_is_not_won() {
        let now = BootInstant::now();
        let mut round = round(3);
        grant(&mut round, 0, 7, now);
        grant(&mut round, 1, 7, now);
        let late = now + Duration::from_millis(9898);
        let renewed = granted(7, now + Duration::from_secs(1));
        assert_eq!(round.clone().outcome(late), Outcome::Lost);
        round.record(0, renewed.clone(), false);
        assert_eq!(
            round.clone().outcome(late),
            Outcome::Lost,
            "only one of two"
        );
        round.record(1, renewed, false);
        assert_eq!(round.outcome(late), Outcome::Won(Token::new(7)));
    }

    #[test]
    fn a_round_is_lost_as_soon_as_a_majority_cannot_be_had() {
        let now = BootInstant::now();
        let mut round = round(5);
        for server in 0..2 {
            round[server] = Vote::Busy;
            assert_eq!(round.outcome(now), Outcome::Open);
        }
        round[2] = Vote::Unknown(Error::Closed);
        assert_eq!(round.outcome(now), Outcome::Lost);
    }

    #[test]
    fn more_than_a_second_ahead_of_the_others_is_ahead_of_two_as_of_many() {
        assert!(ahead(&[]).is_empty());
        assert!(ahead(&[(5, 0)]).is_empty());
        assert!(ahead(&[(5, 0), (SECOND, 0)]).is_empty());
        assert_eq!(ahead(&[(5, 0), (SECOND + 6, 0)]), [1]);
        assert_eq!(ahead(&[(3 * SECOND, 0), (5, 0), (5, 0)]), [0]);
        // The one that is behind is alone.
        assert!(ahead(&[(5, 0), (3 * SECOND, 0), (3 * SECOND, 0)]).is_empty());
    }

    #[test]
    fn a_majority_that_answers_after_the_few_that_are_behind_is_not_ahead() {
        let (mut round, now) = grants(&[(5, 0), (5, 0), (60 * SECOND, 0), (60 * SECOND, 0)]);
        round.0 = round.iter().cloned().chain([Vote::Pending]).collect();
        assert_eq!(round.outcome(now), Outcome::Open);
        grant(&mut round, 4, 60 * SECOND, now);
        assert_eq!(round.outcome(now), Outcome::Won(Token::new(60 * SECOND)));
    }

    #[test]
    fn a_token_made_earlier_is_no_sign_of_a_clock_behind() {
        assert!(ahead(&[(5, 20), (20 * SECOND, 0)]).is_empty());
        assert_eq!(ahead(&[(5, 20), (22 * SECOND, 0)]), [1]);
    }
}
