//! A hold: one name's stake in a lock, on one key or several, on one server or a majority of several. The client's keeper
//! renews it and reports its loss.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::{Either, join_all, select};
use tokio::sync::Notify;

use crate::belief::{Belief, Grant, Part};
use crate::core::Core;
use crate::error::{Error, Failed, Loss, NodeFailure};
use crate::keeper::{Due, Kept};
use crate::name::Bytes;
use crate::node::Place;
use crate::request::{self, Terms};
use crate::sync::lock;
use crate::time::BootInstant;
use crate::token::Token;
use crate::trace;

pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    /// The first of its keys.
    pub(crate) key: Bytes,
    pub(crate) owner: Bytes,
    pub(crate) terms: Arc<Terms>,
    state: Mutex<State>,
    /// It may have ended.
    changed: Notify,
    /// Whoever changes it, one at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

struct State {
    belief: Belief,
    /// Where each part of the belief is.
    places: Vec<Place>,
    /// It was released or left, or belongs to another name.
    is_left: bool,
    is_reported: bool,
    /// When the keeper tends it next, if it still does.
    due: Option<Due>,
}

impl Kept for Hold {
    fn tend(self: Arc<Self>) {
        let now = BootInstant::now();
        let renews = |belief: &mut Belief| self.terms.renews && belief.doubt(now).is_none();
        let due = self.belief(|belief| match renews(belief) {
            true => belief.begin_renewals(now),
            false => Vec::new(),
        });
        for part in due {
            let hold = self.clone();
            let renewing = async move { drop(hold.renew_part(part).await) };
            self.core.runtime.spawn(renewing);
        }
        self.wake();
    }

    fn end(&self, loss: Loss) {
        Hold::end(self, loss);
        if loss == Loss::Released {
            self.leave();
        }
    }
}

impl Hold {
    /// Keeps what was granted, until it is left, or its client is closed.
    pub(crate) fn keep(
        core: &Arc<Core>,
        owner: Bytes,
        terms: &Arc<Terms>,
        mut belief: Belief,
        places: Vec<Place>,
    ) -> Arc<Hold> {
        if let Some(limit) = terms.max_hold {
            belief.limit(limit);
        }
        let hold = Arc::new(Hold {
            core: core.clone(),
            key: places[0].key.clone(),
            owner,
            terms: terms.clone(),
            state: Mutex::new(State {
                belief,
                places,
                is_left: false,
                is_reported: false,
                due: None,
            }),
            changed: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        });
        {
            let mut state = lock(&hold.state);
            let at = hold.due(&mut state, BootInstant::now()).unwrap_or_default();
            state.due = Some(core.keeper.keep(hold.clone(), at, core.pending()));
        }
        hold
    }

