//! Acquiring a lock: in the caller's future, by mail where it has to wait, under a new name for each try.

use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;
use tokio::sync::watch;

use crate::belief::{Belief, Grant, Part};
use crate::core::Core;
use crate::error::{Error, Failed};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::name::Bytes;
use crate::node::Place;
use crate::request::{self, Terms};
use crate::retry::Tries;
use crate::servers::REDIRECTIONS;
use crate::time::BootInstant;
use crate::token::Token;

/// What a name asks for at one server. Dropped while it is unknown what the server has of it, the name is left.
pub(crate) struct Claim {
    core: Arc<Core>,
    /// Where the first of the keys is.
    pub(crate) place: Place,
    pub(crate) owner: Bytes,
    pub(crate) terms: Arc<Terms>,
    /// The server may have something of it.
    is_open: bool,
    /// Has [`Core::close`] wait for it.
    _pending: watch::Receiver<()>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_open {
            for place in self.places() {
                let leave = request::leave_for_good(&place.key, &self.owner);
                self.core.leave(place, leave, self.terms.lease);
            }
        }
    }
}

impl Claim {
    /// What a name asks for that the server has nothing of yet.
    pub(crate) fn new(core: &Arc<Core>, place: Place, owner: Bytes, terms: &Arc<Terms>) -> Claim {
        Claim {
            core: core.clone(),
            place,
            owner,
            terms: terms.clone(),
            is_open: false,
            _pending: core.pending(),
        }
    }

    /// Its keys on the server.
    fn places(&self) -> Vec<Place> {
        let place = |key: &Bytes| Place::new(self.place.node.clone(), key.clone());
        self.terms.keys.iter().map(place).collect()
    }

    /// Nothing is left of it, or the caller now owns what is. Returns its keys on the server.
    pub(crate) fn settle(&mut self) -> Vec<Place> {
        self.is_open = false;
        self.places()
    }

    /// Takes the outcome of a call by which the server may have granted the name something.
    fn decide<T>(&mut self, outcome: &Result<T, Failed>) {
        self.is_open = matches!(outcome, Ok(_) | Err(Failed::Unknown(_)));
    }

    /// Awaits a call by which the server may grant the name something. Until its outcome is known, the name has to leave.
    pub(crate) async fn decided<T>(
        &mut self,
        call: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        self.is_open = true;
        let outcome = call.await;
        self.decide(&outcome);
        outcome
    }

    /// Asks once, under a name that the server has not seen, for so many milliseconds (0: without limit; `None`: at once).
    pub(crate) async fn win(mut self, wait: Option<u64>) -> Result<(Claim, Grant), Failed> {
        self.is_open = true;
        let granted = self.ask(None, wait).await;
        self.decide(&granted);
        Ok((self, granted?))
    }

    /// The request for what it asks for.
    pub(crate) fn request(&self) -> Cmd {
        request::acquire(&self.owner, &self.terms)
    }

    /// Sends the request, which may wait, and follows it through a cluster. With a token it concerns only a hold by that. Returns what the
    /// server grants.
    pub(crate) async fn ask(
        &mut self,
        token: Option<Token>,
        wait: Option<u64>,
    ) -> Result<Grant, Failed> {
        let mut redirections = 0..REDIRECTIONS;
        loop {
            let asked = self.ask_here(token, wait).await;
            let next = self.core.servers.next(&self.place, &asked);
            match next.map_err(Failed::Refused)? {
                Some(next) if redirections.next().is_some() => self.place = next,
                _ => return asked,
            }
        }
    }

    /// Returns what one server grants: at once, or by a letter.
    async fn ask_here(&self, token: Option<Token>, wait: Option<u64>) -> Result<Grant, Failed> {
        let (mail, lease) = (&self.place.node.mail, self.terms.lease);
        let entry = mail.enter(&self.owner);
        // Whatever ends the client has ended it before, or finds the entry.
        self.core.check_open().map_err(Failed::Refused)?;
        let mut request = self.request();
        if let Some(token) = token {
            request = request::by(token, request);
        }
        if let Some(wait) = wait {
            let is_here = |name: &[u8]| self.core.servers.has(&self.place.node, name);
            request = request::waiting(request, wait, &mail.mailbox(is_here));
        }
        let reply = self.place.call(&request, self.core.settings.reply).await?;
        let Some(since) = request::queued(&reply.value) else {
            return request::granted(reply, lease);
        };
        let decision = entry.decision(since);
        let decided = match wait {
            // As long as the request may wait, and an answer may take.
            Some(wait @ 1..) => {
                let limit = Duration::from_millis(wait).saturating_add(self.core.settings.reply);
                let late = Error::of_line("", "UNBLOCKED", "no letter in time");
                let decided = self.core.runtime.limited(limit, decision).await;
                decided.unwrap_or(Err(Failed::Unknown(late)))
            }
            _ => decision.await,
        };
        let (token, since) = decided?;
        Ok(Grant::new(token, since.max(reply.sent), lease))
    }

    /// Turns what the server has granted into a hold.
    pub(crate) async fn held(mut self, grant: Grant) -> Result<Guard, Error> {
        let places = self.settle();
        let (mode, lease) = (self.terms.mode, self.terms.lease);
        let parts = vec![Part::new(grant, lease); places.len()];
        let belief = Belief::new(grant.token, mode, lease, parts.len(), parts);
        let owner = self.owner.clone();
        Guard::new(Hold::keep(&self.core, owner, &self.terms, belief, places)).await
    }
}

/// Acquires a lock from one server, or a cluster: tries until it is granted, or the wait is over.
pub(crate) async fn acquire(core: &Arc<Core>, terms: &Arc<Terms>) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    loop {
        core.check_open()?;
        let failed = match core.servers.route(&terms.keys[0]).await {
            Ok(place) => {
                let claim = Claim::new(core, place, terms.owner.next(), terms);
                let won = claim.win(tries.to_queue(BootInstant::now())).await;
                core.check_open()?;
                match won {
                    Ok((claim, grant)) => match claim.held(grant).await {
                        Ok(guard) => return Ok(guard),
                        Err(error) => Failed::Refused(error),
                    },
                    Err(failed) => failed,
                }
            }
            Err(error) => Failed::Refused(error),
        };
        let pause = tries.after(failed, BootInstant::now())?;
        core.runtime.sleep(pause).await;
    }
}
