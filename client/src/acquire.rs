//! Acquiring a lock: in the caller's future, by mail where it has to wait, under a new name for each try.

use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Grant, Part};
use crate::core::Core;
use crate::error::{Error, Failed};
use crate::hold::{Granted, Hold, Share};
use crate::link::Reply;
use crate::mail::Entry;
use crate::name::{Bytes, Names};
use crate::node::{Place, Route};
use crate::request::{self, Answer, Late, Name, Queue, Terms};
use crate::retry::{Tries, Wait};
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// What an acquisition is to make.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) keys: Arc<[Bytes]>,
    pub(crate) terms: Terms,
    pub(crate) wait: Wait,
    pub(crate) renews: bool,
    pub(crate) max_hold: Option<Duration>,
}

/// A name while it is unknown what a server has of it. Dropped, the name is left.
pub(crate) struct Armed {
    core: Arc<Core>,
    route: Route,
    name: Name,
    lease: Lease,
    is_settled: bool,
}

impl Drop for Armed {
    fn drop(&mut self) {
        if !self.is_settled {
            for place in self.places() {
                self.core
                    .leave(place, self.name.owner.clone(), self.lease, Late::Requests);
            }
        }
    }
}

impl Armed {
    pub(crate) fn new(core: &Arc<Core>, route: Route, name: Name, lease: Lease) -> Armed {
        Armed {
            core: core.clone(),
            route,
            name,
            lease,
            is_settled: false,
        }
    }

    /// The name's keys on the server.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |key: &Bytes| Place {
            node: self.route.node.clone(),
            key: key.clone(),
        };
        self.name.keys.iter().map(place).collect()
    }

    /// Nothing is left, or somebody else takes care of it. Returns the name's keys on the server.
    pub(crate) fn settle(mut self) -> Vec<Place> {
        self.is_settled = true;
        self.places()
    }
}

/// What a server has granted to a name.
pub(crate) struct Won {
    pub(crate) armed: Armed,
    pub(crate) grant: Grant,
}

impl Won {
    /// The first key on the server.
    pub(crate) fn place(&self) -> Place {
        Place {
            node: self.armed.route.node.clone(),
            key: self.armed.name.keys[0].clone(),
        }
    }

    pub(crate) fn owner(&self) -> &Bytes {
        &self.armed.name.owner
    }
}

/// One request to one server, under a name that it has not seen.
pub(crate) struct Attempt {
    pub(crate) route: Route,
    pub(crate) name: Name,
    pub(crate) terms: Terms,
    /// For how many milliseconds it may wait; 0: without limit; `None`: not at all.
    pub(crate) wait: Option<u64>,
}

impl Attempt {
    /// Asks once. Dropped, the name is left.
    pub(crate) async fn ask(self, core: &Arc<Core>) -> Result<Won, Failed> {
        let Attempt {
            route,
            name,
            terms,
            wait,
        } = self;
        let mail = &route.node.mail;
        let mut entry = mail.enter(&name, terms.lease).map_err(Failed::Refused)?;
        let mailbox = || mail.mailbox(|| core.servers.tag(&name.keys[0]));
        let queue = wait.map(|wait| Queue {
            wait,
            mailbox: mailbox(),
        });
        let command = request::acquire(&name, terms, queue.as_ref());
        let armed = Armed::new(core, route.clone(), name, terms.lease);
        let asked = async {
            let reply = route.call(&command, core.settings.reply).await?;
            granted(core, &mut entry, reply, terms.lease, wait).await
        };
        match asked.await {
            Ok(grant) => Ok(Won { armed, grant }),
            Err(failed) => {
                if !matches!(failed, Failed::Unknown(_)) {
                    armed.settle();
                }
                Err(failed)
            }
        }
    }
}

/// A grant that a server made at `since` at the earliest.
pub(crate) fn grant(token: Token, since: BootInstant, lease: Lease) -> Grant {
    Grant {
        token,
        since,
        until: lease.believed_until(since),
    }
}

