//! Renewals by hand.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::proto::command::Command;
use crate::proto::reply::{Answer, Failure};
use crate::run::hold::Hold;
use crate::run::upkeep::renewed;
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss, NodeFailure, NodeReason};
use crate::value::lease::Lease;
use crate::value::token::Token;

/// Renews a hold now, by its own lease or another.
pub(crate) async fn renew(hold: &Arc<Hold>, lease: Option<Lease>) -> Result<(), Error> {
    let now = BootInstant::now();
    let (lease, asked) = hold.with(|state| match state.belief.loss(now) {
        Some(loss) => Err(Error::Lost(loss)),
        None => {
            let lease = state.belief.ask_lease(lease, now);
            let lease = lease.ok_or(Error::Lost(Loss::HoldLimit))?;
            Ok((lease, state.belief.renewals().collect::<Vec<_>>()))
        }
    })?;
    let mut asking: FuturesUnordered<_> = asked
        .into_iter()
        .map(|(server, token)| async move {
            let (sent, answer) = renew_at(hold, server, lease, token).await;
            (
                server,
                sent,
                renewed(answer, &hold.core.servers[server].name),
            )
        })
        .collect();
    let (mut failed, mut confirmed) = (Vec::new(), 0);
    while let Some((server, sent, answer)) = asking.next().await {
        match answer {
            Ok(token) => {
                confirmed += usize::from(token.is_some());
                hold.with(|state| state.belief.on_renewed(server, (lease, sent), token));
            }
            Err(error) => failed.push((server, error)),
        }
        match hold.loss() {
            Some(Loss::Denied) => return Err(Error::NotHeld),
            Some(loss) => return Err(Error::Lost(loss)),
            None if confirmed >= hold.core.majority() => return Ok(()),
            None => {}
        }
    }
    if failed
        .iter()
        .all(|(_, error)| matches!(error, Error::Refused { .. }))
    {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(joint_error(hold, confirmed, failed))
}

/// Sends a renewal; once more where its connection broke.
async fn renew_at(
    hold: &Hold,
    server: usize,
    lease: Lease,
    token: Option<Token>,
) -> (BootInstant, Answer) {
    let who = hold.who();
    let command = Command::Renew { who, lease, token };
    let mut sent = BootInstant::now();
    let mut answer = hold.core.servers[server].call(&command).await;
    if matches!(&answer, Err(Failure::Unknown(error)) if !error.is_timeout()) {
        sent = BootInstant::now();
        answer = hold.core.servers[server].call(&command).await;
    }
    (sent, answer)
}

/// What to tell of servers that have failed.
pub(crate) fn joint_error(hold: &Hold, granted: usize, mut failed: Vec<(usize, Error)>) -> Error {
    if !hold.core.is_quorum() {
        return failed.pop().map_or(Error::NotHeld, |(_, error)| error);
    }
    let failure = |(server, error): (usize, Error)| NodeFailure {
        server: hold.core.servers[server].name.clone(),
        reason: match error {
            Error::Busy { .. } => NodeReason::Busy,
            error => NodeReason::of(error),
        },
    };
    Error::NoQuorum {
        needed: hold.core.majority(),
        granted,
        nodes: failed.into_iter().map(failure).collect(),
    }
}
