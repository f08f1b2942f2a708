//! What all locks of one client share: its servers, its names, its upkeep, its place to run.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use uuid::Uuid;

use crate::net::connection::Limits;
use crate::net::dial::Identities;
use crate::net::peer::Peer;
use crate::net::server::Server;
use crate::proto::proposal::Proposal;
use crate::proto::slots;
use crate::run::mail::{Mail, Returns};
use crate::run::upkeep::{Leave, Upkeep};
use crate::value::error::Error;
use crate::value::lease::Lease;
use crate::value::name::Names;
use crate::value::sync::lock;

/// One server, or the servers of a quorum, and what goes on with them in the background.
pub(crate) struct Core {
    /// Tells clients apart where an owner is used with several.
    pub(crate) id: u64,
    /// In the order in which requests queue.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    pub(crate) upkeep: Arc<Upkeep>,
    pub(crate) proposal: Mutex<Proposal>,
    pub(crate) identities: Arc<Identities>,
    /// Where everything runs that must go on when its caller does not.
    pub(crate) runtime: Handle,
    is_cluster: bool,
    /// By the number of the process that serves it.
    mail: Mutex<HashMap<u64, Arc<Mail>>>,
    is_closed: AtomicBool,
}

impl Core {
    pub(crate) fn new(
        servers: Vec<Server>,
        limits: Limits,
        identities: Arc<Identities>,
        runtime: Handle,
    ) -> Arc<Core> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Core {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            is_cluster: servers.iter().any(Server::is_cluster),
            servers: servers.into_iter().map(Arc::new).collect(),
            limits,
            names: Names::of_client(),
            upkeep: Arc::default(),
            proposal: Mutex::default(),
            identities,
            runtime,
            mail: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    /// How many servers make a majority: one of one, two of three, three of five.
    pub(crate) fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    pub(crate) fn is_quorum(&self) -> bool {
        self.servers.len() > 1
    }

    /// An error once the client is closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// The letters of a process that serves `key`.
    pub(crate) fn mail(&self, server: usize, peer: &Arc<Peer>, key: &[u8]) -> Arc<Mail> {
        let mut all = lock(&self.mail);
        if let Some(mail) = all.get(&peer.id)
            && !(self.is_cluster && mail.is_over())
        {
            return mail.clone();
        }
        let name = match self.servers[server].is_cluster() {
            // Routed like a key: to where this one is.
            true => format!("{{{}}}{}", slots::tag(slots::slot(key)), Uuid::new_v4()),
            false => Uuid::new_v4().to_string(),
        };
        let name = name.into_bytes().into();
        let mail = Mail::new(self.servers[server].clone(), peer.clone(), name);
        let mail = Arc::new(mail);
        all.insert(peer.id, mail.clone());
        mail
    }

    /// What does the grants that nobody wants any more.
    pub(crate) fn returns(&self, server: usize) -> Returns {
        let (upkeep, runtime) = (self.upkeep.clone(), self.runtime.clone());
        let server = self.servers[server].clone();
        Box::new(move |(key, owner)| {
            let names = (key.into(), owner.into());
            let leave = Leave::new(server.clone(), names, Lease::DEFAULT, true);
            upkeep.leave(leave, &runtime);
        })
    }

    /// Leaves a name on a server, as long as a hold of this lease may live there.
    pub(crate) fn leave(
        &self,
        server: usize,
        (key, owner): (Arc<[u8]>, Arc<[u8]>),
        lease: Lease,
        late: bool,
    ) {
        let leave = Leave::new(
            self.servers[server].clone(),
            (key, owner),
            lease.duration(),
            late,
        );
        self.upkeep.leave(leave, &self.runtime);
    }

    /// Gives back what is held, and resolves when everything is said.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for hold in self.upkeep.holds() {
            hold.close();
        }
        self.upkeep.said().await;
    }

    /// Resolves after a pause.
    pub(crate) async fn pause(&self, pause: std::time::Duration) {
        if !pause.is_zero() {
            self.upkeep.sleep(pause, &self.runtime).await;
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.upkeep.client_dropped();
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("servers", &self.servers)
            .field("limits", &self.limits)
            .field("upkeep", &self.upkeep)
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}
