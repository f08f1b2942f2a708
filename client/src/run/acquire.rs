//! Acquiring: in the caller's future. What has to be undone is armed before a request is sent; dropped at any point, the
//! name is left.

use std::sync::Arc;
use std::time::Duration;

use crate::proto::acquire::{Acquisition, Grant, Next, Patience, Terms};
use crate::proto::hold::{Belief, Share, Shares};
use crate::run::attempt::Attempt;
use crate::run::core::Core;
use crate::run::hold::Hold;
use crate::run::owner::Owner;
use crate::run::release::{Part, drop_part};
use crate::run::{change, quorum, trace};
use crate::value::clock::BootInstant;
use crate::value::error::{Error, Loss};
use crate::value::lease::Lease;
use crate::value::mode::Mode;
use crate::value::name::Names;

/// What a lock is asked for with.
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

/// Takes a lock, or enters one again.
pub(crate) async fn acquire(request: Request<'_>) -> Result<Arc<Hold>, Error> {
    let started = BootInstant::now();
    let result = match request.owner {
        None => acquire_anew(&request, &request.core.names).await,
        Some(owner) => acquire_for(&request, owner).await,
    };
    match &result {
        Ok(hold) => {
            let token = hold.with(|state| state.belief.token);
            trace::granted(request.key, request.mode, token, started.elapsed());
        }
        Err(error) => trace::refused(request.key, request.mode, error),
    }
    result
}

/// For a task, which has one request and one hold for a key.
async fn acquire_for(request: &Request<'_>, owner: &Owner) -> Result<Arc<Hold>, Error> {
    let place = owner.place(request.core.id, request.key);
    let _asking = place.ask(request.reentrant).ok_or(Error::AlreadyHeld)?;
    let mut turn = place.turn.lock().await;
    if let Some(hold) = turn.upgrade()
        && hold.loss().is_none()
    {
        if !request.reentrant {
            return Err(Error::AlreadyHeld);
        }
        match enter(request, &hold).await {
            // It was given back meanwhile.
            Err(Error::Lost(Loss::Released)) => {}
            entered => return entered.map(|()| hold),
        }
    }
    let hold = acquire_anew(request, owner.names()).await?;
    *turn = Arc::downgrade(&hold);
    Ok(hold)
}

/// Enters a hold again: that is counted here, the servers see one hold.
async fn enter(request: &Request<'_>, hold: &Arc<Hold>) -> Result<(), Error> {
    let _turn = hold.turn.lock().await;
    if request.mode == Mode::Write && !hold.with(|state| state.wire.write) {
        change::upgrade(hold, request.patience).await?;
    }
    let cap = request.max_hold.map(|max| BootInstant::now() + max);
    hold.with(|state| {
        if let Some(loss) = state.belief.loss(BootInstant::now()) {
            return Err(Error::Lost(loss));
        }
        state.guards += 1;
        state.writers += u32::from(request.mode == Mode::Write);
        state.renewing += u32::from(request.renews);
        state.belief.limit(cap);
        Ok(())
    })?;
    hold.reschedule();
    let entered = Entered {
        hold,
        request,
        is_done: false,
    };
    // That it is still there, and for as long as is asked for, is for the servers to say.
    change::renew(hold, Some(request.lease)).await?;
    entered.done();
    Ok(())
}

/// A part of a hold that no guard has yet.
struct Entered<'a> {
    hold: &'a Arc<Hold>,
    request: &'a Request<'a>,
    is_done: bool,
}

impl Entered<'_> {
    fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let part = Part {
                mode: self.request.mode,
                renews: self.request.renews,
            };
            drop_part(self.hold, part);
        }
    }
}

async fn acquire_anew(request: &Request<'_>, names: &Names) -> Result<Arc<Hold>, Error> {
    let core = request.core;
    core.check_open()?;
    let lease = request
        .max_hold
        .map_or(request.lease, |max| request.lease.limited(max));
    let terms = Terms {
        mode: request.mode,
        lease,
        patience: request.patience,
        fails_over: core.servers[0].fails_over(),
    };
    let hold = |owner, token, shares, since| {
        let cap = request.max_hold.map(|max| since + max);
        let belief = Belief::new(token, shares, lease, cap);
        let names = (request.key.clone(), owner);
        Hold::new(core.clone(), names, belief, request.mode, request.renews)
    };
    let hold = match core.is_quorum() {
        false => {
            let (owner, Grant { token, since }) =
                acquire_on_one(core, request.key, names, terms).await?;
            let until = lease.believed_until(since);
            hold(
                owner,
                token,
                Shares::One(Share::Held { token, until }),
                since,
            )
        }
        true => {
            let won = quorum::acquire(core, request.key, names, terms).await?;
            let hold = hold(won.owner, won.token, won.shares, won.since);
            quorum::learn(&hold, won.late);
            hold
        }
    };
    // Closed meanwhile: what is not given back now would never be.
    if let Err(error) = core.check_open() {
        hold.give_back();
        return Err(error);
    }
    Ok(hold)
}

async fn acquire_on_one(
    core: &Arc<Core>,
    key: &Arc<[u8]>,
    names: &Names,
    terms: Terms,
) -> Result<(Arc<[u8]>, Grant), Error> {
    let server = &core.servers[0];
    let mut acquisition = Acquisition::new(terms, BootInstant::now());
    loop {
        server.prepare().await;
        core.check_open()?;
        let attempt = Attempt::new(core, 0, key, names.next(), terms.lease);
        let mut next = attempt.ask_by(&mut acquisition, terms, None).await;
        if let Next::Confirm(grant) = next {
            let sent = BootInstant::now();
            let answer = attempt.renew(grant.token).await;
            let now = BootInstant::now();
            next = acquisition.on_confirmation(grant, (answer, sent), &server.name, now);
        }
        match next {
            Next::Granted(grant) => return Ok((attempt.settled(), grant)),
            Next::Again { leave, pause } => {
                attempt.end(leave);
                core.pause(pause).await;
                if terms.patience != Patience::None && acquisition.is_over(BootInstant::now()) {
                    return Err(acquisition.waited(BootInstant::now()));
                }
            }
            Next::Failed { leave, error } => {
                attempt.end(leave);
                return Err(error);
            }
            Next::AwaitLetter | Next::Confirm(_) => unreachable!("a letter has been awaited"),
        }
    }
}
