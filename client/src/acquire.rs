//! Acquiring a lock: in the caller's future, by mail where it has to wait, under a new name for each try.

use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Grant, Part};
use crate::core::Core;
use crate::error::{Error, Failed};
use crate::guard::Guard;
use crate::hold::Hold;
use crate::mail::Entry;
use crate::name::{Bytes, Names};
use crate::node::Place;
use crate::request::{self, Late, Terms};
use crate::retry::Tries;
use crate::time::BootInstant;
use crate::token::Token;

/// What a name asks for at one server. Dropped while it is unknown what the server has of it, the name is left.
pub(crate) struct Claim {
    core: Arc<Core>,
    /// Where the first of the keys is.
    pub(crate) place: Place,
    /// 1 to 16 keys.
    keys: Arc<[Bytes]>,
    pub(crate) owner: Bytes,
    pub(crate) terms: Terms,
    /// The server may have something of it.
    pub(crate) is_open: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.is_open {
            for place in self.places() {
                let (owner, lease) = (&self.owner, self.terms.lease);
                self.core.leave(place, owner, lease, Late::Requests);
            }
        }
    }
}

impl Claim {
    pub(crate) fn new(
        core: &Arc<Core>,
        place: Place,
        keys: &Arc<[Bytes]>,
        owner: Bytes,
        terms: &Terms,
    ) -> Claim {
        Claim {
            core: core.clone(),
            place,
            keys: keys.clone(),
            owner,
            terms: terms.clone(),
            is_open: false,
        }
    }

    /// Its keys on the server.
    fn places(&self) -> Vec<Place> {
        let place = |key: &Bytes| Place::new(self.place.node.clone(), key.clone());
        self.keys.iter().map(place).collect()
    }

    /// Nothing is left of it, or the caller now owns what is. Returns its keys on the server.
    pub(crate) fn settle(mut self) -> Vec<Place> {
        self.is_open = false;
        self.places()
    }

    /// Asks once, under a name that the server has not seen, for so many milliseconds (0: without limit; `None`: at once).
    pub(crate) async fn win(mut self, wait: Option<u64>) -> Result<(Claim, Grant), Failed> {
        self.is_open = true;
        match self.ask(None, wait).await {
            Ok(grant) => Ok((self, grant)),
            Err(failed) => {
                self.is_open = matches!(failed, Failed::Unknown(_));
                Err(failed)
            }
        }
    }

    /// Asks once; with a token, only to add to a hold with it. Returns what the server grants: at once, or by a letter.
    pub(crate) async fn ask(
        &self,
        token: Option<Token>,
        wait: Option<u64>,
    ) -> Result<Grant, Failed> {
        let (mail, lease) = (&self.place.node.mail, self.terms.lease);
        let entered = mail.enter(&self.keys, &self.owner, lease);
        let entry = entered.map_err(Failed::Refused)?;
        let mut request = request::acquire(&self.keys, &self.owner, &self.terms);
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
        let grant = self.decision(entry, since, wait).await?;
        Ok(Grant::new(grant.token, grant.since.max(reply.sent), lease))
    }

    /// Waits for what the server decides: as long as the request may wait and an answer may take.
    async fn decision(&self, entry: Entry, since: i64, wait: Option<u64>) -> Result<Grant, Failed> {
        let decision = entry.decision(since);
        let Some(wait @ 1..) = wait else {
            return decision.await;
        };
        let limit = Duration::from_millis(wait).saturating_add(self.core.settings.reply);
        let decided = self.core.runtime.limited(limit, decision).await;
        let late = || Error::of_line("", "UNBLOCKED", "no letter in time");
        decided.unwrap_or_else(|| Err(Failed::Unknown(late())))
    }

    /// Turns what the server has granted into a hold.
    pub(crate) async fn held(self, grant: Grant) -> Result<Guard, Error> {
        let (core, owner, terms) = (self.core.clone(), self.owner.clone(), self.terms.clone());
        let places = self.settle();
        let parts = places.iter().map(|_| Part::new(grant, terms.lease));
        let parts: Vec<_> = parts.collect();
        let belief = Belief::new(grant.token, terms.mode, terms.lease, parts.len(), parts);
        Guard::new(Hold::keep(&core, owner, &terms, belief, places)).await
    }
}

/// Acquires a lock from one server, or a cluster: tries until it is granted, or the wait is over.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    names: &Names,
    keys: &Arc<[Bytes]>,
    terms: &Terms,
) -> Result<Guard, Error> {
    let mut tries = Tries::new(terms.wait, BootInstant::now());
    let mut redirected = None;
    loop {
        core.check_open()?;
        let place = match redirected.take() {
            Some(place) => place,
            None => core.servers.route(&keys[0]).await?,
        };
        let claim = Claim::new(core, place.clone(), keys, names.next(), terms);
        let failed = match claim.win(tries.to_queue(BootInstant::now())).await {
            Ok((claim, grant)) => match claim.held(grant).await {
                Ok(guard) => return Ok(guard),
                Err(error) => Failed::Refused(error),
            },
            Err(failed) => failed,
        };
        core.check_open()?;
        redirected = core.servers.redirected(&place, &failed)?;
        if redirected.is_none() || !tries.follow() {
            core.pause(tries.after(failed, BootInstant::now())?).await;
        }
    }
}
