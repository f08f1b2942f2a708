//! A hold: one name's stake in a lock, on one key or several, on one server or a majority of several.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, select};
use redis::Cmd;
use tokio::sync::Notify;

use crate::belief::{Belief, Grant, Part, Which};
use crate::error::{Error, Failed, Loss};
use crate::name::Bytes;
use crate::node::Place;
use crate::request::{self, Late, Terms};
use crate::sync::lock;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::trace;

pub(crate) struct Hold {
    /// The first of its keys.
    pub(crate) key: Bytes,
    pub(crate) owner: Bytes,
    pub(crate) terms: Terms,
    state: Mutex<State>,
    ended: Notify,
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
    ticket: Option<Ticket>,
}

/// When a hold is due in its keeper's schedule, and its number there.
pub(crate) type Ticket = (BootInstant, u64);

/// A renewal of one part of a hold.
pub(crate) struct Renewal {
    pub(crate) hold: Arc<Hold>,
    pub(crate) place: Place,
    pub(crate) lease: Lease,
    part: usize,
    /// The token that it names.
    asked: Option<Token>,
}

impl Renewal {
    pub(crate) fn command(&self) -> Cmd {
        let renew = request::renew(&self.place.key, &self.hold.owner, self.lease);
        match self.asked {
            Some(token) => request::by(token, renew),
            None => renew,
        }
    }

    /// Takes in the answer.
    pub(crate) fn answered(&self, answer: &Result<Grant, Failed>) {
        let now = BootInstant::now();
        self.hold.belief(|belief| match answer {
            Ok(grant) => belief.confirm(self.part, *grant, now),
            Err(Failed::Denied) => belief.deny(self.part, self.asked),
            Err(Failed::Refused(_) | Failed::Unknown(_)) => belief.fail(self.part, now),
        });
        self.hold.report();
    }
}

impl Hold {
    pub(crate) fn new(owner: Bytes, terms: Terms, belief: Belief, places: Vec<Place>) -> Hold {
        let state = State {
            belief,
            places,
            is_left: false,
            is_reported: false,
            ticket: None,
        };
        Hold {
            key: state.places[0].key.clone(),
            owner,
            terms,
            state: Mutex::new(state),
            ended: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        }
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
            let ended = self.ended.notified();
            match self.loss() {
                Some(loss) => return loss,
                None => ended.await,
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
        let was_held = self.belief(|belief| belief.lose(loss, BootInstant::now()));
        self.report();
        was_held
    }

    /// Reports the end of the hold, once it has ended.
    fn report(&self) {
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

    /// One more server has granted it. Returns whether the hold takes care of that: not if it is over.
    pub(crate) fn join(&self, place: Place, grant: Grant) -> bool {
        let mut state = lock(&self.state);
        let is_over = state.is_left || state.belief.loss(BootInstant::now()).is_some();
        if !is_over {
            state.belief.parts.push(Part::new(grant, self.terms.lease));
            state.places.push(place);
        }
        !is_over
    }

    /// Where it has to be left, and whether requests may still be on their way there. Nowhere if that was done already.
    pub(crate) fn leave(&self) -> (Vec<Place>, Late) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.is_left, true) {
            return (Vec::new(), Late::Nothing);
        }
        let late = match state.belief.loss(BootInstant::now()) {
            Some(Loss::Unknown) => Late::Requests,
            _ => Late::Nothing,
        };
        (state.places.clone(), late)
    }

    /// Its place in the keeper's schedule.
    pub(crate) fn ticket<T>(&self, with: impl FnOnce(&mut Option<Ticket>) -> T) -> T {
        with(&mut lock(&self.state).ticket)
    }

    /// When the keeper has to look at it next; `None` once it is over.
    pub(crate) fn due(&self) -> Option<BootInstant> {
        let state = &mut *lock(&self.state);
        let (now, deadline) = (BootInstant::now(), state.belief.deadline());
        if state.is_left || state.belief.loss(now).is_some() {
            // A release may be on its way: until the lease is over, its client's `close` has to find it.
            return (!state.is_left && now < deadline).then_some(deadline);
        }
        let renews = self.terms.renews || state.belief.is_changing();
        let renewal = state.belief.next_renewal().filter(|_| renews);
        Some(renewal.map_or(deadline, |renewal| renewal.min(deadline)))
    }

    /// What to renew now. Reports a loss.
    pub(crate) fn begin_renewals(self: &Arc<Self>, which: Which) -> Vec<Renewal> {
        let now = BootInstant::now();
        let renewals = {
            let state = &mut *lock(&self.state);
            let renews = self.terms.renews || state.belief.is_changing();
            let is_wanted = which == Which::All || renews;
            let asked = match is_wanted && state.belief.doubt(now).is_none() {
                true => state.belief.begin_renewal(now, which),
                false => Vec::new(),
            };
            let renewal = |(part, asked): (usize, Option<Token>)| Renewal {
                hold: self.clone(),
                place: state.places[part].clone(),
                lease: state.belief.lease(now),
                part,
                asked,
            };
            asked.into_iter().map(renewal).collect()
        };
        self.report();
        renewals
    }
}