/// What the server grants to a request with this reply: at once, or by a letter.
pub(crate) async fn granted(
    core: &Core,
    entry: &mut Entry,
    reply: Reply,
    lease: Lease,
    wait: Option<u64>,
) -> Result<Grant, Failed> {
    match request::answer(reply.value)? {
        Answer::Granted(token) => Ok(grant(token, reply.sent, lease)),
        Answer::Queued(since) => {
            let (token, granted) = await_letter(core, entry, since, wait).await?;
            Ok(grant(token, granted.max(reply.sent), lease))
        }
    }
}

/// Waits for what the server decides: as long as the request may wait and an answer may take.
async fn await_letter(
    core: &Core,
    entry: &mut Entry,
    since: i64,
    wait: Option<u64>,
) -> Result<(Token, BootInstant), Failed> {
    let decision = entry.decision(since);
    match wait {
        Some(0) | None => decision.await.into(),
        Some(wait) => {
            let limit = Duration::from_millis(wait).saturating_add(core.settings.reply);
            let decided = core.runtime.limited(limit, decision).await;
            let late = |_| Failed::Unknown(Error::of_line("", "UNBLOCKED", "no letter in time"));
            decided.map_err(late)?.into()
        }
    }
}

/// Acquires a lock from one server, or a cluster: tries until it is granted, or the wait is over.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    names: &Names,
    wanted: &Wanted,
) -> Result<Share, Error> {
    let mut tries = Tries::new(wanted.wait, BootInstant::now());
    let mut redirected = None;
    loop {
        core.check_open()?;
        let route = match redirected.take() {
            Some(route) => route,
            None => core.servers.route(&wanted.keys[0]).await?,
        };
        let attempt = Attempt {
            route: route.clone(),
            name: Name {
                keys: wanted.keys.clone(),
                owner: names.next(),
            },
            terms: wanted.terms,
            wait: tries.to_queue(BootInstant::now()),
        };
        let failed = match attempt.ask(core).await {
            Ok(won) => match wanted.held(core, won).await {
                Ok(share) => return Ok(share),
                Err(error) => Failed::Refused(error),
            },
            Err(failed) => failed,
        };
        core.check_open()?;
        core.servers.notice(&failed);
        if let Failed::Refused(error) = &failed
            && let Some(next) = core.servers.redirected(&route, &wanted.keys[0], error)
        {
            redirected = Some(next?);
            if tries.follow() {
                continue;
            }
        }
        core.pause(tries.after(failed, BootInstant::now())?).await;
    }
}

impl Wanted {
    /// The hold of what one server has granted.
    pub(crate) async fn held(
        &self,
        core: &Arc<Core>,
        Won { armed, grant }: Won,
    ) -> Result<Share, Error> {
        let owner = armed.name.owner.clone();
        let places = armed.settle();
        let Terms { lease, mode, .. } = self.terms;
        let parts = places.iter().map(|_| Part::new(grant, lease)).collect();
        let belief = Belief::new(grant.token, mode, lease, places.len(), parts);
        self.confirmed(core, owner, belief, places).await
    }

    /// A hold by this belief, once it is certain that it is there.
    pub(crate) async fn confirmed(
        &self,
        core: &Arc<Core>,
        owner: Bytes,
        mut belief: Belief,
        places: Vec<Place>,
    ) -> Result<Share, Error> {
        let Terms { lease, permits, .. } = self.terms;
        let missing = lease
            .believed_until(BootInstant::now())
            .since(belief.deadline());
        if let Some(limit) = self.max_hold {
            belief.limit(limit);
        }
        let (renews, wait) = (self.renews, self.wait);
        let share = Hold::share(
            core,
            Granted {
                owner,
                lease,
                renews,
                permits,
                wait,
                belief,
                places,
            },
        );
        // What closing the client did not find is given back here.
        core.check_open()?;
        // The letter may have been late. Past half of the lease, the server has to confirm that the hold is still there.
        if missing > lease.duration() / 2 {
            share.0.renew().await?;
        }
        Ok(share)
    }
}
