//! Changes of a hold: upgrades, downgrades, renewals by hand and its release. They only ever change a hold that is there; one
//! whose outcome is not known ends it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};

use crate::net::task;
use crate::proto::{Acquisition, Round, Terms, Verb, Vote};
use crate::run::{Ballot, Call, Hold};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Loss, Mode, Released};

/// Makes a hold that reads one that writes, unless it does.
pub(crate) async fn upgrade(hold: &Arc<Hold>, wait: Option<Duration>) -> Result<(), ChangeFailed> {
    let now = BootInstant::now();
    let ask = hold.with(|state| (state.belief.ask_lease(None, now), state.writes));
    let terms = match ask {
        (lease, false) => Terms {
            mode: Mode::Write,
            lease: lease?,
            wait,
            fails_over: false,
        },
        (lease, true) => return Ok(lease.map(drop)?),
    };
    let mut acquisition = Acquisition::new(terms, hold.core.servers.len(), now);
    let mut ballot = Ballot::on_more(hold, terms);
    // A hold that is lost is left, and its requests with it: then no letter comes.
    let won = {
        let asking = pin!(ballot.ask_for_more(&mut acquisition));
        match select(hold.clone().lost(), asking).await {
            Either::Left(_) => None,
            Either::Right((won, _)) => won,
        }
    };
    let round = ballot.round.clone();
    for (server, vote) in round.iter().enumerate() {
        match vote {
            Vote::Held(_) | Vote::Ahead(_) => {
                hold.with(|state| state.belief.set(server, vote.clone(), Loss::Denied));
            }
            Vote::Unknown(_) | Vote::Pending => leave_at(hold, server, Loss::Unknown),
            // It reads there, and no reader bears a writer out.
            Vote::Busy | Vote::Failed(_) if won.is_some() => leave_at(hold, server, Loss::Unknown),
            Vote::Busy | Vote::Failed(_) | Vote::Unasked => {}
        }
    }
    if won.is_none() {
        let granted = round.those(|vote| matches!(vote, Vote::Held(_) | Vote::Ahead(_)));
        let left = read_at_all(hold, granted.collect()).await;
        for server in left.those(|vote| matches!(vote, Vote::Failed(_))) {
            leave_at(hold, server, Loss::Unknown);
        }
    }
    ballot.is_settled = true;
    drop(ballot);
    if let Some(token) = won {
        hold.with(|state| (state.writes, state.belief.token) = (true, token));
        return Ok(hold.check()?);
    }
    let mut error = hold.core.error_of(&round, round.held().count());
    if round.iter().any(|vote| matches!(vote, Vote::Busy)) {
        error = acquisition.busy(BootInstant::now());
        // An answer of null may mean that nothing is held: the servers are asked.
        let _ = renew(hold, None).await;
    }
    let left = hold.loss().is_none().then_some(Mode::Read);
    let error = hold.failed(error);
    Err(ChangeFailed { error, left })
}

/// The servers that may have it.
fn servers(hold: &Arc<Hold>) -> Vec<usize> {
    hold.with(|state| state.belief.round.there().map(|it| it.0).collect())
}

/// What a server has of a hold is not known, or nothing: it is left there, and the whole hold is lost for that reason where
/// that leaves too little.
fn leave_at(hold: &Arc<Hold>, server: usize, reason: Loss) {
    let lease = hold.with(|state| {
        state.belief.set(server, Vote::Unasked, reason);
        state.belief.longest.duration()
    });
    let late = reason == Loss::Unknown;
    let there = (&hold.name, [(server, late)].into_iter());
    drop(hold.core.leave(there, lease, Verb::Leave { late }));
}

/// Has servers make a writer a reader. Where it is not known to be one then it is left, but where that was refused.
async fn read_at_all(hold: &Arc<Hold>, servers: Vec<usize>) -> Round {
    let votes = join_all(servers.iter().map(|server| read_at(hold, *server))).await;
    let mut round = Round::new(hold.core.servers.len());
    for (server, vote) in servers.into_iter().zip(votes) {
        match vote {
            // It may have the hold by another token, or in another mode.
            Vote::Busy => leave_at(hold, server, Loss::Denied),
            Vote::Unknown(_) => leave_at(hold, server, Loss::Unknown),
            _ => {}
        }
        round[server] = vote;
    }
    round
}

