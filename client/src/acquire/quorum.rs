//! Redlock: a lock over independent servers is held by whoever holds it on a majority, within the validity.
//!
//! The algorithm is that of "Distributed Locks with Redis" in the Redis documentation, with two additions: fencing tokens
//! that grow from one quorum to the next ([`Grants::fence`]), and queues instead of polling (`line`).

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::acquire::line::{self, Stood};
use crate::acquire::round::{self, Round};
use crate::acquire::{Attempt, Wait, note_unanswered};
use crate::clock::BootInstant;
use crate::error::Error;
use crate::hold::Grant;
use crate::owner::Owner;
use crate::token::Token;
use crate::wire;

/// How many rounds in a row may find no majority that answers before that is the answer.
const ROUNDS_WITHOUT_MAJORITY: u32 = 3;
/// How many times the time one server may take fits into the lease.
const SHARE: u32 = 4;
/// A server whose token is further ahead of the majority's than that counts as failed, in microseconds.
const AHEAD: u64 = 1_000_000;

pub(crate) async fn take(whole: &Attempt<'_>) -> Result<Grant, Error> {
    let (request, core) = (whole.request, &whole.request.core);
    let limit = core.nodes[0].config().response_timeout;
    if limit * SHARE > request.terms.lease.duration() {
        return Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {:?}, not {:?}",
            limit,
            request.terms.lease.duration()
        )));
    }
    let mut without_majority = 0;
    loop {
        let attempt = &whole.next_round();
        let asked = BootInstant::now();
        let fence = core.proposal.propose(asked);
        let round = round::ask(attempt, 0..core.nodes.len(), 0, fence).await;
        if let Some(grant) = Grants::of(&round).settle(attempt, fence, asked).await {
            return Ok(grant);
        }
        undo(attempt, |_| true).await;
        let there = round.answered().count();
        if there >= core.majority() {
            without_majority = 0;
        } else {
            without_majority += 1;
        }
        if let Some(error) = round.verdict() {
            return Err(error);
        }
        let over = request
            .wait
            .left(whole.started)
            .is_some_and(|left| left.is_zero());
        if there < core.majority() && (over || without_majority >= ROUNDS_WITHOUT_MAJORITY) {
            return Err(round.error(&core.nodes, core.majority()));
        }
        if request.wait == Wait::No || over {
            return Err(whole.busy());
        }
        if let Some(first) = round.answered().next()
            && round.busy().next().is_some()
            && there >= core.majority()
        {
            let stood = line::stand(attempt, first).await?;
            if let Stood::Won(grant) = stood {
                return Ok(grant);
            }
            undo(attempt, |_| true).await;
            if let Stood::Over = stood {
                return Err(whole.busy());
            }
        }
        back_off(asked.elapsed()).await;
    }
}

/// Releases what was granted on some servers, waiting for none of them for longer than it may take to answer.
pub(crate) async fn undo(attempt: &Attempt<'_>, which: impl Fn(usize) -> bool) {
    let holds = attempt.holds - 1;
    note_unanswered(attempt.existing.as_deref(), attempt.trail);
    let limit = attempt.request.core.nodes[0].config().response_timeout;
    let undoing = attempt.trail.undo_where(attempt.request, holds, which);
    let _ = tokio::time::timeout(limit, undoing).await;
}

/// A random pause of one to two rounds, so that two who met do not meet again.
async fn back_off(round: Duration) {
    let round = round.clamp(Duration::from_millis(2), Duration::from_millis(200));
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    tokio::time::sleep(round + round.mul_f64(f64::from(random) / f64::from(u32::MAX))).await;
}

/// The servers that have granted a request: with what token, and when they were asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants(pub(crate) BTreeMap<usize, (Token, BootInstant)>);

impl Grants {
    pub(crate) fn of(round: &Round) -> Grants {
        let mut grants = Grants::default();
        grants.add(round);
        grants
    }

