//! What all locks of one client share: its servers, its names, its upkeep, its place to run.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::net::connection::Limits;
use crate::net::dial::Identities;
use crate::net::peer::Peer;
use crate::net::server::Server;
use crate::proto::{Proposal, Round, Vote};
use crate::run::{Mail, Schedule};
use crate::value::{Error, Names, NodeFailure, lock};

/// One server, or the servers of a quorum, and what goes on with them in the background.
pub struct Core {
    /// In the order in which requests queue.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    /// Where everything runs that must go on when its caller does not.
    pub(crate) runtime: Handle,
    pub(crate) schedule: Arc<Schedule>,
    /// How many names are left in the background.
    pub(crate) unsaid: watch::Sender<usize>,
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
        Arc::new(Core {
            servers: servers.into_iter().map(Arc::new).collect(),
            limits,
            names: Names::of_client(),
            schedule: Schedule::new(runtime.clone()),
            runtime,
            unsaid: watch::Sender::new(0),
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

    /// An error once the client is closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.is_closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// The letters of a process that serves `key`.
    pub(crate) fn mail(&self, server: usize, peer: &Arc<Peer>, key: &[u8]) -> Arc<Mail> {
        let new = || Mail::new(self.servers[server].clone(), peer.clone(), key);
        let mut all = lock(&self.mail);
        all.entry(peer.id).or_insert_with(new).clone()
    }

    /// The box of a process is served elsewhere: the next one is another.
    pub(crate) fn forget_mail(&self, peer: u64) {
        lock(&self.mail).remove(&peer);
    }

    /// Why too few servers have granted something.
    pub(crate) fn error_of(&self, round: &Round, granted: usize) -> Error {
        let failure = |(server, vote): (&Arc<Server>, &Vote)| {
            let server = server.name.clone();
            vote.reason().map(|reason| NodeFailure { server, reason })
        };
        match &round[..] {
            [Vote::Unknown(error) | Vote::Failed(error)] => error.clone(),
            [_] => Error::NotHeld,
            votes => Error::NoQuorum {
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
        let _ = self.unsaid.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Resolves after a pause, on whatever runtime.
    pub(crate) async fn pause(&self, pause: Duration) {
        if !pause.is_zero() {
            let mut timer = JoinSet::new();
            let sleep = async move { tokio::time::sleep(pause).await };
            timer.spawn_on(sleep, &self.runtime);
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
