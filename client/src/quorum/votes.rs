//! The one token and the one deadline that a quorum makes of its servers' grants.
//!
//! The lock is won when a majority has granted it, has agreed on a token, and the lease has not run out meanwhile. The token
//! is no smaller than what any server of that majority granted, and a majority has it before the lock counts as taken; so
//! a later majority contains a server that exceeds it. Servers whose token is lower are raised to it first.

use crate::belief::{Grant, believed_until, nth};
use crate::time::BootInstant;
use crate::token::Token;

/// A server whose token is further ahead of the others' than that counts as failed, in microseconds.
const AHEAD: u64 = 1_000_000;

/// How many of so many servers make a majority: two of three, three of five.
pub(crate) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// What follows from the grants.
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

/// The grants of one name, by server.
#[derive(Debug, Clone)]
pub(crate) struct Tally {
    pub(crate) grants: Vec<Option<Grant>>,
    /// How many servers have not answered yet.
    pub(crate) pending: usize,
}

impl Tally {
    /// What follows at this moment.
    pub(crate) fn outcome(&self, now: BootInstant) -> Outcome {
        let majority = majority(self.grants.len());
        let trusted = self.trusted(now);
        let held = || trusted.iter().flatten();
        let Some(until) = believed_until(held().map(|it| it.until), majority) else {
            return match held().count() + self.pending >= majority {
                true => Outcome::Open,
                false => Outcome::Lost,
            };
        };
        // The smallest that is no smaller than those of some majority.
        let token = nth(held().map(|it| it.token), majority - 1);
        let Some(token) = token.filter(|_| now < until) else {
            // The lease may have run out while the others were asked: then nothing was won.
            return Outcome::Lost;
        };
        let is_below = |grant: &Option<Grant>| grant.is_some_and(|it| it.token < token);
        let below = trusted.iter().enumerate().filter(|(_, it)| is_below(it));
        let below: Vec<usize> = below.map(|(server, _)| server).collect();
        match held().count() - below.len() >= majority {
            true => Outcome::Won(token),
            false => Outcome::Raise(token, below),
        }
    }

    /// Which servers' tokens are far ahead of the others', the time between their grants taken into account: what the lower
    /// half says is what counts. Of two that disagree, the one that is ahead is not trusted. With every answer all are judged
    /// anew: those that came first may be the few that are behind.
    pub(crate) fn ahead(&self, now: BootInstant) -> impl Iterator<Item = usize> {
        // The token that the server would grant now.
        let clock = move |grant: &Grant| {
            let age = now.since(grant.since).as_micros() as u64;
            grant.made.get().saturating_add(age)
        };
        let clocks = self.grants.iter().flatten().map(clock);
        let limit = believable(clocks);
        let is_ahead = move |grant: &Option<Grant>| grant.is_some_and(|it| clock(&it) > limit);
        let grants = self.grants.iter().enumerate();
        grants.filter_map(move |(server, grant)| is_ahead(grant).then_some(server))
    }

    fn trusted(&self, now: BootInstant) -> Vec<Option<Grant>> {
        let mut trusted = self.grants.clone();
        for server in self.ahead(now) {
            trusted[server] = None;
        }
        trusted
    }
}

