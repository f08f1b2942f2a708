//! Which token a quorum client proposes: what servers have said, plus the time since. Never its own wall clock, which
//! may be an hour off and would push every server's tokens ahead with it.

use std::time::Duration;

use crate::value::{BootInstant, Token};

/// For how long an estimate is built upon: this machine's clock and theirs do not run alike.
const LONGEST: Duration = Duration::from_secs(60);
/// What servers' clocks may differ by without costing a round trip.
const MARGIN: Duration = Duration::from_millis(1);

/// What is known of the tokens servers would grant now.
#[derive(Debug, Default, Clone)]
pub(crate) struct Proposal {
    /// The largest token that servers of a majority have made by themselves, and when they were asked for it.
    made: Option<(Token, BootInstant)>,
    /// The largest token that has come to be.
    last: u64,
}

impl Proposal {
    /// A token that all servers can probably grant, or `None` if too little is known.
    pub(crate) fn propose(&self, now: BootInstant) -> Option<Token> {
        let (token, asked) = self
            .made
            .filter(|(_, asked)| now.since(*asked) <= LONGEST)?;
        let since = (now.since(asked) + MARGIN).as_micros() as u64;
        let estimate = token.get().saturating_add(since);
        Some(Token::new(estimate.max(self.last + 1)))
    }

    /// A majority, asked at `asked`, has settled on `token`; `proposed` was what it was asked for.
    pub(crate) fn learn(&mut self, token: Token, proposed: Option<Token>, asked: BootInstant) {
        // What the servers only took over says nothing of their clocks.
        let is_own = proposed.is_none_or(|proposed| proposed < token);
        if is_own || self.made.is_none() {
            self.made = Some((token, asked));
        }
        self.last = self.last.max(token.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn no_token_is_proposed_before_a_server_has_granted_one() {
        assert_eq!(Proposal::default().propose(BootInstant::now()), None);
    }

    #[test]
    fn a_proposal_is_the_servers_token_and_the_time_since() {
        let (mut proposal, then) = (Proposal::default(), BootInstant::now());
        proposal.learn(Token::new(5_000_000), None, then);
        let proposed = proposal.propose(then + micros(700)).unwrap();
        assert_eq!(proposed.get(), 5_000_000 + 700 + 1000);
    }

    #[test]
    fn accepted_proposals_do_not_push_later_ones_ahead_of_the_clock() {
        let (mut proposal, start) = (Proposal::default(), BootInstant::now());
        proposal.learn(Token::new(5_000_000), None, start);
        for round in 1..=1000 {
            let now = start + micros(round * 50);
            let proposed = proposal.propose(now).unwrap();
            proposal.learn(proposed, Some(proposed), now);
        }
        let ahead = proposal.propose(start + micros(50_000)).unwrap().get() - 5_050_000;
        assert!(ahead <= 1001, "{ahead} µs ahead");
    }

    #[test]
    fn two_proposals_at_one_moment_differ() {
        let (mut proposal, now) = (Proposal::default(), BootInstant::now());
        proposal.learn(Token::new(5_000_000), None, now);
        let first = proposal.propose(now).unwrap();
        proposal.learn(first, Some(first), now);
        let second = proposal.propose(now).unwrap();
        assert_eq!(second.get(), first.get() + 1);
    }

    #[test]
    fn servers_whose_tokens_exceed_a_proposal_are_believed_from_then_on() {
        let (mut proposal, then) = (Proposal::default(), BootInstant::now());
        proposal.learn(Token::new(5_000_000), None, then);
        let proposed = proposal.propose(then);
        proposal.learn(Token::new(6_000_000), proposed, then);
        let next = proposal.propose(then + micros(700)).unwrap();
        assert_eq!(next.get(), 6_000_000 + 700 + 1000);
    }

    #[test]
    fn an_old_estimate_of_a_token_is_not_used() {
        let (mut proposal, then) = (Proposal::default(), BootInstant::now());
        proposal.learn(Token::new(5_000_000), None, then);
        assert_eq!(proposal.propose(then + Duration::from_secs(61)), None);
    }
}
