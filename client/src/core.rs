//! What a client, its guards and its background tasks share: the servers, the keeper of its holds, and whether the servers have
//! confirmed all releases.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ErrorKind, RedisError};
use tokio::sync::{Notify, watch};

use crate::belief::Grant;
use crate::error::{Error, Failed, NodeFailure, NodeReason};
use crate::keeper::Keeper;
use crate::name::{Bytes, Names};
use crate::node::Place;
use crate::quorum::votes::majority;
use crate::request::{self, Late};
use crate::retry::Tries;
use crate::runtime::Runtime;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::trace;

pub(crate) struct Core {
    pub(crate) servers: Servers,
    pub(crate) names: Names,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    is_closed: AtomicBool,
    closed: Notify,
    pub(crate) keeper: Arc<Keeper>,
    /// Whatever is not confirmed yet subscribes to it.
    pending: watch::Sender<()>,
    /// A release was given up.
    is_unconfirmed: AtomicBool,
}

/// How much longer than its lease a hold may be there, by a request that arrived late.
const LATEST: Duration = Duration::from_secs(5);

impl Core {
    pub(crate) fn new(
        servers: Servers,
        settings: Settings,
        runtime: Runtime,
    ) -> Result<Core, Error> {
        Ok(Core {
            names: Names::of_client(settings.name.as_deref())?,
            keeper: Keeper::new(&runtime),
            servers,
            runtime,
            settings,
            is_closed: AtomicBool::new(false),
            closed: Notify::new(),
            pending: watch::Sender::new(()),
            is_unconfirmed: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// An error if the client can do nothing any more.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match (self.is_closed(), self.runtime.is_gone()) {
            (true, _) => Err(Error::Closed),
            (_, true) => Err(Error::RuntimeGone),
            _ => Ok(()),
        }
    }

    /// Finds out whether enough servers are there, and have the module.
    pub(crate) async fn find(&self) -> Result<(), Error> {
        // Whatever lock it asks for, the answer is short.
        let (key, limit) = (b"mortise".as_slice().into(), self.settings.connect);
        if !self.settings.is_quorum() {
            // A cluster is asked for its nodes first.
            self.servers.route(&key).await?;
        }
        let nodes = self.servers.nodes();
        // Of a cluster one node is enough: others may hang.
        let needed = match self.settings.is_quorum() {
            true => majority(nodes.len()),
            false => 1,
        };
        let (key, probe) = (&key, &request::info(&key));
        let ask = |node| async move {
            let place = Place::new(node, key.clone());
            (place.call(probe, limit).await, place)
        };
        let mut asking: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
        let (mut found, mut failures) = (0, Vec::new());
        while found < needed
            && let Some((answer, place)) = asking.next().await
        {
            let Err(failed) = answer else {
                found += 1;
                continue;
            };
            // Only a server that knows a command says that the key is elsewhere, or that the user may not run it.
            let is_elsewhere = self.servers.redirected(&place, &failed)?.is_some();
            match failed.error(Error::unexpected(&"null")) {
                Error::Connection { server, error } if is_invalid(&error) => {
                    return Err(Error::Invalid(format!("{server}: {error}")));
                }
                Error::Refused { code, .. } if is_elsewhere || code == "NOPERM" => found += 1,
                error => failures.push(NodeFailure::new(&place.node.name, error)),
            }
        }
        match found >= needed {
            true => Ok(()),
            false => Err(self.too_few(failures, found, needed)),
        }
    }

    /// The error where fewer servers than are needed have confirmed a request.
    pub(crate) fn too_few(
        &self,
        mut nodes: Vec<NodeFailure>,
        granted: usize,
        needed: usize,
    ) -> Error {
        if self.settings.is_quorum() {
            return Error::NoQuorum {
                needed,
                granted,
                nodes,
            };
        }
        match nodes.pop().map(|node| node.reason) {
            Some(NodeReason::Failed(error) | NodeReason::Silent(error)) => *error,
            _ => Error::unexpected(&"too few confirmed it"),
        }
    }

    /// Waits for this time, or until the client is closed.
    pub(crate) async fn pause(&self, time: Duration) {
        if !time.is_zero() {
            let closed = self.closed.notified();
            if !self.is_closed() {
                self.runtime.limited(time, closed).await;
            }
        }
    }

    /// What keeps [`close`](Core::close) waiting, until it is dropped.
    pub(crate) fn pending(&self) -> watch::Receiver<()> {
        self.pending.subscribe()
    }

    /// Renews what a name holds at a place, where `token` is its token. Replicas have that, if they have to.
    pub(crate) async fn renew(
        &self,
        place: &Place,
        owner: &Bytes,
        lease: Lease,
        token: Option<Token>,
    ) -> Result<Grant, Failed> {
        let mut renew = request::renew(&place.key, owner, lease);
        if let Some(token) = token {
            renew = request::by(token, renew);
        }
        let home = self.servers.home(place);
        let reply = match &home.node.replicas {
            Some(replicas) => replicas.confirm(renew).await,
            None => {
                let limit = self.settings.reply.min(lease.renewal_period());
                self.servers.call(&home, &renew, limit).await
            }
        };
        if let Err(failed) = &reply {
            drop(self.servers.redirected(&home, failed));
        }
        request::granted(reply?, lease)
    }

    /// Removes what a name has or wants: in the background, until the server has answered, or nothing can be left.
    pub(crate) fn leave(self: &Arc<Self>, place: Place, owner: &Bytes, lease: Lease, late: Late) {
        let (core, pending) = (self.clone(), self.pending());
        let leave = request::leave(&place.key, owner, late);
        let longest = lease.duration().saturating_add(LATEST);
        let mut tries = Tries::new(Some(longest), BootInstant::now());
        self.runtime.begin(async move {
            let limit = core.settings.reply;
            while let Err(failed) = core.servers.call(&place, &leave, limit).await {
                match tries.after(failed, BootInstant::now()) {
                    Ok(pause) => core.runtime.sleep(pause).await,
                    Err(error) => {
                        core.is_unconfirmed.store(true, Ordering::Relaxed);
                        trace::abandoned(&place.node.name, &place.key, &error);
                        break;
                    }
                }
            }
            drop(pending);
        });
    }

    /// Gives back what guards hold, ends all requests, and waits for `limit` at most until the servers have confirmed that.
    /// Returns whether they have.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> bool {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.notify_waiters();
        self.keeper.all().iter().for_each(|hold| hold.close());
        for node in self.servers.nodes() {
            node.mail.close(|key, owner, lease| {
                let place = Place::new(node.clone(), key.clone());
                self.leave(place, owner, lease, Late::Requests);
            });
        }
        let confirmed = self.runtime.limited(limit, self.pending.closed()).await;
        confirmed.is_some() && !self.is_unconfirmed.load(Ordering::Relaxed)
    }
}

/// Whether the client was built with an address or a setting with which no connection can succeed.
fn is_invalid(error: &RedisError) -> bool {
    error.kind() == ErrorKind::InvalidClientConfig
}
