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
use crate::node::{Place, Route};
use crate::request::{self, Late, Name, Terms};
use crate::retry::Tries;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// A name while it is unknown what a server has of it. Dropped, the name is left.
pub(crate) struct Armed {
    core: Arc<Core>,
    pub(crate) places: Vec<Place>,
    name: Name,
    lease: Lease,
}

impl Drop for Armed {
    fn drop(&mut self) {
        for place in self.places.drain(..) {
            let (owner, lease) = (&self.name.owner, self.lease);
            self.core.leave(place, owner, lease, Late::Requests);
        }
    }
}

impl Armed {
    pub(crate) fn new(core: &Arc<Core>, route: &Route, name: &Name, lease: Lease) -> Armed {
        let place = |key: &Bytes| Place {
            node: route.node.clone(),
            key: key.clone(),
        };
        Armed {
            core: core.clone(),
            places: name.keys.iter().map(place).collect(),
            name: name.clone(),
            lease,
        }
    }

    /// Disarms the name: nothing is left of it, or the caller now owns what is. Returns its keys on the server.
    pub(crate) fn settle(mut self) -> Vec<Place> {
        std::mem::take(&mut self.places)
    }
}

/// What a server has granted to a name.
pub(crate) struct Won {
    pub(crate) armed: Armed,
    pub(crate) grant: Grant,
}

impl Won {
    /// The first key on the server.
    pub(crate) fn place(&self) -> &Place {
        &self.armed.places[0]
    }

    /// Disarms the name: the caller now owns its hold. Returns its keys on the server.
    pub(crate) fn settle(self) -> Vec<Place> {
        self.armed.settle()
    }
}

/// One request to one server.
pub(crate) struct Attempt {
    pub(crate) route: Route,
    pub(crate) name: Name,
    pub(crate) terms: Terms,
    /// The token of the hold that it adds to, if it does.
    pub(crate) token: Option<Token>,
    /// For how many milliseconds it may wait; 0: without limit; `None`: not at all.
    pub(crate) wait: Option<u64>,
}

impl Attempt {
    /// Asks once, under a name that the server has not seen. Dropped, the name is left.
    pub(crate) async fn win(&self, core: &Arc<Core>) -> Result<Won, Failed> {
        let armed = Armed::new(core, &self.route, &self.name, self.terms.lease);
        match self.ask(core).await {
            Ok(grant) => Ok(Won { armed, grant }),
            Err(failed) => {
                if !matches!(failed, Failed::Unknown(_)) {
                    armed.settle();
                }
                Err(failed)
            }
        }
    }

    /// Asks once. Returns what the server grants: at once, or by a letter.
    pub(crate) async fn ask(&self, core: &Core) -> Result<Grant, Failed> {
        let (mail, lease) = (&self.route.node.mail, self.terms.lease);
        let entered = mail.enter(&self.name, lease);
        let mut entry = entered.map_err(Failed::Refused)?;
        let mut request = request::acquire(&self.name, &self.terms);
        if let Some(token) = self.token {
            request = request::by(token, request);
        }
        if let Some(wait) = self.wait {
            request = request::waiting(request, wait, &mail.mailbox(&self.name.keys[0]));
        }
        let reply = self.route.call(&request, core.settings.reply).await?;
        let Some(since) = request::queued(&reply.value) else {
            return request::granted(reply, lease);
        };
        let (token, granted) = self.decision(core, &mut entry, since).await?;
        Ok(Grant::new(token, granted.max(reply.sent), lease))
    }

    /// Waits for what the server decides: as long as the request may wait and an answer may take.
    async fn decision(
        &self,
        core: &Core,
        entry: &mut Entry,
        since: i64,
    ) -> Result<(Token, BootInstant), Failed> {
        let decision = entry.decision(since);
        let Some(wait @ 1..) = self.wait else {
            return decision.await;
        };
        let limit = Duration::from_millis(wait).saturating_add(core.settings.reply);
        let decided = core.runtime.limited(limit, decision).await;
        let late = || Error::of_line("", "UNBLOCKED", "no letter in time");
        decided.unwrap_or_else(|| Err(Failed::Unknown(late())))
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
        let attempt = Attempt {
            route: match redirected.take() {
                Some(route) => route,
                None => core.servers.route(&keys[0]).await?,
            },
            name: Name {
                keys: keys.clone(),
                owner: names.next(),
            },
            terms: terms.clone(),
            token: None,
            wait: tries.to_queue(BootInstant::now()),
        };
        let failed = match attempt.win(core).await {
            Ok(won) => match held(core, attempt.name.owner, terms, won).await {
                Ok(guard) => return Ok(guard),
                Err(error) => Failed::Refused(error),
            },
            Err(failed) => failed,
        };
        core.check_open()?;
        redirected = core.servers.redirected(&attempt.route, &keys[0], &failed)?;
        if redirected.is_none() || !tries.follow() {
            core.pause(tries.after(failed, BootInstant::now())?).await;
        }
    }
}

/// Turns what one server has granted into a hold.
pub(crate) async fn held(
    core: &Arc<Core>,
    owner: Bytes,
    terms: &Terms,
    won: Won,
) -> Result<Guard, Error> {
    let grant = won.grant;
    let places = won.settle();
    let parts = places.iter().map(|_| Part::new(grant, terms.lease));
    let parts: Vec<_> = parts.collect();
    let belief = Belief::new(grant.token, terms.mode, terms.lease, parts.len(), parts);
    Guard::new(Hold::keep(core, owner, terms, belief, places)).await
}
