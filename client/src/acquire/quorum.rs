//! Redlock: a lock over independent servers is held by whoever holds it on a majority, within the validity.
//!
//! The algorithm is that of "Distributed Locks with Redis" in the Redis documentation, with two additions: fencing tokens
//! that grow from one quorum to the next ([`Grants::fence`]), and queues instead of polling (`line`).

use std::time::Duration;

use crate::acquire::grants::{Grants, Vote};
use crate::acquire::line::{self, Stood};
use crate::acquire::round::{self, Round};
use crate::acquire::{Attempt, Wait, count_before, note_unanswered};
use crate::clock::BootInstant;
use crate::error::{Error, Loss};
use crate::hold::Grant;
use crate::owner::Owner;
use crate::token::Token;

/// How many rounds in a row may find no majority that answers before that is the answer.
const ROUNDS_WITHOUT_MAJORITY: u32 = 3;
/// How many times the time one server may take fits into the lease.
const SHARE: u32 = 4;
pub(crate) async fn take(whole: &Attempt<'_>) -> Result<Grant, Error> {
    let (request, core) = (whole.request, &whole.request.core);
    let limit = core.nodes[0].config().response_timeout;
    let lease = request.terms.asked_lease().duration();
    if limit.saturating_mul(SHARE) > lease {
        return Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        )));
    }
    let mut without_majority = 0;
    loop {
        let attempt = &whole.next_round();
        let asked = BootInstant::now();
        let fence = core.proposal.propose(asked);
        let nobody = Grants::default();
        let round = round::ask(attempt, 0..core.nodes.len(), &nobody, fence).await;
        if let Some(grant) = Grants::of(&round).settle(attempt, fence, asked).await {
            return Ok(grant);
        }
        let found = attempt.find_hold(&round);
        undo(attempt, |_| true).await;
        found?;
        if let Some(error) = round.verdict() {
            return Err(error);
        }
        let refused = attempt.trail.take_refused();
        // A new hold instead of more of one makes no majority.
        let there = round.useful(attempt).count() + round.busy().count();
        if there >= core.majority() && refused.is_none() {
            without_majority = 0;
        } else {
            without_majority += 1;
        }
        let over = whole.is_over();
        let enough = over || without_majority >= ROUNDS_WITHOUT_MAJORITY;
        if let Some(error) = refused
            && enough
        {
            return Err(error);
        }
        if there < core.majority() && enough {
            return Err(round.error(attempt));
        }
        if request.wait == Wait::No || over {
            return Err(whole.busy());
        }
        if let Some(first) = round.answered().next()
            && round.busy().next().is_some()
            && there >= core.majority()
        {
            let stood = line::stand(attempt, first).await?;
            attempt.trail.take_refused();
            if let Stood::Won(grant) = stood {
                return Ok(grant);
            }
            undo(attempt, |_| true).await;
            if let Stood::Over = stood {
                if whole.existing.is_none() || whole.is_over() {
                    return Err(whole.busy());
                }
                // That server may have lost the hold, and the others not.
                whole.check_hold().await?;
            }
        }
        back_off(asked.elapsed()).await;
    }
}

/// Releases what was granted on some servers, waiting for none of them for longer than it may take to answer.
pub(crate) async fn undo(attempt: &Attempt<'_>, which: impl Fn(usize) -> bool) {
    let holds = count_before(attempt.existing.as_deref(), attempt.request.terms.mode);
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

impl Attempt<'_> {
    /// Whether a grant counts towards the majority. To enter a lock again, only one by the token that the server is known
    /// to hold it by: another would be a new hold.
    pub(crate) fn counts(&self, node: usize, token: Token) -> bool {
        self.reentry_token().is_none() || self.known.get(node) == Some(&Some(token))
    }

    /// Whether a server has made a new hold of what was to enter one again: it knew that by another token.
    fn is_anew(&self, node: usize, token: Token) -> bool {
        let known = self.known.get(node).copied().flatten();
        self.reentry_token().is_some() && known.is_some_and(|known| known != token)
    }

    /// Takes note of a server's grant, to be undone.
    pub(crate) fn note_granted(&self, node: usize, token: Token) {
        self.trail.answered(node);
        if self.is_anew(node, token) {
            self.trail.made_anew(node);
        }
    }

    /// Whether the hold that was to be entered again may still be there: not if so many servers have made a new one that
    /// it has no majority left.
    fn find_hold(&self, round: &Round) -> Result<(), Error> {
        let core = &self.request.core;
        let anew = |(node, vote): &(usize, Vote)| self.is_anew(*node, vote.token);
        if round.granted().filter(anew).count() <= core.nodes.len() - core.majority() {
            return Ok(());
        }
        if let Some(outer) = &self.existing {
            outer.lose(Loss::Denied);
        }
        Err(Error::NotHeld)
    }

    /// The same attempt under another name, unless it is to join a hold that has one.
    fn next_round(&self) -> Attempt<'_> {
        let owner = match &self.existing {
            Some(hold) => hold.owner.clone(),
            None => {
                self.trail.forget_late();
                unique(&self.request.owner)
            }
        };
        Attempt {
            owner,
            existing: self.existing.clone(),
            // That had another name.
            lost: None,
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
    fn a_round_has_a_name_of_its_own_within_bounds() {
        let long = [b'x'; 255];
        assert_eq!(unique(&long).len(), 255);
        assert_ne!(unique(b"a"), unique(b"a"));
        assert!(unique(b"a").starts_with(b"a#"));
    }
}