    /// Reads or changes the belief.
    pub(crate) fn belief<T>(&self, with: impl FnOnce(&mut Belief) -> T) -> T {
        with(&mut lock(&self.state).belief)
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
            let changed = self.changed.notified();
            match self.loss() {
                Some(loss) => return loss,
                None => changed.await,
            }
        }
    }

    /// Waits for `work`, unless the hold is lost before.
    pub(crate) async fn unless_lost<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        match select(pin!(work), pin!(self.lost())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((loss, _)) => Err(Error::Lost(loss)),
        }
    }

    /// Ends it, for the first reason. Returns whether it was held until now.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let (mut state, now) = (lock(&self.state), BootInstant::now());
        let was_held = state.belief.lose(loss, now);
        self.report(state, now);
        was_held
    }

    /// It has changed: its end is reported, and the keeper may have to tend it at another moment.
    pub(crate) fn wake(&self) {
        let (mut state, now) = (lock(&self.state), BootInstant::now());
        if let Some(due) = state.due {
            let at = self.due(&mut state, now);
            state.due = self.core.keeper.put_off(due, at);
        }
        self.report(state, now);
    }

    /// Reports the end of the hold, once it has ended.
    fn report(&self, mut state: MutexGuard<'_, State>, now: BootInstant) {
        if let Some(loss) = state.belief.loss(now)
            && !std::mem::replace(&mut state.is_reported, true)
        {
            let token = state.belief.token;
            drop(state);
            trace::ended(&self.key, token, loss);
            self.changed.notify_waiters();
        }
    }

    /// One more server has granted it. Returns whether the hold takes care of that: not if it is over.
    pub(crate) fn join(&self, place: Place, grant: Grant) -> bool {
        let mut state = lock(&self.state);
        let is_over = state.is_left || state.belief.loss(BootInstant::now()).is_some();
        if !is_over {
            state.belief.parts.push(Part::new(grant, self.terms.lease));
            state.places.push(place);
            drop(state);
            self.wake();
        }
        !is_over
    }

    /// Has its servers remove it, in the background, unless that was done.
    pub(crate) fn leave(&self) {
        let _pending = self.core.pending();
        if !self.set_left() {
            return;
        }
        // A request of unknown outcome may still be on its way.
        let leave = match self.loss() {
            Some(Loss::Unknown) => request::leave_for_good,
            _ => request::leave,
        };
        for place in self.places() {
            let leave = leave(&place.key, &self.owner);
            self.core.leave(place, leave, self.terms.lease);
        }
    }

    /// Nothing is left to be released: it was, or it belongs to another name. Returns whether that is new.
    pub(crate) fn set_left(&self) -> bool {
        let mut state = lock(&self.state);
        if let Some(due) = state.due.take() {
            self.core.keeper.put_off(due, None);
        }
        !std::mem::replace(&mut state.is_left, true)
    }

    /// When the keeper has to tend it next; `None` once nothing is left to do.
    fn due(&self, state: &mut State, now: BootInstant) -> Option<BootInstant> {
        let deadline = state.belief.deadline();
        if state.is_left || state.belief.loss(now).is_some() {
            // A release may be on its way: until the lease is over, its client's `close` has to find it.
            return (!state.is_left && now < deadline).then_some(deadline);
        }
        let renewal = state.belief.next_renewal(now);
        let renewal = renewal.filter(|_| self.terms.renews);
        Some(renewal.map_or(deadline, |renewal| renewal.min(deadline)))
    }

    /// Renews it now: once more, if a connection was broken. Returns once its servers have answered: enough of them must have
    /// confirmed it.
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        self.check()?;
        match self.renew_once().await {
            Err(error) if error.is_broken() => self.renew_once().await,
            renewed => renewed,
        }
    }

    pub(crate) async fn renew_once(&self) -> Result<(), Error> {
        let began = BootInstant::now();
        let renewals = self.belief(|belief| belief.held(began));
        let renewals = renewals.into_iter().map(|part| self.renew_part(part));
        let failures = join_all(renewals).await.into_iter().flatten().collect();
        self.check()?;
        let confirmed = self.belief(|belief| belief.confirmed_since(began));
        let needed = self.belief(|belief| belief.needed);
        match confirmed >= needed {
            true => Ok(()),
            false => Err(self.core.too_few(failures, confirmed, needed)),
        }
    }

    /// Renews a part of it, and takes in the answer. Returns a failure, which says nothing of the hold.
    async fn renew_part(&self, part: usize) -> Option<NodeFailure> {
        let now = BootInstant::now();
        let (lease, token) =
            self.belief(|belief| (belief.lease(now), belief.parts[part].grant.token));
        let place = lock(&self.state).places[part].clone();
        let renewed = self.core.renew(&place, &self.owner, lease, token).await;
        let now = BootInstant::now();
        self.belief(|belief| match &renewed {
            Ok(grant) => belief.confirm(part, *grant, now),
            Err(Failed::Denied) => belief.deny(part),
            Err(Failed::Refused(_) | Failed::Unknown(_)) => belief.fail(part, now),
        });
        self.wake();
        let Err(Failed::Refused(error) | Failed::Unknown(error)) = renewed else {
            return None;
        };
        trace::renewal_failed(&place.node.name, &place.key, &error);
        Some(NodeFailure::new(&place.node.name, error))
    }

    /// Releases it. What the servers do not confirm is left to be released, and so is what a dropped future leaves.
    pub(crate) async fn release(&self) -> Result<(), Error> {
        self.give_up(|place, token| async move {
            let release = request::by(token, request::release(&place.key, &self.owner));
            self.core.number(&place, &release).await
        })
        .await
        .map(drop)
    }

    /// Ends it, by a call for each of its parts, of which enough must succeed. Returns what these return.
    pub(crate) async fn give_up<T, C>(
        &self,
        call: impl Fn(Place, Token) -> C,
    ) -> Result<Vec<T>, Error>
    where
        C: Future<Output = Result<T, Failed>>,
    {
        if !self.end(Loss::Released) {
            return Err(Error::Lost(self.loss().unwrap_or(Loss::Released)));
        }
        let (parts, needed) = {
            let state = lock(&self.state);
            let tokens = state.belief.parts.iter().map(|part| part.grant.token);
            let parts: Vec<_> = state.places.iter().cloned().zip(tokens).collect();
            (parts, state.belief.needed)
        };
        let calls = parts.into_iter().map(|(place, token)| call(place, token));
        let (mut done, mut failed, mut is_left) = (Vec::new(), None, true);
        for answer in join_all(calls).await {
            match answer {
                Ok(it) => done.push(it),
                Err(why) => {
                    is_left &= matches!(why, Failed::Denied);
                    failed = Some(why);
                }
            }
        }
        if is_left {
            self.set_left();
        }
        match failed {
            Some(failed) if done.len() < needed => Err(failed.error(Error::Lost(Loss::Denied))),
            _ => Ok(done),
        }
    }
}
