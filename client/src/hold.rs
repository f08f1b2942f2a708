//! A hold: one name's stake in a lock, on one key or several, on one server or a majority of several.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, select};
use tokio::sync::Notify;

use crate::belief::{Belief, Grant, Part, Which};
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::keeper::{Kept, Renewal, Ticket};
use crate::name::Bytes;
use crate::node::Place;
use crate::request::{self, Late, Permits};
use crate::retry::Wait;
use crate::servers::Servers;
use crate::sync::lock;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::trace;

/// What was granted to a name.
pub(crate) struct Granted {
    pub(crate) owner: Bytes,
    pub(crate) lease: Lease,
    /// Whether the keeper renews it.
    pub(crate) renews: bool,
    pub(crate) permits: Option<Permits>,
    /// How long an upgrade waits.
    pub(crate) wait: Wait,
    pub(crate) belief: Belief,
    /// Where each part of the belief is.
    pub(crate) places: Vec<Place>,
}

pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    /// The first of its keys.
    pub(crate) key: Bytes,
    pub(crate) owner: Bytes,
    pub(crate) lease: Lease,
    pub(crate) permits: Option<Permits>,
    pub(crate) wait: Wait,
    renews: bool,
    state: Mutex<State>,
    ended: Notify,
    /// Whoever changes it, one at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    ticket: Mutex<Option<Ticket>>,
}

struct State {
    belief: Belief,
    places: Vec<Place>,
    /// It was released or left, or belongs to another name.
    is_left: bool,
    is_reported: bool,
}

/// A hold that somebody relies on. Dropped, it is released in the background.
pub(crate) struct Share(pub(crate) Arc<Hold>);

impl Drop for Share {
    fn drop(&mut self) {
        self.0.end(Loss::Released);
        self.0.leave();
    }
}

impl Hold {
    /// A hold that was granted. The keeper renews it, and reports its loss.
    pub(crate) fn share(core: &Arc<Core>, granted: Granted) -> Share {
        let Granted {
            owner,
            lease,
            renews,
            permits,
            wait,
            belief,
            places,
        } = granted;
        let hold = Arc::new(Hold {
            core: core.clone(),
            key: places[0].key.clone(),
            owner,
            lease,
            permits,
            wait,
            renews,
            state: Mutex::new(State {
                belief,
                places,
                is_left: false,
                is_reported: false,
            }),
            ended: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            ticket: Mutex::default(),
        });
        core.keeper.schedule(hold.clone());
        Share(hold)
    }

    /// Reads or changes the belief.
    pub(crate) fn belief<T>(&self, with: impl FnOnce(&mut Belief) -> T) -> T {
        with(&mut lock(&self.state).belief)
    }

    pub(crate) fn is_over_quorum(&self) -> bool {
        matches!(*self.core.servers, Servers::Quorum(_))
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        lock(&self.state).places.clone()
    }

    /// The token, where the hold may be believed in.
    pub(crate) fn check(&self) -> Result<Token, Error> {
        let now = BootInstant::now();
        let checked = self.belief(|belief| belief.doubt(now).map_or(Ok(belief.token), Err));
        checked.map_err(Error::Lost)
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.belief(|belief| belief.loss(BootInstant::now()))
    }

    /// Resolves once the hold is lost or released: at its deadline at the latest.
    pub(crate) async fn lost(&self) -> Loss {
        loop {
            let ended = self.ended.notified();
            if let Some(loss) = self.loss() {
                return loss;
            }
            if self.core.runtime.is_gone() {
                // Nobody renews it any more, nor watches its deadline.
                self.end(Loss::Expired);
            } else {
                ended.await;
            }
        }
    }

