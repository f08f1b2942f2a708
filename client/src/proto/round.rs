//! The votes of a quorum, and the one token that is made of theirs.
//!
//! The lock is won when a majority has granted it, has agreed on a token, and the lease has not run out meanwhile. The token
//! is no smaller than what any server of that majority granted, and is met by a majority before the lock counts as taken; so
//! a later majority contains a server that exceeds it. One round trip if all have granted what was proposed to them;
//! otherwise it is written back.

use crate::proto::hold::{Share, Shares};
use crate::value::clock::BootInstant;
use crate::value::error::Error;
use crate::value::lease::Lease;
use crate::value::token::Token;

/// A server whose token is further ahead of the others' than that counts as failed, in microseconds.
const AHEAD: u64 = 1_000_000;

/// What one server has said.
#[derive(Debug, Clone)]
pub(crate) enum Vote {
    /// Not asked, in this round.
    Unasked,
    /// Asked, and not heard of.
    Pending,
    Granted(Granted),
    /// Others hold the lock there.
    Busy,
    /// Asked, and nobody knows what became of it: it may be granted yet, or has been.
    Unknown(Error),
    /// Granted by a token far ahead of the others': kept, and left with the rest, but not relied on.
    Ahead,
    /// Refused, or never reached: there is nothing.
    Failed(Error),
}

/// One server's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Granted {
    pub(crate) token: Token,
    /// From when its lease counts.
    pub(crate) since: BootInstant,
    /// When the server made the token, as far as that can be told from here.
    pub(crate) made: BootInstant,
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
pub(crate) struct Round {
    pub(crate) votes: Vec<Vote>,
    lease: Lease,
}

impl Round {
    pub(crate) fn new(servers: usize, lease: Lease) -> Round {
        Round {
            votes: vec![Vote::Unasked; servers],
            lease,
        }
    }

    pub(crate) fn majority(&self) -> usize {
        self.votes.len() / 2 + 1
    }

    /// A server has granted the request that was sent at `since`.
    pub(crate) fn on_granted(&mut self, server: usize, token: Token, since: BootInstant) {
        let made = since;
        self.votes[server] = Vote::Granted(Granted { token, since, made });
    }

    /// A server has renewed its grant, by a request that was sent at `sent`.
    pub(crate) fn on_renewed(&mut self, server: usize, answer: Option<Token>, sent: BootInstant) {
        match (&mut self.votes[server], answer) {
            (Vote::Granted(granted), Some(_)) => granted.since = granted.since.max(sent),
            (vote, None) => *vote = Vote::Busy,
            _ => {}
        }
    }

    /// A server has raised its grant to a token, or has not.
    pub(crate) fn on_raised(&mut self, server: usize, answer: Result<Option<Token>, Error>) {
        match (&mut self.votes[server], answer) {
            (Vote::Granted(granted), Ok(Some(token))) => granted.token = granted.token.max(token),
            (vote, Ok(_)) => *vote = Vote::Busy,
            (vote, Err(error)) => *vote = Vote::Unknown(error),
        }
    }

    /// What follows at this moment.
    pub(crate) fn outcome(&mut self, now: BootInstant) -> Outcome {
        for server in self.ahead(now) {
            self.votes[server] = Vote::Ahead;
        }
        let majority = self.majority();
        if self.granted().count() < majority {
            let pending = self.pending().count();
            return match self.granted().count() + pending >= majority {
                true if pending > 0 => Outcome::Open,
                _ => Outcome::Lost,
            };
        }
        // The lease may have run out while the others were asked: then nothing was won.
        if now >= self.believed_until() {
            return Outcome::Lost;
        }
        let tokens = || self.granted().map(|(_, granted)| granted.token);
        let token = majority_token(tokens(), majority);
        if tokens().filter(|it| *it >= token).count() >= majority {
            return Outcome::Won(token);
        }
        let below = self.granted().filter(|(_, it)| it.token < token);
        Outcome::Raise(token, below.map(|(server, _)| server).collect())
    }

    /// What to propose to the others: no less than what these have granted, unless one of them is far ahead.
    pub(crate) fn proposal(&self, proposed: Option<Token>) -> Option<Token> {
        let proposed = proposed?;
        let limit = Token::new(proposed.get().saturating_add(AHEAD));
        let tokens = self.granted().map(|(_, granted)| granted.token);
        tokens
            .filter(|token| *token <= limit)
            .chain([proposed])
            .max()
    }

