//! Acquiring: in the caller's future. What has to be undone is armed before a request is sent; dropped at any point, the
//! name is left.
//!
//! Redlock is the same over several servers. All are asked at once, a majority decides, and a round that fails is left
//! everywhere. Where others hold the lock clients queue in the order of the servers, and never on one that comes before one
//! they have. On one server, they queue on that.

use std::sync::Arc;
use std::time::Duration;

use crate::proto::{Acquisition, Name, Next, Terms, Vote};
use crate::run::{Ballot, Core, Guard, Hold, Owner, change, trace};
use crate::value::random;
use crate::value::{BootInstant, Error, Lease, Loss, Mode, Names};

/// A server may take this part of a lease to answer.
const SHARE: u32 = 4;

/// What is asked for, but for the mode.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Option<Owner>,
    pub(crate) lease: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) renews: bool,
    pub(crate) reentrant: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl Request {
    pub(crate) fn new(key: &[u8]) -> Request {
        Request {
            key: key.into(),
            owner: None,
            lease: Lease::DEFAULT,
            wait: None,
            renews: true,
            reentrant: false,
            max_hold: None,
        }
    }
}

pub(crate) async fn acquire(
    core: &Arc<Core>,
    request: &Request,
    mode: Mode,
    wait: Option<Duration>,
) -> Result<Guard, Error> {
    let started = BootInstant::now();
    let terms = Terms {
        mode,
        lease: Lease::new(request.lease)?,
        wait,
        fails_over: core.servers[0].fails_over(),
    };
    let result = match &request.owner {
        None => acquire_anew(core, request, &core.names, terms).await,
        Some(owner) => acquire_for(core, request, owner, terms).await,
    };
    match &result {
        Ok(guard) => trace::granted(&request.key, mode, guard.token(), started.elapsed()),
        Err(error) => trace::refused(&request.key, mode, error),
    }
    result
}

/// Takes a lock for a named task, which may have it already.
async fn acquire_for(
    core: &Arc<Core>,
    request: &Request,
    owner: &Owner,
    terms: Terms,
) -> Result<Guard, Error> {
    core.check_open()?;
    let place = owner.place(Arc::as_ptr(core).addr(), &request.key);
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
        match enter(request, &hold, terms).await {
            // It was given back meanwhile.
            Err(Error::Lost(Loss::Released)) => {}
            entered => return entered,
        }
    }
    let guard = acquire_anew(core, request, owner.names(), terms).await?;
    *turn = Arc::downgrade(&guard.hold);
    Ok(guard)
}

/// Enters a hold again: that is counted here, the servers see one hold.
async fn enter(request: &Request, hold: &Arc<Hold>, terms: Terms) -> Result<Guard, Error> {
    let _turn = hold.turn.lock().await;
    if terms.mode == Mode::Write {
        change::upgrade(hold, terms.wait).await?;
    }
    let cap = request.max_hold.map(|max| BootInstant::now() + max);
    let guard = Guard::of(hold, (terms.mode, request.renews), cap)?;
    // That it is still there, and for as long as is asked for, is for the servers to say.
    change::renew(hold, Some(terms.lease)).await?;
    Ok(guard)
}

/// Takes a lock under a name that nobody has had, and under another one until it is known what became of that.
async fn acquire_anew(
    core: &Arc<Core>,
    request: &Request,
    names: &Names,
    mut terms: Terms,
) -> Result<Guard, Error> {
    if let Some(max) = request.max_hold {
        terms.lease = terms.lease.limited(max);
    }
    check_lease(core, terms.lease)?;
    let servers = core.servers.len();
    let mut acquisition = Acquisition::new(terms, servers, BootInstant::now());
    loop {
        core.servers[0].prepare().await;
        core.check_open()?;
        let (began, owner) = (BootInstant::now(), names.next());
        let key = request.key.clone();
        let mut ballot = Ballot::new(core, Name { key, owner }, terms);
        let won = match acquisition.queues {
            None => ballot.ask_all(None).await,
            Some(first) => ballot.queue(first, &mut acquisition).await,
        };
        let next = match won {
            Some(token) => {
                let hold = ballot.won(token, request.max_hold);
                let guard = Guard::of(&hold, (terms.mode, request.renews), None)?;
                match confirm(&hold, terms.lease).await {
                    // Closed meanwhile: what is not given back now would never be.
                    Ok(()) => return core.check_open().map(|()| guard),
                    Err(error) => acquisition.after_vote(&Vote::Unknown(error), BootInstant::now()),
                }
            }
            None => {
                let random = random::uuid().as_u128() as u32;
                let luck = (began.elapsed(), f64::from(random) / f64::from(u32::MAX));
                acquisition.after(&ballot.round, luck, BootInstant::now())
            }
        };
        match next {
            Next::Again(pause) => {
                drop(ballot);
                core.pause(pause).await;
            }
            Next::Failed(error) => return Err(error),
            Next::NoQuorum => {
                let granted = ballot.round.held().count();
                return Err(core.error_of(&ballot.round, granted));
            }
        }
    }
}

/// Of a grant that was told of late half of the lease may be gone: then the servers are asked whether it is still there.
async fn confirm(hold: &Arc<Hold>, lease: Lease) -> Result<(), Error> {
    let since = hold.with(|state| state.belief.confirmed());
    if since.elapsed() <= lease.duration() / 2 {
        return Ok(());
    }
    match change::renew(hold, None).await {
        // It has gone, and may be asked for again.
        Err(Error::NotHeld | Error::Lost(_)) => Err(Error::Lost(Loss::Expired)),
        confirmed => confirmed,
    }
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
