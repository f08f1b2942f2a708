//! What all locks of one client share: its servers, its names, its upkeep, its place to run.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::net::connection::Limits;
use crate::net::dial::Identities;
use crate::net::peer::Peer;
use crate::net::server::Server;
use crate::proto::{Agenda, Mailbox, Proposal, Round, Vote};
use crate::value::{BootInstant, Error, Names, NodeFailure, lock};

/// One server, or the servers of a quorum, and what goes on with them in the background.
pub struct Core {
    /// In the order in which requests queue.
    pub(crate) servers: Vec<Arc<Server>>,
    pub(crate) limits: Limits,
    pub(crate) names: Names,
    /// Where everything runs that must go on when its caller does not.
    pub(crate) runtime: Handle,
    /// The holds, by when they are looked at.
    pub(crate) agenda: Mutex<Agenda<Arc<dyn Due>>>,
    /// One is due before that is done.
    pub(crate) earlier: Notify,
    /// Whatever is said in the background subscribes to it.
    pub(crate) unsaid: watch::Sender<()>,
    pub(crate) proposal: Mutex<Proposal>,
    pub(crate) identities: Arc<Identities>,
    /// By the number of the process that serves it.
    pub(super) mail: Mutex<HashMap<u64, Arc<Mail>>>,
    is_closed: AtomicBool,
    /// The process that built it. A fork copies it, but neither its threads nor its place on the servers.
    process: u32,
}

/// A box at a server's process, and who waits for its letters.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(super) server: Arc<Server>,
    pub(super) peer: Arc<Peer>,
    pub(crate) name: Box<[u8]>,
    pub(super) mailbox: Mutex<Mailbox>,
}

/// What is looked at when it is due.
pub(crate) trait Due: Send + Sync {
    /// Looks at it, and at when it is due again.
    fn look(self: Arc<Self>, now: BootInstant) -> Option<Renewing>;

    /// The client is closed.
    fn close(self: Arc<Self>);
}

/// A renewal: what the servers say, if they were asked.
pub(crate) type Renewing = Pin<Box<dyn Future<Output = Option<Round>> + Send>>;

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
            runtime,
            agenda: Mutex::new(Agenda::new()),
            earlier: Notify::new(),
            unsaid: watch::Sender::new(()),
            proposal: Mutex::default(),
            identities,
            mail: Mutex::default(),
            is_closed: AtomicBool::new(false),
            process: std::process::id(),
        })
    }

    /// How many servers make a majority: one of one, two of three, three of five.
    pub(crate) fn majority(&self) -> usize {
        self.servers.len() / 2 + 1
    }

    pub(crate) fn is_quorum(&self) -> bool {
        self.servers.len() > 1
    }

    /// An error once the client is closed, and in a process that was forked from the one that built it.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match self.is_closed.load(Ordering::Acquire) || self.is_forked() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
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
        if self.is_forked() {
            return;
        }
        self.is_closed.store(true, Ordering::Release);
        let holds: Vec<_> = lock(&self.agenda).values().cloned().collect();
        holds.into_iter().for_each(|hold| hold.close());
        self.unsaid.closed().await;
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