async fn read_at(hold: &Arc<Hold>, server: usize) -> Vote {
    let now = BootInstant::now();
    let asked = hold.with(|state| {
        let lease = state.belief.ask_lease(None, now).ok()?;
        Some((lease, state.belief.round[server].held()?.token))
    });
    let Some((lease, token)) = asked else {
        // What it has is not known.
        return Vote::Unknown(Error::NotHeld);
    };
    let read = Verb::Acquire {
        mode: Mode::Read,
        lease,
        fence: None,
        upgrade: Some(token),
    };
    let mut vote = Vote::Unasked;
    for verb in [read, Verb::Release(Some((Mode::Write, token)))] {
        let mut call = Call::new(&hold.core.servers[server], &hold.name, verb);
        let answer = (&mut call).await;
        vote = call.vote(answer);
        if vote.held().is_none() {
            break;
        }
    }
    vote
}

/// Makes a hold that writes, and whose guards read, one that reads; to its end, whether or not that is waited for.
pub(crate) fn downgrade(
    hold: &Arc<Hold>,
) -> impl Future<Output = Result<(), Error>> + Send + use<> {
    let is_due = hold.with(|state| state.is_to_read());
    let task = is_due.then(|| task::spawn(&hold.core.runtime, downgrade_in_turn(hold.clone())));
    async move {
        match task {
            Some(task) => task.await.unwrap_or(Err(Error::Closed)),
            None => Ok(()),
        }
    }
}

async fn downgrade_in_turn(hold: Arc<Hold>) -> Result<(), Error> {
    let _turn = hold.turn.lock().await;
    let servers = servers(&hold);
    if servers.is_empty() || !hold.with(|state| state.is_to_read()) {
        return Ok(());
    }
    let round = read_at_all(&hold, servers).await;
    let done = round.held().count();
    if done >= round.majority() {
        hold.with(|state| state.writes = false);
        return Ok(());
    }
    // Those that have refused it have it as it was, and no others.
    let still_write = round.those(|vote| matches!(vote, Vote::Failed(_)));
    if still_write.count() < round.majority() {
        hold.lose(Loss::Unknown);
    }
    Err(hold.failed(hold.core.error_of(&round, done)))
}

/// Renews a hold now, by its own lease or another.
pub(crate) async fn renew(hold: &Arc<Hold>, lease: Option<Lease>) -> Result<(), Error> {
    let core = &hold.core;
    let round = hold.renew(lease, (false, core.majority())).await?;
    let confirmed = round.held().count();
    if hold.loss().is_some() {
        return Err(hold.failed(Error::Lost(Loss::Unknown)));
    }
    if confirmed >= core.majority() {
        return Ok(());
    }
    // A lease that all have refused is nowhere; what was not sent may have been, the time before.
    let unknown = |vote: &Vote| {
        matches!(
            vote,
            Vote::Unknown(_) | Vote::Failed(Error::Connection { .. })
        )
    };
    if !round.iter().any(unknown) {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(core.error_of(&round, confirmed))
}

/// Gives a hold back, whoever shares it.
pub(crate) async fn release(hold: &Arc<Hold>) -> Result<Released, Error> {
    let Some(mut releasing) = hold.release() else {
        return Ok(Released::Lost);
    };
    let (core, all) = (&hold.core, hold.core.servers.len());
    let (majority, mut failed) = (core.majority(), Vec::new());
    // Where it is not, there is nothing to be released.
    let (mut held, mut lost, mut unknown) = (0, all - releasing.len(), 0);
    while held < majority && lost <= all - majority {
        match releasing.next().await {
            Some((_, Ok(Released::Held))) => held += 1,
            Some((_, Ok(Released::Lost))) => lost += 1,
            Some((_, Ok(Released::Unknown))) => unknown += 1,
            // It is said again in the background.
            Some((server, Err(error))) => failed.push((server, error)),
            None if held + lost + unknown >= majority => return Ok(Released::Unknown),
            None => {
                let mut round = Round::new(all);
                for (server, error) in failed {
                    round[server] = Vote::Unknown(error);
                }
                return Err(core.error_of(&round, held));
            }
        }
    }
    match held >= majority {
        true => Ok(Released::Held),
        false => Ok(Released::Lost),
    }
}
