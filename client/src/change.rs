//! Changes of a hold on one server: upgrade, downgrade, passing it on, and taking it over. A hold whose change has an unknown
//! outcome is not kept.

use std::sync::Arc;

use redis::Cmd;

use crate::acquire::Claim;
use crate::belief::{Change, Grant};
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::name::{Bytes, Mode, Names};
use crate::node::Place;
use crate::request::{self, Late, Terms};
use crate::retry::Tries;
use crate::servers::not_over_quorum;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A change in progress. Dropped before its outcome is known, the hold is over.
struct Changing<'a> {
    hold: &'a Hold,
    is_decided: bool,
    /// Who may have it then, and for how long.
    passed_to: Option<(Place, Bytes, Lease)>,
}

impl Changing<'_> {
    fn begin(hold: &Hold, change: Option<Change>) -> Changing<'_> {
        hold.belief(|belief| belief.change = change);
        Changing {
            hold,
            is_decided: false,
            passed_to: None,
        }
    }

    /// The hold has a new grant, or is what it was, unless the outcome is unknown.
    fn decide(mut self, outcome: &Result<Option<Grant>, Failed>) {
        let granted = match outcome {
            Ok(granted) => *granted,
            Err(Failed::Unknown(_)) => return,
            Err(Failed::Denied | Failed::Refused(_)) => None,
        };
        self.is_decided = true;
        let now = BootInstant::now();
        self.hold.belief(|belief| belief.end_change(granted, now));
    }

    /// Sends what changes the hold, but gives it no new token. Returns the number that the server replies.
    async fn send(self, place: &Place, command: &Cmd) -> Result<u64, Error> {
        let hold = self.hold;
        let limit = hold.core.settings.reply;
        let reply = hold.core.servers.call(place, command, limit).await;
        let answer = reply.and_then(|reply| request::number(reply.value));
        match &answer {
            Ok(_) if self.passed_to.is_some() => drop(hold.end(Loss::Passed)),
            Err(Failed::Denied) => drop(hold.end(Loss::Denied)),
            _ => {}
        }
        self.decide(&answer.as_ref().map(|_| None).map_err(Failed::clone));
        answer.map_err(|failed| failed.error(Error::Lost(Loss::Denied)))
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.is_decided {
            return;
        }
        // One that was lost before is left with its guard: until then it keeps others out.
        if self.hold.end(Loss::Unknown) {
            self.hold.leave();
        }
        if let Some((place, owner, lease)) = self.passed_to.take() {
            self.hold.core.leave(place, &owner, lease, Late::Requests);
        }
    }
}

impl Hold {
    /// Where the hold is, if it is one key on one server.
    pub(crate) fn one_place(&self) -> Result<Place, Error> {
        let mut places = self.places();
        match places.pop() {
            _ if self.core.settings.is_quorum() => Err(not_over_quorum(
                "servers could be left with different modes or holders if some did not answer: release, and acquire anew",
            )),
            Some(place) if places.is_empty() => Ok(place),
            _ => Err(Error::Invalid("several keys that were taken together cannot be changed: release, and acquire anew".into())),
        }
    }