    pub(crate) fn add(&mut self, round: &Round) {
        let granted = round.granted();
        self.0
            .extend(granted.map(|(node, token, sent)| (node, (token, sent))));
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
        let sent = counted().map(|(_, sent)| *sent).min()?;
        // The lease may have run out while the others were asked: then nothing was won.
        if BootInstant::now() >= attempt.request.terms.lease.believed_until(sent) {
            return None;
        }
        let nodes = 0..core.nodes.len();
        Some(Grant {
            owner: attempt.owner.clone(),
            token,
            nodes: nodes
                .clone()
                .map(|node| self.0.get(&node).map(|(token, _)| *token))
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
            .retain(|node, (token, _)| attempt.counts(*node, *token));
        self.0.len() >= attempt.request.core.majority()
    }

    /// The token of the quorum: no smaller than what any server of some majority has granted, and met by a majority
    /// before the lock counts as taken. So a later majority contains a server that exceeds it.
    ///
    /// One round trip if a majority has granted the same token, which is what proposing one is for; else the token is
    /// written back.
    async fn fence(&mut self, attempt: &Attempt<'_>) -> Option<Token> {
        let core = &attempt.request.core;
        let token = majority_token(self.0.values().map(|(token, _)| *token), core.majority())?;
        // Kept, and released with the rest, but not relied on.
        self.0
            .retain(|_, (it, _)| it.get() <= token.get().saturating_add(AHEAD));
        let met = |grants: &Grants| grants.0.values().filter(|(it, _)| *it >= token).count();
        if met(self) >= core.majority() {
            return Some(token);
        }
        let cmd = wire::fence(attempt.who(), token);
        let mut answers: FuturesUnordered<_> = self
            .0
            .iter()
            .filter(|(_, (it, _))| *it < token)
            .map(|(node, _)| {
                let (node, cmd) = (*node, &cmd);
                async move { (node, core.nodes[node].ask(cmd).await) }
            })
            .collect();
        while let Some((node, answer)) = answers.next().await {
            let raised = answer.and_then(|value| wire::token(Ok(value), core.nodes[node].name()));
            if let (Ok(Some(raised)), Some((it, _))) = (raised, self.0.get_mut(&node)) {
                *it = raised;
            }
            if met(self) >= core.majority() {
                break;
            }
        }
        drop(answers);
        if met(self) < core.majority() {
            return None;
        }
        // Whether the others have been raised is not known, so they are not named by a token either.
        self.0.retain(|_, (it, _)| *it >= token);
        Some(token)
    }
}

/// The smallest token that is no smaller than those of some majority.
fn majority_token(tokens: impl Iterator<Item = Token>, majority: usize) -> Option<Token> {
    let mut tokens: Vec<Token> = tokens.collect();
    tokens.sort_unstable();
    tokens.get(majority - 1).copied()
}

impl Attempt<'_> {
    /// Whether a grant counts towards the majority. To enter a lock again, only one by the token that the server is known
    /// to hold it by: another would be a new hold.
    pub(crate) fn counts(&self, node: usize, token: Token) -> bool {
        self.reentry_token().is_none() || self.known.get(node) == Some(&Some(token))
    }

    /// The same attempt under another name, unless it is to join a hold that has one.
    fn next_round(&self) -> Attempt<'_> {
        let owner = match &self.existing {
            Some(hold) => hold.owner.clone(),
            None => unique(&self.request.owner),
        };
        Attempt {
            owner,
            existing: self.existing.clone(),
            ..*self
        }
    }
}

/// A name that begins with the owner's and is nobody else's, within the 255 bytes of a name.
fn unique(owner: &[u8]) -> std::sync::Arc<[u8]> {
    let round = Owner::new();
    let kept = &owner[..owner.len().min(255 - 1 - round.name().len())];
    [kept, b"#", round.name()].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_round_has_a_name_of_its_own_within_bounds() {
        let long = [b'x'; 255];
        assert_eq!(unique(&long).len(), 255);
        assert_ne!(unique(b"a"), unique(b"a"));
        assert!(unique(b"a").starts_with(b"a#"));
    }
}