    /// Waits for `work`, unless the hold is lost before.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Loss> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((loss, _)) => Err(loss),
        }
    }

    /// Reports the end of the hold, once it has ended.
    pub(crate) fn report(&self) {
        let mut state = lock(&self.state);
        if let Some(loss) = state.belief.loss(BootInstant::now())
            && !std::mem::replace(&mut state.is_reported, true)
        {
            let token = state.belief.token;
            drop(state);
            trace::ended(&self.key, token, loss);
            self.ended.notify_waiters();
        }
    }

    /// Renews it now: once more, if a connection was broken. Returns once its servers have answered: enough of them must have
    /// confirmed it.
    pub(crate) async fn renew(self: &Arc<Self>) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let began = BootInstant::now();
        let mut is_again = false;
        loop {
            self.check()?;
            let renewals = self.clone().begin_renewals(Which::All);
            let failures = self.core.keeper.renew(renewals).await;
            self.check()?;
            let (granted, needed) =
                self.belief(|belief| (belief.confirmed_since(began), belief.needed()));
            if granted >= needed {
                return Ok(());
            }
            let broke = failures.iter().any(|failure| failure.reason.is_broken());
            if is_again || !broke {
                let is_quorum = self.is_over_quorum();
                return Err(Error::of_failures(failures, granted, needed, is_quorum));
            }
            is_again = true;
        }
    }

    /// One more server has granted it. Returns whether the hold takes care of that: not if it is over.
    pub(crate) fn join(self: &Arc<Self>, place: Place, grant: Grant) -> bool {
        let mut state = lock(&self.state);
        if state.is_left || state.belief.loss(BootInstant::now()).is_some() {
            return false;
        }
        state.belief.parts.push(Part::new(grant, self.lease));
        state.places.push(place);
        drop(state);
        self.core.keeper.schedule(self.clone());
        true
    }

    /// Nothing is left to be released: it was, or it belongs to another name.
    pub(crate) fn set_left(&self) {
        lock(&self.state).is_left = true;
        self.core.keeper.forget(self);
    }

    /// Releases it. What the servers do not confirm is released in the background, and so is what a dropped future leaves.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<(), Error> {
        if !self.end(Loss::Released) {
            return Err(Error::Lost(self.loss().unwrap_or(Loss::Released)));
        }
        let (tokens, needed) = self.belief(|belief| (belief.tokens(), belief.needed()));
        let release = |(place, token): (Place, Token)| {
            let release = request::release(&place.key, &self.owner, token);
            (place, release)
        };
        let calls: Vec<_> = self.places().into_iter().zip(tokens).map(release).collect();
        let replies = self
            .core
            .servers
            .call_each(&calls, self.core.settings.reply)
            .await;
        let answers = replies
            .into_iter()
            .map(|reply| reply.and_then(|it| request::number(it.value)));
        let (confirmed, failed): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
        if failed.iter().all(|it| matches!(it, Err(Failed::Denied))) {
            self.set_left();
        }
        match failed.into_iter().find_map(Result::err) {
            Some(failed) if confirmed.len() < needed => {
                Err(failed.error(Error::Lost(Loss::Denied)))
            }
            _ => Ok(()),
        }
    }
}

impl Kept for Hold {
    fn ticket(&self) -> &Mutex<Option<Ticket>> {
        &self.ticket
    }

    fn due(&self) -> Option<BootInstant> {
        let state = &mut *lock(&self.state);
        let (now, deadline) = (BootInstant::now(), state.belief.deadline());
        if state.is_left || state.belief.loss(now).is_some() {
            // A release may be on its way: until the lease is over, its client's `close` has to find it.
            return (!state.is_left && now < deadline).then_some(deadline);
        }
        let renews = self.renews || state.belief.is_changing();
        let renewal = state.belief.next_renewal().filter(|_| renews);
        Some(renewal.map_or(deadline, |renewal| renewal.min(deadline)))
    }

    fn begin_renewals(self: Arc<Self>, which: Which) -> Vec<Renewal> {
        let now = BootInstant::now();
        let mut renewals = Vec::new();
        {
            let state = &mut *lock(&self.state);
            let is_wanted = which == Which::All || self.renews || state.belief.is_changing();
            if state.belief.doubt(now).is_none() && is_wanted {
                let lease = state.belief.lease(now);
                for (part, asked) in state.belief.begin_renewal(now, which) {
                    let (hold, place, owner) =
                        (self.clone(), state.places[part].clone(), self.owner.clone());
                    renewals.push(Renewal {
                        hold,
                        place,
                        owner,
                        lease,
                        part,
                        asked,
                    });
                }
            }
        }
        self.report();
        renewals
    }

    fn answered(&self, renewal: &Renewal, answer: Result<Grant, Failed>) {
        let now = BootInstant::now();
        self.belief(|belief| match answer {
            Ok(grant) => belief.confirm(renewal.part, grant, now),
            Err(Failed::Denied) => belief.deny(renewal.part, renewal.asked),
            Err(Failed::Refused(_) | Failed::Unknown(_)) => belief.fail(renewal.part, now),
        });
        self.report();
    }

    fn end(&self, loss: Loss) -> bool {
        let was_held = self.belief(|belief| belief.lose(loss, BootInstant::now()));
        self.report();
        was_held
    }

    fn leave(&self) {
        let (places, late) = {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.is_left, true) {
                return;
            }
            let is_unknown = state.belief.loss(BootInstant::now()) == Some(Loss::Unknown);
            let late = if is_unknown {
                Late::Requests
            } else {
                Late::Nothing
            };
            (state.places.clone(), late)
        };
        self.core.keeper.forget(self);
        for place in places {
            self.core.leave(place, self.owner.clone(), self.lease, late);
        }
    }
}
