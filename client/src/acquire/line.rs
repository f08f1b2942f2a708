//! Queueing over a quorum. Everybody queues in the same order of servers: on the first one that is there, and then on each
//! later one that denies. Who waits holds only earlier ones, so nobody waits in a circle, and nobody polls.

use std::sync::Mutex;

use futures_util::future::{Either, join_all, select};

use crate::acquire::Attempt;
use crate::acquire::grants::{Grants, Vote};
use crate::acquire::one::{queue, watched};
use crate::acquire::quorum::undo;
use crate::acquire::round;
use crate::clock::{BootInstant, sleep_until};
use crate::error::Error;
use crate::hold::Grant;
use crate::sync::lock;
use crate::wire;

/// What queueing came to.
pub(crate) enum Stood {
    Won(Grant),
    /// Something failed on the way; from the beginning.
    Again,
    /// The wait is over.
    Over,
}

/// What waiting on one server came to.
enum Waited {
    Granted(Vote),
    /// It has fallen silent, or cannot be waited on.
    Gone,
    Over,
}

pub(crate) async fn stand(attempt: &Attempt<'_>, first: usize) -> Result<Stood, Error> {
    let core = &attempt.request.core;
    let held = &Mutex::new(Grants::default());
    let mut at = first;
    while at < core.nodes.len() {
        match wait_and_keep(attempt, at, held).await? {
            Waited::Granted(vote) => {
                attempt.note_granted(at, vote.token);
                lock(held).0.insert(at, vote);
            }
            Waited::Gone => {
                at += 1;
                continue;
            }
            Waited::Over => return Ok(Stood::Over),
        }
        renew_old(attempt, held).await;
        let mut grants = lock(held).clone();
        let asked = BootInstant::now();
        let fence = grants.proposal(core.proposal.propose(asked));
        let others = (0..core.nodes.len()).filter(|node| !grants.0.contains_key(node));
        let round = round::ask(attempt, others, &grants, fence).await;
        grants.add(&round);
        if let Some(grant) = grants.clone().settle(attempt, fence, asked).await {
            return Ok(Stood::Won(grant));
        }
        let Some(next) = round.busy().find(|node| *node > at) else {
            return Ok(Stood::Again);
        };
        undo(attempt, |node| node > next).await;
        grants.0.retain(|node, _| *node < next);
        *lock(held) = grants;
        at = next;
    }
    Ok(Stood::Again)
}

/// Waits on one server, and renews meanwhile what is held on the others.
async fn wait_and_keep(
    attempt: &Attempt<'_>,
    at: usize,
    held: &Mutex<Grants>,
) -> Result<Waited, Error> {
    let period = attempt.lease().renewal_period();
    let keep = async {
        loop {
            sleep_until(BootInstant::now() + period).await;
            renew(attempt, held, |_| true).await;
        }
    };
    let wait = std::pin::pin!(wait(attempt, at));
    match select(wait, std::pin::pin!(keep)).await {
        Either::Left((waited, _)) => waited,
        Either::Right((never, _)) => never,
    }
}

async fn wait(attempt: &Attempt<'_>, at: usize) -> Result<Waited, Error> {
    let (request, node) = (attempt.request, &attempt.request.core.nodes[at]);
    let Some(queue) = queue(attempt) else {
        return Ok(Waited::Over);
    };
    let left = request.wait.left(attempt.started);
    let wait = match node.wait_link(&request.key, false, attempt.closing()).await {
        Ok(wait) => wait,
        Err(error @ Error::TooManyWaits { .. }) => return Err(error),
        Err(_) => return Ok(Waited::Gone),
    };
    let terms = (request.terms.mode, attempt.lease());
    let cmd = wire::acquire(attempt.who(), terms, attempt.holds, queue, None);
    attempt.leave_trace(at, &wait.link, true);
    let sent = BootInstant::now();
    let Ok(reply) = watched((node, &wait, &request.key), wait.link.send(&cmd), left).await else {
        return Ok(Waited::Gone);
    };
    let made = BootInstant::now();
    match wire::token(reply, node.name()) {
        Ok(Some(token)) => {
            // The next one may wait on this connection, and a release must not stand behind him.
            let Ok((shared, _)) = node.link().await else {
                return Ok(Waited::Gone);
            };
            attempt.trail.clear(at);
            attempt.leave_trace(at, &shared, false);
            attempt.trail.answered(at);
            wait.keep();
            Ok(Waited::Granted(Vote { token, sent, made }))
        }
        Ok(None) => {
            attempt.trail.clear(at);
            wait.keep();
            Ok(Waited::Over)
        }
        Err(error @ Error::Deadlock(_)) => {
            attempt.trail.clear(at);
            Err(error)
        }
        Err(_) => Ok(Waited::Gone),
    }
}

/// Renews what was granted so long ago that much of its lease is used up.
async fn renew_old(attempt: &Attempt<'_>, held: &Mutex<Grants>) {
    let old = attempt.lease().confirm_after();
    renew(attempt, held, |vote| vote.sent.elapsed() > old).await;
}

/// Renews some of what is held; what is denied is held no more.
async fn renew(attempt: &Attempt<'_>, held: &Mutex<Grants>, which: impl Fn(&Vote) -> bool) {
    let core = &attempt.request.core;
    let grants = lock(held).clone();
    let chosen = grants.0.into_iter().filter(|(_, vote)| which(vote));
    join_all(chosen.map(|(index, vote)| async move {
        let node = &core.nodes[index];
        let cmd = wire::renew(attempt.who(), attempt.lease(), Some(vote.token));
        let sent = BootInstant::now();
        let answer = node.ask(&cmd).await;
        match answer.and_then(|value| wire::token(Ok(value), node.name())) {
            Ok(Some(token)) => {
                let renewed = Vote {
                    token,
                    sent,
                    ..vote
                };
                lock(held).0.insert(index, renewed);
            }
            Ok(None) => {
                lock(held).0.remove(&index);
            }
            Err(_) => {}
        }
    }))
    .await;
}
