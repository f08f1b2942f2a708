//! What a client, its guards and its background tasks share: the servers, the keeper of its holds, and whether the servers have
//! confirmed all releases.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Cmd, ErrorKind};
use tokio::sync::{Notify, watch};

use crate::belief::Grant;
use crate::error::{Error, Failed, Loss, NodeFailure};
use crate::keeper::Keeper;
use crate::name::{Bytes, Owner};
use crate::node::Place;
use crate::quorum::votes::majority;
use crate::request;
use crate::retry::Tries;
use crate::runtime::Runtime;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::trace;

pub(crate) struct Core {
    pub(crate) servers: Servers,
    /// Whose names are used where no task is named.
    pub(crate) owner: Owner,
    pub(crate) runtime: Runtime,
    pub(crate) settings: Settings,
    is_closed: AtomicBool,
    pub(crate) keeper: Keeper,
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
    ) -> Result<Arc<Core>, Error> {
        let core = Arc::new(Core {
            owner: Owner::of_client(settings.name.as_deref())?,
            keeper: Keeper::default(),
            servers,
            runtime,
            settings,
            is_closed: AtomicBool::new(false),
            pending: watch::Sender::new(()),
            is_unconfirmed: AtomicBool::new(false),
        });
        let tending = Tending {
            core: Arc::downgrade(&core),
            runtime: core.runtime.clone(),
        };
        let is_early = core.keeper.is_early.clone();
        core.runtime.spawn(tending.run(is_early));
        Ok(core)
    }

    /// An error if the client can do nothing any more.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match (
            self.is_closed.load(Ordering::SeqCst),
            self.runtime.is_gone(),
        ) {
            (true, _) => Err(Error::Closed),
            (_, true) => Err(Error::RuntimeGone),
            _ => Ok(()),
        }
    }

    /// Finds out whether enough servers are there, and have the module.
    pub(crate) async fn find(&self) -> Result<(), Error> {
        // Whatever lock it asks for, the answer is short.
        let key: Bytes = b"mortise".as_slice().into();
        let (probe, limit) = (&request::info(&key), self.settings.connect);
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
        let places = nodes.into_iter().map(|node| Place::new(node, key.clone()));
        let ask = |place: Place| async move { (place.call(probe, limit).await, place) };
        let mut asking: FuturesUnordered<_> = places.map(ask).collect();
        let (mut found, mut failures) = (0, Vec::new());
        while found < needed
            && let Some((answer, place)) = asking.next().await
        {
            // Only a server that knows a command says that the key is elsewhere, or that the user may not run it.
            let is_elsewhere = self.servers.next(&place, &answer)?.is_some();
            match answer.map_err(Failed::of_reply) {
                Ok(_) => found += 1,
                Err(Error::Refused { code, .. }) if is_elsewhere || code == "NOPERM" => found += 1,
                // With this address or setting no connection can succeed.
                Err(Error::Connection { server, error })
                    if error.kind() == ErrorKind::InvalidClientConfig =>
                {
                    return Err(Error::Invalid(format!("{server}: {error}")));
                }
                Err(error) => failures.push(NodeFailure::new(&place.node.name, error)),
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
        let unknown = || Error::unexpected(&"too few confirmed it");
        nodes.pop().map_or_else(unknown, |node| node.reason)
    }

    /// What keeps [`close`](Core::close) waiting, until it is dropped.
    pub(crate) fn pending(&self) -> watch::Receiver<()> {
        self.pending.subscribe()
    }

    /// Sends a command about a key. Returns the number that the server replies.
    pub(crate) async fn number(&self, place: &Place, command: &Cmd) -> Result<u64, Failed> {
        let reply = self.servers.call(place, command, self.settings.reply);
        request::number(reply.await?.value)
    }

    /// Renews what a name holds at a place by this token, or by a higher one. Replicas have that, if they have to.
    pub(crate) async fn renew(
        &self,
        place: &Place,
        owner: &Bytes,
        lease: Lease,
        token: Token,
    ) -> Result<Grant, Failed> {
        let renew = request::renew(&place.key, owner, lease);
        let limit = self.settings.reply.min(lease.renewal_period());
        let reply = self.servers.confirm(place, &renew, limit).await;
        request::renewed(reply?, lease, token)
    }

    /// Sends what removes the hold of a name: in the background, until the server has answered, or nothing can be left.
    pub(crate) fn leave(self: &Arc<Self>, place: Place, leave: Cmd, lease: Lease) {
        let (core, pending) = (self.clone(), self.pending());
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

    /// Ends all holds and requests.
    fn end_all(&self, loss: Loss, error: &Error) {
        self.keeper.end_all(loss);
        for node in self.servers.nodes() {
            node.mail.fail_all(error);
        }
    }

    /// Gives back what guards hold, ends all requests, and waits for `limit` at most until the servers have confirmed that.
    /// Returns whether they have.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> bool {
        self.is_closed.store(true, Ordering::SeqCst);
        self.end_all(Loss::Released, &Error::Closed);
        let confirmed = self.runtime.limited(limit, self.pending.closed()).await;
        confirmed.is_some() && !self.is_unconfirmed.load(Ordering::Relaxed)
    }
}

/// The one task of a client that lasts: it tends its holds. If it ends with its runtime, nothing is renewed, collected or released any
/// more.
struct Tending {
    core: Weak<Core>,
    runtime: Runtime,
}

impl Drop for Tending {
    fn drop(&mut self) {
        self.runtime.set_gone();
        if let Some(core) = self.core.upgrade() {
            core.end_all(Loss::Expired, &Error::RuntimeGone);
        }
    }
}

impl Tending {
    async fn run(self, is_early: Arc<Notify>) {
        while let Some(next) = self.core.upgrade().map(|core| core.keeper.tend()) {
            let early = is_early.notified();
            match next {
                Some(next) => drop(self.runtime.limited(next.next_sleep(), early).await),
                None => early.await,
            }
        }
    }
}
