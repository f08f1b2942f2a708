//! One round of Redlock: all servers asked at the same time, each given little time, and nobody waited for once a
//! majority has answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::acquire::Attempt;
use crate::acquire::grants::{Grants, Vote};
use crate::clock::BootInstant;
use crate::core::Core;
use crate::error::{Error, NodeFailure, NodeReason};
use crate::node::{NOT_SHARED, Node};
use crate::token::Token;
use crate::wire::{self, Queue};

/// What one server said.
#[derive(Debug, Clone)]
pub(crate) enum Said {
    /// It has granted the request that was sent at this moment.
    Granted(Vote),
    /// Others hold the lock there.
    Busy,
    /// It has granted it by a token too far ahead of the others': kept, and released with the rest, but not relied on.
    Ahead,
    /// Nothing in time: it may grant it yet.
    Silent,
    Failed(Error),
}

/// What the servers said; those that are missing have not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) said: BTreeMap<usize, Said>,
}

/// Asks `nodes`, of which a majority, together with the `held` ones, is needed. One whose token is far ahead of the others'
/// does not count.
pub(crate) async fn ask(
    attempt: &Attempt<'_>,
    nodes: impl Iterator<Item = usize>,
    held: &Grants,
    fence: Option<Token>,
) -> Round {
    let core = &attempt.request.core;
    let started = BootInstant::now();
    let mut round = Round::default();
    let asked: Vec<usize> = nodes.collect();
    let mut answers: FuturesUnordered<_> = asked
        .iter()
        .map(|node| async move { (*node, ask_one(attempt, *node, fence).await) })
        .collect();
    // The requests are sent before anything is decided: what is held may be a majority already.
    let mut answer = answers.next().now_or_never();
    let mut refused = 0;
    while round.count(attempt, held) < core.majority() {
        let answered = match answer.take() {
            Some(answer) => answer,
            None => answers.next().await,
        };
        let Some((node, said)) = answered else { break };
        refused += usize::from(!matches!(said, Said::Granted(..)));
        round.said.insert(node, said);
        if refused > core.nodes.len() - core.majority() {
            break;
        }
        // Undecided, as where two have a server each. One that has kept silent before will not decide it now.
        let answered = held.0.len() + round.answered().count();
        if answered >= core.majority() && !round.waits_for_any(core, &asked) {
            break;
        }
    }
    if round.count(attempt, held) < core.majority() {
        // Who queues now should know which servers are there: as long again, and no longer, for the others.
        let grace = started.elapsed() + Duration::from_millis(2);
        let rest = async {
            while round.waits_for_any(core, &asked)
                && let Some((node, said)) = answers.next().await
            {
                round.said.insert(node, said);
            }
        };
        let _ = tokio::time::timeout(grace, rest).await;
    }
    round.mark_ahead(attempt, held);
    round
}

async fn ask_one(attempt: &Attempt<'_>, index: usize, fence: Option<Token>) -> Said {
    if attempt.existing.is_none() && attempt.trail.may_be_late(index, &attempt.owner) {
        return Said::Silent;
    }
    let said = ask_in_time(attempt, index, fence).await;
    if matches!(said, Said::Silent) {
        attempt.request.core.nodes[index].note_silent(true);
    }
    said
}

async fn ask_in_time(attempt: &Attempt<'_>, index: usize, fence: Option<Token>) -> Said {
    let (request, node) = (attempt.request, &attempt.request.core.nodes[index]);
    let terms = (request.terms.mode, attempt.lease());
    let cmd = wire::acquire(attempt.who(), terms, attempt.holds, Queue::No, fence);
    // Behind an earlier request for the same hold that has not been answered: it, or its release, may still come.
    let mut behind = attempt.unsettled(index);
    let mut again = true;
    loop {
        let link = match behind.take() {
            Some(link) => Ok((link, NOT_SHARED)),
            None => node.link().await,
        };
        let (link, number) = match link {
            Ok(link) => link,
            Err(error) if error.is_timeout() => return Said::Silent,
            Err(error) => return Said::Failed(node.failure(error)),
        };
        attempt.leave_trace(index, &link, false);
        let sent = BootInstant::now();
        let reply = node.ask_on(&link, number, &cmd).await;
        match reply.and_then(|value| wire::token(Ok(value), node.name())) {
            Ok(Some(token)) => {
                attempt.note_granted(index, token);
                return Said::Granted(Vote {
                    token,
                    sent,
                    made: sent,
                });
            }
            Ok(None) => {
                attempt.trail.clear(index);
                return Said::Busy;
            }
            Err(Error::Connection { error, .. }) if error.is_timeout() => return Said::Silent,
            // A connection that had died while nobody used it, and what was on it with it.
            Err(Error::Connection { .. }) if again => again = false,
            Err(error) => {
                attempt.trail.clear_if_answered(index, &error);
                return Said::Failed(error);
            }
        }
    }
}