/// The latest that a server's clock may show, in microseconds, if these servers' clocks show this: later ones are far ahead of the
/// lower half.
fn believable(clocks: impl Iterator<Item = u64> + Clone) -> u64 {
    let below_middle = clocks.clone().count().saturating_sub(1) / 2;
    let middle = nth(clocks, below_middle);
    middle.map_or(u64::MAX, |middle| middle.saturating_add(AHEAD))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Lease;

    const SECOND: u64 = 1_000_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn granted(token: u64, since: BootInstant) -> Option<Grant> {
        let lease = Lease::new(Duration::from_secs(10)).unwrap();
        Some(Grant::new(Token::new(token), since, lease))
    }

    fn tally(grants: &[Option<Grant>], pending: usize) -> Tally {
        let grants = grants.to_vec();
        Tally { grants, pending }
    }

    /// Grants of so many microseconds, each made so many seconds ago.
    fn grants(votes: &[(u64, u64)]) -> (Vec<Option<Grant>>, BootInstant) {
        let now = BootInstant::now() + Duration::from_secs(100);
        let grant = |(token, age): &(u64, u64)| {
            let mut grant = granted(*token, now)?;
            grant.since = now.back(Duration::from_secs(*age));
            Some(grant)
        };
        (votes.iter().map(grant).collect(), now)
    }

    fn ahead(votes: &[(u64, u64)]) -> Vec<usize> {
        let (grants, now) = grants(votes);
        tally(&grants, 0).ahead(now).collect()
    }

    #[test]
    fn the_token_of_a_majority_leaves_out_the_largest() {
        let token = |tokens: &[u64]| {
            let votes: Vec<(u64, u64)> = tokens.iter().map(|token| (*token, 0)).collect();
            let (grants, now) = grants(&votes);
            match tally(&grants, 0).outcome(now) {
                Outcome::Won(token) | Outcome::Raise(token, _) => token.get(),
                lost => panic!("{lost:?}"),
            }
        };
        assert_eq!(token(&[5, 9, 7]), 7);
        assert_eq!(token(&[5, 9, 7, 100, 6]), 7);
    }

    #[test]
    fn one_token_wins_at_once_and_different_ones_are_written_back() {
        let now = BootInstant::now();
        let (seven, nine) = (granted(7, now), granted(9, now));
        assert_eq!(tally(&[seven, None, None], 2).outcome(now), Outcome::Open);
        assert_eq!(
            tally(&[seven, None, seven], 1).outcome(now),
            Outcome::Won(Token::new(7))
        );
        assert_eq!(
            tally(&[seven, None, nine], 1).outcome(now),
            Outcome::Raise(Token::new(9), vec![0])
        );
        assert_eq!(
            tally(&[nine, None, nine], 1).outcome(now),
            Outcome::Won(Token::new(9))
        );
        assert_eq!(tally(&[None, None, nine], 0).outcome(now), Outcome::Lost);
    }

    #[test]
    fn a_majority_after_the_end_of_its_lease_does_not_count() {
        let now = BootInstant::now();
        let late = now + ms(9898);
        let (old, renewed) = (granted(7, now), granted(7, now + ms(1000)));
        assert_eq!(tally(&[old, old, None], 0).outcome(late), Outcome::Lost);
        assert_eq!(
            tally(&[renewed, old, None], 0).outcome(late),
            Outcome::Lost,
            "only one of two"
        );
        let both = tally(&[renewed, renewed, None], 0);
        assert_eq!(both.outcome(late), Outcome::Won(Token::new(7)));
    }

    #[test]
    fn a_round_is_lost_as_soon_as_a_majority_is_impossible() {
        let now = BootInstant::now();
        for pending in 3..=5 {
            assert_eq!(tally(&[None; 5], pending).outcome(now), Outcome::Open);
        }
        assert_eq!(tally(&[None; 5], 2).outcome(now), Outcome::Lost);
    }

    #[test]
    fn a_server_more_than_a_second_ahead_counts_as_ahead_of_two_or_of_many() {
        assert!(ahead(&[]).is_empty());
        assert!(ahead(&[(5, 0)]).is_empty());
        assert!(ahead(&[(5, 0), (SECOND, 0)]).is_empty());
        assert!(ahead(&[(5, 0), (SECOND + 5, 0)]).is_empty());
        assert_eq!(ahead(&[(5, 0), (SECOND + 6, 0)]), [1]);
        assert_eq!(ahead(&[(3 * SECOND, 0), (5, 0), (5, 0)]), [0]);
        // The one that is behind is alone.
        assert!(ahead(&[(5, 0), (3 * SECOND, 0), (3 * SECOND, 0)]).is_empty());
    }

    #[test]
    fn a_majority_that_replies_after_servers_that_are_behind_is_not_ahead() {
        let (mut all, now) = grants(&[(5, 0), (5, 0), (60 * SECOND, 0), (60 * SECOND, 0)]);
        all.push(None);
        assert_eq!(tally(&all, 1).outcome(now), Outcome::Open);
        all[4] = granted(60 * SECOND, now);
        let won = Outcome::Won(Token::new(60 * SECOND));
        assert_eq!(tally(&all, 0).outcome(now), won);
    }

    #[test]
    fn a_token_made_earlier_is_no_sign_of_a_clock_behind() {
        assert!(ahead(&[(5, 20), (20 * SECOND, 0)]).is_empty());
        assert_eq!(ahead(&[(5, 20), (22 * SECOND, 0)]), [1]);
    }

    #[test]
    fn a_raised_token_is_no_sign_of_a_clock_ahead() {
        // The second server granted it ten seconds after the first, whose token was raised to that.
        let (mut all, now) = grants(&[(5, 15), (10 * SECOND, 5)]);
        let token = Token::new(10 * SECOND);
        all[0].as_mut().unwrap().token = token;
        assert_eq!(tally(&all, 0).outcome(now), Outcome::Won(token));
    }
}
