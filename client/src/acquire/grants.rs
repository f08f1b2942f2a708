//! What the servers of a quorum have granted, and the one token that is made of theirs.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::acquire::Attempt;
use crate::acquire::round::Round;
use crate::clock::BootInstant;
use crate::error::Error;
use crate::hold::Grant;
use crate::token::Token;
use crate::wire;

/// A server whose token is further ahead of the others' than that counts as failed, in microseconds.
const AHEAD: u64 = 1_000_000;
/// A server's clock may gain one part in so many on this machine's.
const DRIFT: u64 = 1000;

/// One server's grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vote {
    pub(crate) token: Token,
    /// When the request was sent, or the last renewal that was confirmed.
    pub(crate) sent: BootInstant,
    /// When the server made the token, as far as that can be told from here.
    pub(crate) made: BootInstant,
}

/// The servers that have granted a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants(pub(crate) BTreeMap<usize, Vote>);

impl Grants {
    pub(crate) fn of(round: &Round) -> Grants {
        let mut grants = Grants::default();
        grants.add(round);
        grants
    }

    pub(crate) fn add(&mut self, round: &Round) {
        self.0.extend(round.granted());
    }

    /// What to propose to the others: no less than what these have granted, unless one of them is far ahead.
    pub(crate) fn proposal(&self, proposed: Option<Token>) -> Option<Token> {
        let proposed = proposed?;
        let limit = Token::new(proposed.get().saturating_add(AHEAD));
        let tokens = self.0.values().map(|vote| vote.token);
        tokens
            .filter(|token| *token <= limit)
            .chain([proposed])
            .max()
    }

    /// The grant of the whole quorum; `None` if there is no majority, or it has come too late.
    pub(crate) async fn settle(
        mut self,
        attempt: &Attempt<'_>,
        proposed: Option<Token>,
        asked: BootInstant,
    ) -> Option<Grant> {
        let core = &attempt.request.core;
        let token = match attempt.reentry_token() {
            Some(token) => self.rejoin(attempt).then_some(token)?,
            None => {
                let token = self.fence(attempt).await?;
                core.proposal.learn(token, proposed, asked);
                token
            }
        };
        let counted = || self.0.values();
        let sent = counted().map(|vote| vote.sent).min()?;
        // The lease may have run out while the others were asked: then nothing was won.
        if BootInstant::now() >= attempt.request.terms.asked_lease().believed_until(sent) {
            return None;
        }
        let nodes = 0..core.nodes.len();
        Some(Grant {
            owner: attempt.owner.clone(),
            token,
            nodes: nodes
                .clone()
                .map(|node| self.0.get(&node).map(|vote| vote.token))
                .collect(),
            unanswered: nodes
                .map(|node| match self.0.contains_key(&node) {
                    true => None,
                    false => attempt.unanswered(node),
                })
                .collect(),
            sent,
        })
    }

    /// Whether a majority has been entered again, rather than anew: with the token it was held by.
    fn rejoin(&mut self, attempt: &Attempt<'_>) -> bool {
        self.0
            .retain(|node, vote| attempt.counts(*node, vote.token));
        self.0.len() >= attempt.request.core.majority()
    }

    /// The servers whose tokens are far ahead of the others', the time between their grants taken into account: what the
    /// lower half says is what goes. Of two who disagree, the one that is ahead is not believed.
    ///
    /// Tokens up to a second past that of the `old` hold, which is to be changed, say nothing: servers may still know it
    /// by them. What speaks for those servers is that hold's token, and the time since.
    pub(crate) fn ahead(&self, old: Option<Vote>) -> Vec<usize> {
        let is_new =
            |vote: &&Vote| old.is_none_or(|old| vote.token.get() > old.token.get() + AHEAD);
        let now = BootInstant::now();
        let age =
            |vote: &Vote| u64::try_from(now.since(vote.made).as_micros()).unwrap_or(u64::MAX / 2);
        // What each server would grant now.
        let clock = |vote: &Vote| vote.token.get().saturating_add(age(vote));
        let of_old = old.map(|old| clock(&old).saturating_add(age(&old) / DRIFT));
        let of_new = self.0.values().filter(is_new).map(clock);
        let mut clocks: Vec<u64> = of_new.chain(of_old).collect();
        clocks.sort_unstable();
        let Some(middle) = clocks.get(clocks.len().saturating_sub(1) / 2) else {
            return Vec::new();
        };
        let limit = middle.saturating_add(AHEAD);
        let far = |vote: &&Vote| is_new(vote) && clock(vote) > limit;
        let ahead = self.0.iter().filter(|(_, vote)| far(vote));
        ahead.map(|(node, _)| *node).collect()
    }