    /// Makes a reader a writer: waits until the other readers have left.
    pub(crate) async fn upgrade(&self) -> Result<(), Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let mut tries = Tries::new(self.terms.wait, BootInstant::now());
        loop {
            let token = self.check()?;
            if self.belief(|belief| belief.mode) == Mode::Write {
                return Ok(());
            }
            let changing = Changing::begin(self, Some(Change::Upgrade));
            // It is renewed meanwhile, whatever it was to be.
            self.wake();
            let asking = self.ask_upgrade(&place, token, &tries);
            let asked = self.unless_lost(asking).await?.map(Some);
            changing.decide(&asked);
            let Err(failed) = asked else {
                self.belief(|belief| belief.mode = Mode::Write);
                return Ok(());
            };
            // If the server has denied it because the hold is gone, the next renewal says so.
            if matches!(failed, Failed::Denied) && !tries.is_over(BootInstant::now()) {
                drop(self.renew_once().await);
            }
            self.check().map_err(|lost| failed.clone().error(lost))?;
            self.core
                .pause(tries.after(failed, BootInstant::now())?)
                .await;
        }
    }

    /// Asks once, under the name of the hold. An unknown outcome ends the hold.
    async fn ask_upgrade(
        &self,
        place: &Place,
        token: Token,
        tries: &Tries,
    ) -> Result<Grant, Failed> {
        let (core, terms) = (&self.core, self.changed_terms(Mode::Write));
        let place = core.servers.route(&place.key).await;
        let place = place.map_err(Failed::Refused)?;
        let keys = [place.key.clone()].into();
        let claim = Claim::new(core, place, &keys, self.owner.clone(), &terms);
        let wait = tries.to_queue(BootInstant::now());
        let grant = claim.ask(Some(token), wait).await?;
        if self.core.settings.replicas == 0 {
            return Ok(grant);
        }
        // A writer only once replicas have that: by its new token.
        let (place, token) = (&claim.place, Some(grant.token));
        let confirmed = core.renew(place, &self.owner, terms.lease, token).await;
        let gone = Error::Lost(Loss::Denied);
        confirmed.map_err(|failed| Failed::Unknown(failed.error(gone)))
    }

    /// What a request for another mode asks for.
    fn changed_terms(&self, mode: Mode) -> Terms {
        let mut terms = self.terms.clone();
        terms.lease = self.belief(|belief| belief.lease(BootInstant::now()));
        if mode == Mode::Write {
            (terms.count, terms.of) = (1, None);
        }
        Terms { mode, ..terms }
    }

    /// Makes a writer a reader: waiting readers are granted the lock, too.
    pub(crate) async fn downgrade(&self) -> Result<(), Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let token = self.check()?;
        if self.belief(|belief| belief.mode) == Mode::Read {
            return Ok(());
        }
        if !self.belief(|belief| belief.reads) {
            let terms = self.changed_terms(Mode::Read);
            let read = request::acquire(std::slice::from_ref(&self.key), &self.owner, &terms);
            let changing = Changing::begin(self, None);
            changing.send(&place, &request::by(token, read)).await?;
            self.belief(|belief| belief.reads = true);
        }
        let end = request::writes(&place.key, &self.owner, 0);
        let changing = Changing::begin(self, None);
        changing.send(&place, &request::by(token, end)).await?;
        self.belief(|belief| belief.mode = Mode::Read);
        Ok(())
    }

    /// Transfers the hold to another name. From the moment this is sent nobody may rely on it. If the outcome is unknown, neither
    /// name keeps a hold.
    pub(crate) async fn pass_to(&self, new_owner: Bytes, lease: Lease) -> Result<Token, Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let token = self.check()?;
        let pass = request::pass(&place.key, &self.owner, &new_owner, lease);
        let mut changing = Changing::begin(self, Some(Change::Pass));
        changing.passed_to = Some((place.clone(), new_owner, lease));
        let passed = changing.send(&place, &request::by(token, pass)).await?;
        self.set_left();
        Ok(Token::new(passed))
    }
}

/// Takes over what `owner` holds by `token`, by passing it once more, to a name of this client's. An unknown outcome leaves neither
/// that name nor the hold.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    names: &Names,
    keys: &Arc<[Bytes]>,
    terms: &Terms,
    owner: &Bytes,
    token: Token,
) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    let place = core.servers.route(&keys[0]).await?;
    let mut claim = Claim::new(core, place, keys, names.next(), terms);
    let pass = request::pass(&keys[0], owner, &claim.owner, terms.lease);
    let pass = request::by(token, pass);
    loop {
        core.check_open()?;
        claim.is_open = true;
        let limit = core.settings.reply;
        let reply = core.servers.call(&claim.place, &pass, limit).await;
        let failed = match reply.and_then(|reply| request::granted(reply, terms.lease)) {
            Ok(grant) => return taken(claim, core, grant).await,
            Err(Failed::Unknown(error)) => return Err(error),
            Err(failed) => failed,
        };
        claim.is_open = false;
        if matches!(failed, Failed::Denied) {
            return Err(Error::Lost(Loss::Denied));
        }
        core.pause(tries.after(failed, BootInstant::now())?).await;
    }
}

/// The hold that was taken over: in the mode that it has. This crate's holds write once.
async fn taken(mut claim: Claim, core: &Core, grant: Grant) -> Result<Guard, Error> {
    let place = &claim.place;
    let lower = request::writes(&place.key, &claim.owner, 1);
    let lower = request::by(grant.token, lower);
    let reply = core.servers.call(place, &lower, core.settings.reply).await;
    claim.terms.mode = match reply.and_then(|reply| request::number(reply.value)) {
        Ok(_) => Mode::Write,
        Err(Failed::Denied) => Mode::Read,
        Err(failed) => return Err(failed.error(Error::Lost(Loss::Denied))),
    };
    claim.held(grant).await
}
