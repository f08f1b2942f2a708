//! Redlock: a lock over several servers. All are asked at once, a majority decides, and a round that fails is left everywhere.
//! Where others hold the lock clients queue in the order of the servers, and never on one that comes before one they have.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::proto::acquire::{Patience, Terms};
use crate::proto::hold::Share;
use crate::proto::reply::Reply;
use crate::proto::round::{Outcome, Vote};
use crate::run::ballot::{Asked, Ballot, Won};
use crate::run::core::Core;
use crate::run::hold::Hold;
use crate::value::clock::BootInstant;
use crate::value::error::Error;
use crate::value::lease::Lease;
use crate::value::name::Names;
use crate::value::token::Token;

/// How many rounds in a row may find no majority that answers before that is the answer.
const ROUNDS_WITHOUT_MAJORITY: u32 = 3;
const UNREACHED_PAUSE: Duration = Duration::from_millis(150);
/// How many times the time one server may take fits into the lease.
const SHARE: u32 = 4;

pub(crate) async fn acquire(
    core: &Arc<Core>,
    key: &Arc<[u8]>,
    names: &Names,
    terms: Terms,
) -> Result<Won, Error> {
    check_lease(core, terms.lease)?;
    let started = BootInstant::now();
    let end = terms.patience.end(started);
    let is_over = || end.is_some_and(|end| end <= BootInstant::now());
    let busy = || Error::Busy {
        waited: started.elapsed(),
    };
    let mut without_majority = 0;
    loop {
        core.check_open()?;
        let asked = BootInstant::now();
        let mut ballot = Ballot::new(core, key, names.next(), terms);
        let outcome = ballot.ask(0..core.servers.len()).await;
        if let Outcome::Won(token) = outcome {
            return Ok(ballot.won(token));
        }
        let answered = ballot.round.answered().count();
        let first = ballot.first_in_line();
        let error = ballot.error();
        drop(ballot);
        if answered < core.majority() {
            without_majority += 1;
            let enough = without_majority >= ROUNDS_WITHOUT_MAJORITY;
            if enough || is_over() || terms.patience == Patience::None {
                return Err(error);
            }
        } else {
            without_majority = 0;
            if terms.patience == Patience::None || is_over() {
                return Err(busy());
            }
            if let Some(first) = first {
                let remaining = Terms {
                    patience: end.map_or(Patience::Forever, |it| Patience::Limit(it.remaining())),
                    ..terms
                };
                match queue(core, key, names, remaining, first).await {
                    Queued::Won(won) => return Ok(won),
                    Queued::Over => return Err(busy()),
                    Queued::Again => {}
                }
            }
        }
        let pause = back_off(asked.elapsed());
        core.pause(match without_majority {
            0 => pause,
            // Servers that have been lost are connected to again by then, if they are there.
            _ => pause.max(UNREACHED_PAUSE),
        })
        .await;
    }
}

fn check_lease(core: &Core, lease: Lease) -> Result<(), Error> {
    let (limit, lease) = (core.limits.answer, lease.duration());
    match limit.saturating_mul(SHARE) > lease {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        ))),
    }
}

/// A random pause of one to two rounds, so that two who met do not meet again.
fn back_off(round: Duration) -> Duration {
    let round = round.clamp(Duration::from_millis(2), Duration::from_millis(200));
    let random = uuid::Uuid::new_v4().as_u128() as u32;
    round + round.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

enum Queued {
    Won(Won),
    /// The limit is.
    Over,
    /// A server that was waited on has failed, or what was held is lost.
    Again,
}

/// Queues on a server, and from there on those that others hold, until a majority is won.
async fn queue(
    core: &Arc<Core>,
    key: &Arc<[u8]>,
    names: &Names,
    terms: Terms,
    first: usize,
) -> Queued {
    let end = terms.patience.end(BootInstant::now());
    let mut ballot = Ballot::new(core, key, names.next(), terms);
    let mut at = first;
    loop {
        let left = end.map_or(Patience::Forever, |it| Patience::Limit(it.remaining()));
        match ballot.wait_on(at, left).await {
            Some(grant) => ballot.round.on_granted(at, grant.token, grant.since),
            None => {
                let is_over = end.is_some_and(|end| end <= BootInstant::now());
                return match is_over || matches!(ballot.round.votes[at], Vote::Busy) {
                    true => Queued::Over,
                    false => Queued::Again,
                };
            }
        }
        let others = ballot.not_granted();
        match ballot.ask(others.into_iter()).await {
            Outcome::Won(token) => return Queued::Won(ballot.won(token)),
            _ if ballot.round.answered().count() < core.majority() => return Queued::Again,
            _ => {}
        }
        let later = at + 1..core.servers.len();
        let busy = |server: &usize| matches!(ballot.round.votes[*server], Vote::Busy);
        match later.into_iter().find(busy) {
            Some(next) if ballot.holds(at) && ballot.give_up_behind(next).await => at = next,
            _ => return Queued::Again,
        }
    }
}

/// Adds to a hold what servers answer late.
pub(crate) fn learn(hold: &Arc<Hold>, late: FuturesUnordered<Asked>) {
    if !late.is_empty() {
        hold.core.runtime.spawn(learn_all(hold.clone(), late));
    }
}

async fn learn_all(hold: Arc<Hold>, mut late: FuturesUnordered<Asked>) {
    while let Some((server, sent, answer)) = late.next().await {
        hold.with(|state| {
            if state.belief.shares.all()[server] != Share::Unknown {
                return;
            }
            match answer {
                Ok(Reply::Int(token)) if token > 0 => {
                    let token = Token::new(token.unsigned_abs());
                    state.belief.on_granted(server, token, sent);
                }
                Ok(Reply::Nil) => state.belief.forget(server, Share::None),
                _ => {}
            }
        });
    }
}