    /// The token of the quorum: no smaller than what any server of some majority has granted, and met by a majority
    /// before the lock counts as taken. So a later majority contains a server that exceeds it.
    ///
    /// One round trip if a majority has granted the same token, which is what proposing one is for; else the token is
    /// written back.
    async fn fence(&mut self, attempt: &Attempt<'_>) -> Option<Token> {
        let core = &attempt.request.core;
        // Kept, and released with the rest, but not relied on.
        for node in self.ahead(attempt.old_vote()) {
            self.0.remove(&node);
        }
        let token = majority_token(self.0.values().map(|vote| vote.token), core.majority())?;
        let met = |grants: &Grants| grants.0.values().filter(|it| it.token >= token).count();
        if met(self) >= core.majority() {
            return Some(token);
        }
        let cmd = wire::fence(attempt.who(), token);
        let mut answers: FuturesUnordered<_> = self
            .0
            .iter()
            .filter(|(_, vote)| vote.token < token)
            .map(|(node, _)| {
                let (node, cmd) = (*node, &cmd);
                async move { (node, core.nodes[node].ask(cmd).await) }
            })
            .collect();
        let mut refused = None;
        while let Some((node, answer)) = answers.next().await {
            let raised = answer.and_then(|value| wire::token(Ok(value), core.nodes[node].name()));
            match (raised, self.0.get_mut(&node)) {
                (Ok(Some(raised)), Some(vote)) => vote.token = raised,
                (Err(error @ Error::Refused(_)), _) => refused = Some(error),
                _ => {}
            }
            if met(self) >= core.majority() {
                break;
            }
        }
        drop(answers);
        if met(self) < core.majority() {
            if let Some(error) = refused {
                attempt.trail.note_refused(error);
            }
            return None;
        }
        // Whether the others have been raised is not known, so they are not named by a token either.
        self.0.retain(|_, vote| vote.token >= token);
        Some(token)
    }
}

/// The smallest token that is no smaller than those of some majority.
fn majority_token(tokens: impl Iterator<Item = Token>, majority: usize) -> Option<Token> {
    let mut tokens: Vec<Token> = tokens.collect();
    tokens.sort_unstable();
    tokens.get(majority - 1).copied()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Grants of so many microseconds, each made so many seconds ago.
    fn grants(votes: &[(u64, u64)]) -> Grants {
        let now = BootInstant::now();
        let vote = |(token, age): &(u64, u64)| Vote {
            token: Token::new(*token),
            sent: now,
            made: now.back(Duration::from_secs(*age)),
        };
        Grants(votes.iter().map(vote).enumerate().collect())
    }

    #[test]
    fn the_token_of_a_majority_leaves_out_the_largest() {
        let token = |tokens: &[u64]| {
            majority_token(tokens.iter().copied().map(Token::new), 3).map(Token::get)
        };
        assert_eq!(token(&[5, 9, 7]), Some(9));
        assert_eq!(token(&[5, 9, 7, 100, 6]), Some(7));
        assert_eq!(token(&[5, 9]), None);
    }

    #[test]
    fn more_than_a_second_ahead_of_the_others_is_ahead_of_two_as_of_many() {
        const SECOND: u64 = 1_000_000;
        assert!(grants(&[]).ahead(None).is_empty());
        assert!(grants(&[(5, 0)]).ahead(None).is_empty());
        assert!(grants(&[(5, 0), (SECOND, 0)]).ahead(None).is_empty());
        assert_eq!(grants(&[(5, 0), (SECOND + 6, 0)]).ahead(None), [1]);
        assert_eq!(grants(&[(3 * SECOND, 0), (5, 0), (5, 0)]).ahead(None), [0]);
        // The one that is behind is alone.
        let behind = grants(&[(5, 0), (3 * SECOND, 0), (3 * SECOND, 0)]);
        assert!(behind.ahead(None).is_empty());
    }

    #[test]
    fn a_server_that_still_knows_a_changed_hold_by_its_old_token_does_not_make_the_others_look_ahead()
     {
        const SECOND: u64 = 1_000_000;
        let old = |age| Some(grants(&[(5, age)]).0[&0]);
        // Its own token may be larger than the majority's.
        for token in [4, 5, SECOND] {
            let changed = grants(&[(token, 0), (3 * SECOND, 0)]);
            assert!(changed.ahead(old(3)).is_empty(), "{token}");
            assert_eq!(changed.ahead(old(1)), [1], "{token}");
        }
        // Others than it are believed, where there are two.
        let changed = grants(&[(5, 0), (9 * SECOND, 0), (9 * SECOND, 0)]);
        assert!(changed.ahead(old(3)).is_empty());
        // In half an hour clocks drift apart.
        let changed = grants(&[(5, 0), (1802 * SECOND, 0)]);
        assert!(changed.ahead(old(1800)).is_empty());
    }

    #[test]
    fn a_token_made_earlier_is_no_sign_of_a_clock_behind() {
        const SECOND: u64 = 1_000_000;
        assert!(grants(&[(5, 20), (20 * SECOND, 0)]).ahead(None).is_empty());
        assert_eq!(grants(&[(5, 20), (22 * SECOND, 0)]).ahead(None), [1]);
    }
}