    pub(crate) fn granted(&self) -> impl Iterator<Item = (usize, &Granted)> {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(server, vote)| match vote {
            Vote::Granted(granted) => Some((server, granted)),
            _ => None,
        })
    }

    /// Those that have said something of the lock that may be relied on.
    pub(crate) fn answered(&self) -> impl Iterator<Item = usize> {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(server, vote)| match vote {
            Vote::Granted(_) | Vote::Busy => Some(server),
            _ => None,
        })
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = usize> {
        let votes = self.votes.iter().enumerate();
        votes.filter_map(|(server, vote)| matches!(vote, Vote::Pending).then_some(server))
    }

    /// Where the hold is: those that have not met the token are there, too, for all that is known.
    pub(crate) fn shares(&self) -> Shares {
        let share = |vote: &Vote| match vote {
            Vote::Granted(granted) => Share::Held {
                token: granted.token,
                until: self.lease.believed_until(granted.since),
            },
            Vote::Busy | Vote::Unasked | Vote::Failed(_) => Share::None,
            Vote::Pending | Vote::Unknown(_) | Vote::Ahead => Share::Unknown,
        };
        Shares::Many(self.votes.iter().map(share).collect())
    }

    /// Until when the majority that is held longest may be believed in.
    fn believed_until(&self) -> BootInstant {
        let mut since: Vec<BootInstant> = self.granted().map(|(_, it)| it.since).collect();
        since.sort_unstable_by(|a, b| b.cmp(a));
        let oldest = since.get(self.majority() - 1).copied();
        oldest.map_or(BootInstant::default(), |it| self.lease.believed_until(it))
    }

    /// The servers whose tokens are far ahead of the others', the time between their grants taken into account: what the
    /// lower half says is what goes. Of two who disagree, the one that is ahead is not believed.
    fn ahead(&self, now: BootInstant) -> Vec<usize> {
        let clock = |granted: &Granted| {
            let age = now.since(granted.made).as_micros();
            let age = u64::try_from(age).unwrap_or(u64::MAX / 2);
            // What the server would grant now.
            granted.token.get().saturating_add(age)
        };
        let mut clocks: Vec<u64> = self.granted().map(|(_, it)| clock(it)).collect();
        clocks.sort_unstable();
        let Some(middle) = clocks.get(clocks.len().saturating_sub(1) / 2) else {
            return Vec::new();
        };
        let limit = middle.saturating_add(AHEAD);
        let far = self.granted().filter(|(_, it)| clock(it) > limit);
        far.map(|(server, _)| server).collect()
    }
}

/// The smallest token that is no smaller than those of some majority.
fn majority_token(tokens: impl Iterator<Item = Token>, majority: usize) -> Token {
    let mut tokens: Vec<Token> = tokens.collect();
    tokens.sort_unstable();
    tokens[majority - 1]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn round(servers: usize) -> Round {
        let mut round = Round::new(servers, Lease::new(Duration::from_secs(10)).unwrap());
        round.votes.fill(Vote::Pending);
        round
    }

    /// Grants of so many microseconds, each made so many seconds ago.
    fn grants(votes: &[(u64, u64)]) -> (Round, BootInstant) {
        let now = BootInstant::now() + Duration::from_secs(100);
        let mut round = round(votes.len());
        for (server, (token, age)) in votes.iter().enumerate() {
            let made = now.back(Duration::from_secs(*age));
            let (token, since) = (Token::new(*token), now);
            round.votes[server] = Vote::Granted(Granted { token, since, made });
        }
        (round, now)
    }

    fn ahead(votes: &[(u64, u64)]) -> Vec<usize> {
        let (round, now) = grants(votes);
        round.ahead(now)
    }

    #[test]
    fn the_token_of_a_majority_leaves_out_the_largest() {
        let token =
            |tokens: &[u64]| majority_token(tokens.iter().copied().map(Token::new), 3).get();
        assert_eq!(token(&[5, 9, 7]), 9);
        assert_eq!(token(&[5, 9, 7, 100, 6]), 7);
    }

    #[test]
    fn one_proposed_token_wins_at_once_and_different_ones_are_written_back() {
        let now = BootInstant::now();
        let mut round = round(3);
        round.on_granted(0, Token::new(7), now);
        assert_eq!(round.outcome(now), Outcome::Open);
        round.on_granted(2, Token::new(7), now);
        assert_eq!(round.clone().outcome(now), Outcome::Won(Token::new(7)));
        round.on_granted(2, Token::new(9), now);
        assert_eq!(round.outcome(now), Outcome::Raise(Token::new(9), vec![0]));
        let mut raised = round.clone();
        raised.on_raised(0, Ok(Some(Token::new(9))));
        assert_eq!(raised.outcome(now), Outcome::Won(Token::new(9)));
        round.on_raised(0, Ok(None));
        round.votes[1] = Vote::Busy;
        assert_eq!(round.outcome(now), Outcome::Lost);
    }

    #[test]
    fn what_is_won_after_its_lease_is_not_won() {
        let now = BootInstant::now();
        let mut round = round(3);
        round.on_granted(0, Token::new(7), now);
        round.on_granted(1, Token::new(7), now);
        let late = now + Duration::from_millis(9898);
        assert_eq!(round.clone().outcome(late), Outcome::Lost);
        round.on_renewed(0, Some(Token::new(7)), now + Duration::from_secs(1));
        assert_eq!(
            round.clone().outcome(late),
            Outcome::Lost,
            "only one of two"
        );
        round.on_renewed(1, Some(Token::new(7)), now + Duration::from_secs(1));
        assert_eq!(round.outcome(late), Outcome::Won(Token::new(7)));
    }

    #[test]
    fn a_round_is_lost_as_soon_as_a_majority_cannot_be_had() {
        let now = BootInstant::now();
        let mut round = round(5);
        for server in 0..2 {
            round.votes[server] = Vote::Busy;
            assert_eq!(round.outcome(now), Outcome::Open);
        }
        round.votes[2] = Vote::Unknown(Error::Closed);
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
    fn a_token_made_earlier_is_no_sign_of_a_clock_behind() {
        assert!(ahead(&[(5, 20), (20 * SECOND, 0)]).is_empty());
        assert_eq!(ahead(&[(5, 20), (22 * SECOND, 0)]), [1]);
    }
}
