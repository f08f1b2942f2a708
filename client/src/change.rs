//! Changes of a hold on one server: upgrade, downgrade, and passing it on. A hold whose change has an unknown outcome is not kept.

use redis::Cmd;

use crate::acquire::Attempt;
use crate::belief::{Change, Grant};
use crate::error::{Error, Failed, Loss};
use crate::name::{Bytes, Mode};
use crate::node::Place;
use crate::request::{self, Late, Name, Terms};
use crate::retry::Tries;
use crate::servers::not_over_quorum;
use crate::share::Share;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A change in progress. Dropped before its outcome is known, the hold is over.
struct Changing<'a> {
    share: &'a Share,
    is_decided: bool,
    /// Who may have it then, and for how long.
    passed_to: Option<(Place, Bytes, Lease)>,
}

impl Changing<'_> {
    fn begin(share: &Share, change: Change) -> Changing<'_> {
        share.hold.belief(|belief| belief.begin_change(change));
        Changing {
            share,
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
        let hold = &self.share.hold;
        hold.belief(|belief| belief.end_change(granted, now));
    }

    /// Sends what changes the hold, but gives it no new token. Returns the number that the server replies.
    async fn send(self, place: &Place, command: &Cmd) -> Result<u64, Error> {
        let Share { core, hold } = self.share;
        let reply = core.servers.call(place, command, core.settings.reply).await;
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
        let Share { core, hold } = self.share;
        hold.end(Loss::Unknown);
        core.leave_hold(hold);
        if let Some((place, owner, lease)) = self.passed_to.take() {
            core.leave(place, &owner, lease, Late::Requests);
        }
    }
}

impl Share {
    /// Where the hold is, if it is one key on one server.
    pub(crate) fn one_place(&self) -> Result<Place, Error> {
        let mut places = self.hold.places();
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
        let (place, Share { core, hold }) = (self.one_place()?, self);
        let _turn = hold.turn.lock().await;
        let mut tries = Tries::new(hold.terms.wait, BootInstant::now());
        loop {
            let token = hold.check()?;
            if hold.belief(|belief| belief.mode) == Mode::Write {
                return Ok(());
            }
            let changing = Changing::begin(self, Change::Upgrade);
            // It is renewed meanwhile, whatever it was to be.
            core.keeper.schedule(hold);
            let asking = self.ask_upgrade(&place, token, &tries);
            let asked = hold.unless_lost(asking).await?.map(Some);
            changing.decide(&asked);
            let Err(failed) = asked else {
                hold.belief(|belief| belief.mode = Mode::Write);
                return Ok(());
            };
            // If the server has denied it because the hold is gone, the next renewal says so.
            if matches!(failed, Failed::Denied) && !tries.is_over(BootInstant::now()) {
                drop(core.keeper.renew_now(hold).await);
            }
            hold.check().map_err(|lost| failed.clone().error(lost))?;
            core.pause(tries.after(failed, BootInstant::now())?).await;
        }
    }

    async fn ask_upgrade(
        &self,
        place: &Place,
        token: Token,
        tries: &Tries,
    ) -> Result<Grant, Failed> {
        let route = self.core.servers.route(&place.key).await;
        let attempt = Attempt {
            route: route.map_err(Failed::Refused)?,
            name: Name {
                keys: [place.key.clone()].into(),
                owner: self.hold.owner.clone(),
            },
            terms: self.terms(Mode::Write),
            token: Some(token),
            wait: tries.to_queue(BootInstant::now()),
        };
        let grant = attempt.ask(&self.core).await?;
        let Some(replicas) = &attempt.route.node.replicas else {
            return Ok(grant);
        };
        // A writer only once replicas have that: by its new token.
        let (owner, lease) = (&self.hold.owner, attempt.terms.lease);
        let confirming = replicas.confirm_grant(&place.key, owner, lease, grant.token);
        let gone = Error::Lost(Loss::Denied);
        let confirmed = confirming.await;
        confirmed.map_err(|failed| Failed::Unknown(failed.error(gone)))
    }

    /// What a request for another mode asks for.
    fn terms(&self, mode: Mode) -> Terms {
        let (hold, now) = (&self.hold, BootInstant::now());
        let mut terms = hold.terms.clone();
        terms.lease = hold.belief(|belief| belief.lease(now));
        if mode == Mode::Write {
            (terms.count, terms.of) = (1, None);
        }
        Terms { mode, ..terms }
    }

    /// Makes a writer a reader: waiting readers are granted the lock, too.
    pub(crate) async fn downgrade(&self) -> Result<(), Error> {
        let (place, hold) = (self.one_place()?, &self.hold);
        let _turn = hold.turn.lock().await;
        let token = hold.check()?;
        if hold.belief(|belief| belief.mode) == Mode::Read {
            return Ok(());
        }
        if !hold.belief(|belief| belief.reads) {
            let name = Name {
                keys: [place.key.clone()].into(),
                owner: hold.owner.clone(),
            };
            let read = request::acquire(&name, &self.terms(Mode::Read));
            let changing = Changing::begin(self, Change::Downgrade);
            changing.send(&place, &request::by(token, read)).await?;
            hold.belief(|belief| belief.reads = true);
        }
        let end = request::writes(&place.key, &hold.owner, 0);
        let changing = Changing::begin(self, Change::Downgrade);
        changing.send(&place, &request::by(token, end)).await?;
        hold.belief(|belief| belief.mode = Mode::Read);
        Ok(())
    }

    /// Transfers the hold to another name. From the moment this is sent nobody may rely on it. If the outcome is unknown, neither
    /// name keeps a hold.
    pub(crate) async fn pass_to(&self, new_owner: Bytes, lease: Lease) -> Result<Token, Error> {
        let (place, hold) = (self.one_place()?, &self.hold);
        let _turn = hold.turn.lock().await;
        let token = hold.check()?;
        let pass = request::pass(&place.key, &hold.owner, &new_owner, lease);
        let mut changing = Changing::begin(self, Change::Pass);
        changing.passed_to = Some((place.clone(), new_owner, lease));
        let passed = changing.send(&place, &request::by(token, pass)).await?;
        self.set_left();
        Ok(Token::new(passed))
    }
}
