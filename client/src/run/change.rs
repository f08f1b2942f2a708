//! Changes of a hold: upgrades, downgrades, renewals by hand and its release. They only ever change a hold that is there; one whose outcome is not known
//! ends it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select};

use crate::net::task;
use crate::proto::{Acquisition, Renewal, Round, Terms, Verb, Vote};
use crate::run::{Ballot, Call, Calls, Hold};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Loss, Mode, Released, Token};

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
    let won = ask_to_write(hold, &mut ballot, &mut acquisition).await;
    let round = ballot.round.clone();
    for (server, vote) in round.iter().enumerate() {
        match vote {
            Vote::Held(_) | Vote::Ahead => {
                hold.with(|state| state.belief.set(server, vote.clone(), Loss::Denied));
            }
            Vote::Unknown(_) | Vote::Pending => leave_at(hold, server, Loss::Unknown),
            // It reads there, and no reader bears a writer out.
            Vote::Busy | Vote::Failed(_) if won.is_some() => leave_at(hold, server, Loss::Unknown),
            Vote::Busy | Vote::Failed(_) | Vote::Unasked => {}
        }
    }
    if won.is_none() {
        let granted = round.those(|vote| matches!(vote, Vote::Held(_) | Vote::Ahead));
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

/// Over a quorum all are tried at once, and those that others read are waited for one after the other.
async fn ask_to_write(
    hold: &Arc<Hold>,
    ballot: &mut Ballot<'_>,
    acquisition: &mut Acquisition,
) -> Option<Token> {
    let servers = servers(hold);
    let is_quorum = hold.core.is_quorum();
    if is_quorum {
        ballot.ask(servers.clone()).await;
        while ballot.count_next().await {}
    }
    let mut lost = hold.clone().lost();
    for server in servers {
        let waits = !is_quorum || acquisition.waits();
        let is_open = matches!(ballot.round[server], Vote::Busy | Vote::Unasked);
        if waits && is_open && ballot.agree().await.is_none() {
            // A hold that is lost is left, and its requests with it: then no letter comes.
            let waiting = pin!(ballot.wait_on(server, acquisition));
            select(&mut lost, waiting).await;
        }
    }
    ballot.agree().await
}

/// The servers that may have it.
fn servers(hold: &Arc<Hold>) -> Vec<usize> {
    let there = |vote: &Vote| vote.may_be_there().is_some();
    hold.with(|state| state.belief.round.those(there).collect())
}

/// What a server has of a hold is not known, or nothing: it is left there, and the whole hold is lost for that reason where
/// that leaves too little.
fn leave_at(hold: &Arc<Hold>, server: usize, reason: Loss) {
    let lease = hold.with(|state| {
        state.belief.set(server, Vote::Unasked, reason);
        state.belief.longest.duration()
    });
    let late = reason == Loss::Unknown;
    let verb = Verb::Leave { late };
    drop(hold.core.leave_at(server, &hold.name, lease, verb));
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
        Some((lease, state.belief.token_at(server)?))
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
        let to = &hold.core.servers[server];
        let (sent, answer) = Call::new(to, &hold.name, verb).await;
        vote = Vote::of(answer, sent, lease, &to.name);
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
    let renewals = hold.with(|state| {
        let lease = state.belief.ask_lease(lease, BootInstant::now())?;
        Ok::<_, Error>(state.belief.renewals(lease).collect::<Vec<_>>())
    })?;
    let call = |(number, renewal): (usize, &Renewal)| {
        let verb = Verb::Renew(renewal.lease, renewal.token);
        let call = Call::new(&core.servers[renewal.server], &hold.name, verb);
        (number, call.repeated())
    };
    let mut calls = Calls(renewals.iter().enumerate().map(call).collect());
    let (mut round, mut confirmed) = (Round::new(core.servers.len()), 0);
    while let Some((number, answer)) = calls.next().await {
        let server = renewals[number].server;
        match hold.on_renewed(renewals[number], answer) {
            Ok(is_held) => confirmed += usize::from(is_held),
            Err(error @ Error::Refused { .. }) => round[server] = Vote::Failed(error),
            Err(error) => round[server] = Vote::Unknown(error),
        }
        if hold.loss().is_some() {
            return Err(hold.failed(Error::Lost(Loss::Unknown)));
        }
        if confirmed >= core.majority() {
            return Ok(());
        }
    }
    // A lease that all have refused is nowhere.
    if !round.iter().any(|vote| matches!(vote, Vote::Unknown(_))) {
        hold.with(|state| state.belief.forget_lease());
    }
    Err(core.error_of(&round, confirmed))
}

/// Gives a hold back, whoever shares it.
pub(crate) async fn release(hold: &Arc<Hold>) -> Result<Released, Error> {
    let mut releasing = hold.release();
    let mut round = Round::new(hold.core.servers.len());
    let (all, majority) = (round.len(), round.majority());
    // Where it is not, there is nothing to be released.
    let mut found = vec![Released::Lost; all - releasing.0.len()];
    loop {
        let count = |what| found.iter().filter(|it| **it == what).count();
        if count(Released::Held) >= majority {
            return Ok(Released::Held);
        }
        if count(Released::Lost) > all - majority {
            return Ok(Released::Lost);
        }
        match releasing.next().await {
            Some((_, Ok(released))) => found.push(released),
            // It is said again in the background.
            Some((server, Err(error))) => round[server] = Vote::Unknown(error),
            None if found.len() >= majority => return Ok(Released::Unknown),
            None => return Err(hold.core.error_of(&round, count(Released::Held))),
        }
    }
}
