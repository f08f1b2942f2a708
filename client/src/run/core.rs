//! What all locks of one client share: its servers, its names, its upkeep, its place to run.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::net::connection::Limits;
use crate::net::dial::Identities;
use crate::net::peer::Peer;
use crate::net::server::Server;
use crate::proto::{Name, Proposal, Round, Vote};
use crate::run::{Janitor, Leave, Mail, Schedule};
use crate::value::{Error, Lease, Names, NodeFailure, lock};

/// One server, or the servers of a quorum, and what goes on with them in the background.
pub struct Core {
    /// Tells clients apart where an owner is used with several.
    pub(crate) id: u64,
    /// In the order in which requests queue.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) janitor: Arc<Janitor>,
    pub(crate) proposal: Mutex<Proposal>,
    pub(crate) identities: Arc<Identities>,
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
            servers: servers.into_iter().map(Arc::new).collect(),
            limits,
            names: Names::of_client(),
            schedule: Schedule::new(runtime.clone()),
            janitor: Janitor::new(runtime),
            proposal: Mutex::default(),
            identities,
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

    /// Where everything runs that must go on when its caller does not.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.janitor.runtime
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
        let server = &self.servers[server];
        if let Some(mail) = all.get(&peer.id)
            && !(server.is_cluster() && mail.is_over())
        {
            return mail.clone();
        }
        let mail = Mail::new(server.clone(), peer.clone(), self.janitor.clone(), key);
        all.insert(peer.id, mail.clone());
        mail
    }

    /// Leaves a name on a server, as long as a hold of this lease may live there.
    pub(crate) fn leave(&self, server: usize, name: &Name, lease: Lease, late: bool) {
        let (server, lease) = (&self.servers[server], lease.duration());
        let how = (false, late);
        drop(Leave::new(&self.janitor, server, name.clone(), lease, how));
    }

    /// Why too few servers have granted something.
    pub(crate) fn error_of(&self, round: &Round, granted: usize) -> Error {
        let failure = |(server, vote): (&Arc<Server>, &Vote)| {
            let server = server.name.clone();
            vote.reason().map(|reason| NodeFailure { server, reason })
        };
        match round {
            Round::One(Vote::Unknown(error) | Vote::Failed(error)) => error.clone(),
            Round::One(_) => Error::NotHeld,
            Round::Many(votes) => Error::NoQuorum {
                needed: self.majority(),
                granted,
                nodes: self.servers.iter().zip(votes).filter_map(failure).collect(),
            },
        }
    }

    /// Gives back what is held, and resolves when everything is said.
    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for hold in self.schedule.all() {
            hold.close();
        }
        self.janitor.all_said().await;
    }

    /// Resolves after a pause, on whatever runtime.
    pub(crate) async fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            let mut timer = JoinSet::new();
            timer.spawn_on(
                async move { tokio::time::sleep(pause).await },
                self.runtime(),
            );
            timer.join_next().await;
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("servers", &self.servers)
            .field("limits", &self.limits)
            .field("is_closed", &self.is_closed)
            .finish_non_exhaustive()
    }
}