impl Round {
    /// Whether one of those that were asked may still answer soon.
    fn waits_for_any(&self, core: &Core, asked: &[usize]) -> bool {
        let waits_for =
            |node: &usize| !self.said.contains_key(node) && !core.nodes[*node].is_silent();
        asked.iter().any(waits_for)
    }

    pub(crate) fn granted(&self) -> impl Iterator<Item = (usize, Vote)> {
        self.said.iter().filter_map(|(node, said)| match said {
            Said::Granted(vote) => Some((*node, *vote)),
            _ => None,
        })
    }

    /// The servers that have granted what was asked for, not a new hold instead of more of one.
    pub(crate) fn useful(&self, attempt: &Attempt<'_>) -> impl Iterator<Item = usize> {
        let counts = |(node, vote): &(usize, Vote)| attempt.counts(*node, vote.token);
        self.granted().filter(counts).map(|(node, _)| node)
    }

    /// How many servers count towards the majority, the `held` ones with them.
    fn count(&self, attempt: &Attempt<'_>, held: &Grants) -> usize {
        held.0.len() + self.useful(attempt).count() - self.ahead(attempt, held).len()
    }

    fn ahead(&self, attempt: &Attempt<'_>, held: &Grants) -> Vec<usize> {
        // To enter a lock again, a server answers with a token that is known.
        if attempt.reentry_token().is_some() {
            return Vec::new();
        }
        let mut all = held.clone();
        all.add(self);
        all.ahead(attempt.old_vote())
    }

    fn mark_ahead(&mut self, attempt: &Attempt<'_>, held: &Grants) {
        for node in self.ahead(attempt, held) {
            if let Some(said) = self.said.get_mut(&node) {
                *said = Said::Ahead;
            }
        }
    }

    /// The servers that answered, be it that they are busy.
    pub(crate) fn answered(&self) -> impl Iterator<Item = usize> {
        self.said.iter().filter_map(|(node, said)| {
            matches!(said, Said::Granted(..) | Said::Busy).then_some(*node)
        })
    }

    pub(crate) fn busy(&self) -> impl Iterator<Item = usize> {
        self.said
            .iter()
            .filter_map(|(node, said)| matches!(said, Said::Busy).then_some(*node))
    }

    /// An error that another round would only meet again.
    pub(crate) fn verdict(&self) -> Option<Error> {
        self.said.values().find_map(|said| match said {
            Said::Failed(error @ Error::Deadlock(_)) => Some(error.clone()),
            _ => None,
        })
    }

    /// The round as an error, with each server's reason.
    pub(crate) fn error(&self, attempt: &Attempt<'_>) -> Error {
        let core = &attempt.request.core;
        let failure = |(index, node): (usize, &Arc<Node>)| {
            let reason = match self.said.get(&index) {
                Some(Said::Granted(vote)) if attempt.counts(index, vote.token) => return None,
                Some(Said::Granted(_)) => NodeReason::Failed(Box::new(Error::NotHeld)),
                Some(Said::Busy) => NodeReason::Busy,
                Some(Said::Ahead) => NodeReason::Ahead,
                Some(Said::Failed(error)) => NodeReason::Failed(Box::new(error.clone())),
                Some(Said::Silent) | None => NodeReason::Silent,
            };
            Some(NodeFailure {
                server: node.name().to_owned(),
                reason,
            })
        };
        Error::NoQuorum {
            needed: core.majority(),
            granted: self.useful(attempt).count(),
            nodes: core.nodes.iter().enumerate().filter_map(failure).collect(),
        }
    }
}
