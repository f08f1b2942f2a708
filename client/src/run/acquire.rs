//! Acquiring: in the caller's future. What has to be undone is armed before a request is sent; dropped at any point, the
//! name is left.
//!
//! Redlock is the same over several servers. All are asked at once, a majority decides, and a round that fails is left
//! everywhere. Where others hold the lock clients queue in the order of the servers, and never on one that comes before one
//! they have. On one server, they queue on that.

use std::sync::Arc;
use std::time::Duration;

use crate::proto::acquire::{Acquisition, Next, Patience, Terms};
use crate::proto::command::Name;
use crate::proto::hold::Belief;
use crate::proto::round::{Outcome, Vote};
use crate::run::ballot::{Ballot, Won};
use crate::run::call::Calls;
use crate::run::core::Core;
use crate::run::hold::Hold;
use crate::run::owner::Owner;
use crate::run::part::Part;
use crate::run::{change, renew, trace};
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss};
use crate::value::lease::Lease;
use crate::value::mode::Mode;
use crate::value::name::Names;

/// A server may take this part of a lease to answer.
const SHARE: u32 = 4;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) key: &'a Arc<[u8]>,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    pub(crate) patience: Patience,
    pub(crate) renews: bool,
    pub(crate) reentrant: bool,
    pub(crate) max_hold: Option<Duration>,
}

pub(crate) async fn acquire(request: Request<'_>) -> Result<Part, Error> {
    let started = BootInstant::now();
    let result = match request.owner {
        None => acquire_anew(&request, &request.core.names).await,
        Some(owner) => acquire_for(&request, owner).await,
    };
    match &result {
        Ok(part) => {
            let token = part.held.hold.with(|state| state.belief.token);
            trace::granted(request.key, request.mode, token, started.elapsed());
        }
        Err(error) => trace::refused(request.key, request.mode, error),
    }
    result
}

/// Takes a lock for a named task, which may have it already.
async fn acquire_for(request: &Request<'_>, owner: &Owner) -> Result<Part, Error> {
    let place = owner.place(request.core.id, request.key);
    let mut turn = match request.reentrant {
        true => place.lock().await,
        false => place.try_lock().map_err(|_| Error::AlreadyHeld)?,
    };
    if let Some(hold) = turn.upgrade()
        && hold.loss().is_none()
    {
        if !request.reentrant {
            return Err(Error::AlreadyHeld);
        }
        match enter(request, &hold).await {
            // It was given back meanwhile.
            Err(Error::Lost(Loss::Released)) => {}
            entered => return entered,
        }
    }
    let part = acquire_anew(request, owner.names()).await?;
    *turn = Arc::downgrade(&part.held.hold);
    Ok(part)
}

/// Enters a hold again: that is counted here, the servers see one hold.
async fn enter(request: &Request<'_>, hold: &Arc<Hold>) -> Result<Part, Error> {
    let _turn = hold.turn.lock().await;
    if request.mode == Mode::Write {
        change::upgrade(hold, request.patience).await?;
    }
    let cap = request.max_hold.map(|max| BootInstant::now() + max);
    let part = Part::join(hold, request.mode, request.renews, cap)?;
    // That it is still there, and for as long as is asked for, is for the servers to say.
    renew::renew(hold, Some(request.lease)).await?;
    Ok(part)
}

async fn acquire_anew(request: &Request<'_>, names: &Names) -> Result<Part, Error> {
    let Request {
        core, mode, renews, ..
    } = *request;
    let lease = request
        .max_hold
        .map_or(request.lease, |max| request.lease.limited(max));
    check_lease(core, lease)?;
    let terms = Terms {
        mode,
        lease,
        patience: request.patience,
        fails_over: core.servers[0].fails_over(),
    };
    let won = win(core, request.key, names, terms).await?;
    let since = won.round.held().map(|(_, held)| held.made).min();
    let cap = since.zip(request.max_hold).map(|(since, max)| since + max);
    let belief = Belief::new(won.token, won.round, lease, cap);
    let hold = Hold::new(core.clone(), won.name, belief, mode, renews);
    if won.late.count() > 0 {
        core.runtime().spawn(learn(hold.clone(), lease, won.late));
    }
    let part = Part::new(hold, mode, renews);
    // Closed meanwhile: what is not given back now would never be.
    core.check_open().map(|()| part)
}

/// A lease must not run out while servers answer.
fn check_lease(core: &Core, lease: Lease) -> Result<(), Error> {
    let (limit, lease) = (core.limits.answer, lease.duration());
    match core.is_quorum() && limit.saturating_mul(SHARE) > lease {
        false => Ok(()),
        true => Err(Error::Invalid(format!(
            "a lease over a quorum is at least {SHARE} times what one server may take to answer, {limit:?}, not {lease:?}"
        ))),
    }
}

async fn win(core: &Arc<Core>, key: &Arc<[u8]>, names: &Names, terms: Terms) -> Result<Won, Error> {
    let mut acquisition = Acquisition::new(terms, BootInstant::now());
    let always = (!core.is_quorum()).then_some(0);
    let mut queues = always;
    loop {
        core.servers[0].prepare().await;
        core.check_open()?;
        let (began, owner) = (BootInstant::now(), names.next());
        let key = key.clone();
        let mut ballot = Ballot::new(core, Name { key, owner }, terms);
        let outcome = match queues {
            None => ballot.ask((0..core.servers.len()).collect()).await,
            Some(first) => {
                let (outcome, last) = ballot.queue(first, &mut acquisition).await;
                queues = Some(last);
                outcome
            }
        };
        if let Outcome::Won(token) = outcome {
            return Ok(ballot.won(token));
        }
        let random = uuid::Uuid::new_v4().as_u128() as u32;
        let luck = (began.elapsed(), f64::from(random) / f64::from(u32::MAX));
        let next = acquisition.after(&ballot.round, queues, luck, BootInstant::now());
        queues = always;
        match next {
            Next::Again(pause) => {
                drop(ballot);
                core.pause(pause).await;
                acquisition.check_limit(BootInstant::now())?;
            }
            Next::Queue(first) => queues = Some(first),
            Next::Failed(error) => return Err(error),
            Next::NoQuorum => {
                let granted = ballot.round.held().count();
                return Err(core.error_of(&ballot.round, granted));
            }
        }
    }
}

/// Takes in what the others say of a lock that was won without them.
async fn learn(hold: Arc<Hold>, lease: Lease, mut late: Calls) {
    while let Some((server, (sent, answer))) = late.next().await {
        let vote = Vote::of(answer, sent, lease, &hold.core.servers[server].name);
        hold.with(|state| {
            let is_open = state.belief.round[server].may_be_there() == Some(true);
            if is_open && matches!(vote, Vote::Held(_) | Vote::Busy) {
                state.belief.set(server, vote);
            }
        });
    }
}
