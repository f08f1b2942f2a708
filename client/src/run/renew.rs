//! Renewals by hand.

use crate::proto::command::Verb;
use crate::proto::round::{Round, Vote};
use crate::run::call::{Call, Calls};
use crate::run::hold::Hold;
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss};
use crate::value::lease::Lease;

/// Renews a hold now, by its own lease or another.
pub(crate) async fn renew(hold: &Hold, lease: Option<Lease>) -> Result<(), Error> {
    let core = &hold.core;
    let now = BootInstant::now();
    let renewals = hold.with(|state| match state.belief.loss(now) {
        Some(loss) => Err(Error::Lost(loss)),
        None => {
            let lease = state.belief.ask_lease(lease, now);
            let lease = lease.ok_or(Error::Lost(Loss::HoldLimit))?;
            Ok(state.belief.renewals(lease).collect::<Vec<_>>())
        }
    })?;
    let mut calls = Calls::default();
    for (number, renewal) in renewals.iter().enumerate() {
        let verb = Verb::Renew(renewal.lease, renewal.token);
        let call = Call::new(&core.servers[renewal.server], &hold.name, verb);
        calls.add(number, call.repeated());
    }
    let (mut round, mut confirmed) = (Round::new(core.servers.len()), 0);
    while let Some((number, answer)) = calls.next().await {
        match hold.on_renewed(renewals[number], answer) {
            Ok(is_held) => confirmed += usize::from(is_held),
            Err(error) => round[renewals[number].server] = Vote::Unknown(error),
        }
        match hold.loss() {
            Some(Loss::Denied) => return Err(Error::NotHeld),
            Some(loss) => return Err(Error::Lost(loss)),
            None if confirmed >= core.majority() => return Ok(()),
            None => {}
        }
    }
    let is_refused = |vote: &Vote| !matches!(vote, Vote::Unknown(error) if !matches!(error, Error::Refused { .. }));
    if round.iter().all(is_refused) {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(core.error_of(&round, confirmed))
}
