//! Changes of a hold: upgrade, downgrade, passing it on, taking it over, and keeping its lock taken. A hold whose change has an
//! unknown outcome is not kept.

use std::sync::Arc;

use redis::Cmd;

use crate::acquire::Claim;
use crate::belief::Grant;
use crate::core::Core;
use crate::error::{Error, Failed, Loss};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::name::{Bytes, Mode};
use crate::node::Place;
use crate::request::{self, Terms};
use crate::retry::Tries;
use crate::servers::not_over_quorum;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A change on its way. Dropped before its outcome is known, the hold is over.
struct Changing<'a>(&'a Hold);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        // One that was lost before is left with its guard: until then it keeps others out.
        if self.0.end(Loss::Unknown) {
            self.0.leave();
        }
    }
}

/// What a server means that knows of no such hold.
fn gone(failed: Failed) -> Error {
    failed.error(Error::Lost(Loss::Denied))
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

    /// A name for what the hold becomes, in this mode and for this lease. The server has nothing of it yet.
    fn claim(&self, place: &Place, owner: &Bytes, mode: Mode, lease: Lease) -> Claim {
        let terms = Terms {
            mode,
            lease,
            ..(*self.terms).clone()
        };
        Claim::new(&self.core, place.clone(), owner.clone(), &Arc::new(terms))
    }

    /// Awaits the outcome of a change. Unless that is known, the hold is over.
    async fn decided<T>(
        &self,
        change: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let changing = Changing(self);
        let outcome = change.await;
        if !matches!(outcome, Err(Failed::Unknown(_))) {
            std::mem::forget(changing);
        }
        outcome
    }

    /// Sends what changes the hold, but gives it no new token. Returns the number that the server replies.
    async fn send(&self, place: &Place, command: Cmd) -> Result<u64, Failed> {
        let answer = self.decided(self.core.number(place, &command)).await;
        if let Err(Failed::Denied) = answer {
            self.end(Loss::Denied);
        }
        answer
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
            let wait = tries.to_queue(BootInstant::now());
            let asking = self.decided(self.ask_upgrade(&place, token, wait));
            let failed = match self.unless_lost(asking).await? {
                Ok(grant) => {
                    self.belief(|belief| belief.upgrade(grant, BootInstant::now()));
                    return self.check().map(drop);
                }
                Err(failed) => failed,
            };
            // If the server has denied it because the hold is gone, the next renewal says so.
            if matches!(failed, Failed::Denied) && !tries.is_over(BootInstant::now()) {
                drop(self.renew_once().await);
            }
            self.check().map_err(|lost| failed.clone().error(lost))?;
            let pause = tries.after(failed, BootInstant::now())?;
            self.core.runtime.sleep(pause).await;
        }
    }

    /// Asks once, under the name of the hold. An unknown outcome ends the hold.
    async fn ask_upgrade(
        &self,
        place: &Place,
        token: Token,
        wait: Option<u64>,
    ) -> Result<Grant, Failed> {
        let core = &self.core;
        let place = core.servers.route(&place.key).await;
        let place = place.map_err(Failed::Refused)?;
        let lease = self.belief(|belief| belief.lease(BootInstant::now()));
        let mut claim = self.claim(&place, &self.owner, Mode::Write, lease);
        let grant = claim.ask(Some(token), wait).await?;
        if core.settings.replicas == 0 {
            return Ok(grant);
        }
        // A writer only once replicas have that: by its new token.
        let confirmed = core.renew(&place, &self.owner, lease, grant.token).await;
        confirmed.map_err(|failed| Failed::Unknown(gone(failed)))
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
            let lease = self.belief(|belief| belief.lease(BootInstant::now()));
            let read = self.claim(&place, &self.owner, Mode::Read, lease).request();
            let read = self.send(&place, request::by(token, read)).await;
            read.map_err(gone)?;
            self.belief(|belief| belief.reads = true);
        }
        // From the moment this is sent others may read.
        self.belief(|belief| belief.mode = Mode::Read);
        let end = request::writes(&place.key, &self.owner, 0);
        let ended = self.send(&place, request::by(token, end)).await;
        if let Err(Failed::Refused(_)) = ended {
            self.belief(|belief| belief.mode = Mode::Write);
        }
        ended.map_err(gone)?;
        self.check().map(drop)
    }

    /// Transfers the hold to another name. From the moment this is sent nobody may rely on it. If the outcome is unknown, neither
    /// name keeps a hold.
    pub(crate) async fn pass_to(&self, new_owner: Bytes, lease: Lease) -> Result<Token, Error> {
        let place = self.one_place()?;
        let _turn = self.turn.lock().await;
        let token = self.check()?;
        let mode = self.belief(|belief| belief.mode);
        let mut next = self.claim(&place, &new_owner, mode, lease);
        let pass = request::pass(&place.key, &self.owner, &new_owner, lease);
        self.belief(|belief| belief.is_passing = true);
        let pass = self.send(&place, request::by(token, pass));
        let passed = next.decided(pass).await;
        if passed.is_ok() {
            self.end(Loss::Passed);
            self.set_left();
            next.settle();
        }
        self.belief(|belief| belief.is_passing = false);
        // No renewal was due meanwhile.
        self.wake();
        passed.map(Token::new).map_err(gone)
    }

    /// Keeps the lock taken for `lease` from now: by a name that nobody works under. That name leaves unless enough servers have it.
    pub(crate) async fn keep_for(&self, lease: Lease) -> Result<(), Error> {
        let (core, heir) = (&self.core, self.core.owner.next());
        let kept = self.give_up(|place, token| {
            let mut next = self.claim(&place, &heir, self.terms.mode, lease);
            let pass = request::pass(&place.key, &self.owner, &heir, lease);
            async move {
                let pass = request::by(token, pass);
                let passed = next.decided(core.number(&place, &pass)).await?;
                let token = Token::new(passed);
                if core.settings.replicas > 0 {
                    core.renew(&place, &next.owner, lease, token).await?;
                }
                Ok(next)
            }
        });
        for mut next in kept.await? {
            next.settle();
        }
        Ok(())
    }
}

/// Takes over what `owner` holds by `token`, by passing it once more, to a name of this client's. If the outcome is unknown, that name
/// leaves.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    terms: &Arc<Terms>,
    owner: &Bytes,
    token: Token,
) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    let key = &terms.keys[0];
    let place = core.servers.route(key).await?;
    let mut claim = Claim::new(core, place.clone(), terms.owner.next(), terms);
    let pass = request::pass(key, owner, &claim.owner, terms.lease);
    let pass = request::by(token, pass);
    let limit = core.settings.reply;
    let grant = loop {
        core.check_open()?;
        let passed = async {
            let reply = core.servers.call(&place, &pass, limit).await?;
            request::granted(reply, terms.lease)
        };
        match claim.decided(passed).await {
            Ok(grant) => break grant,
            Err(failed @ Failed::Refused(_)) => {
                core.runtime
                    .sleep(tries.after(failed, BootInstant::now())?)
                    .await;
            }
            Err(failed) => return Err(gone(failed)),
        }
    };
    // It has the mode that it had. This crate's holds write once.
    let lower = request::by(grant.token, request::writes(key, &claim.owner, 1));
    Arc::make_mut(&mut claim.terms).mode = match core.number(&claim.place, &lower).await {
        Ok(_) => Mode::Write,
        Err(Failed::Denied) => Mode::Read,
        Err(failed) => return Err(gone(failed)),
    };
    claim.held(grant).await
}
