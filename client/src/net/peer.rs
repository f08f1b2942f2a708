//! One server process: a connection that all commands share, and one that collects letters. Each is opened when it is first
//! used, and again after it was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connect::Connector;
use super::connection::{Pending, Timeouts, WhileClosed};
use super::drive::Driven;
use super::in_flight::Patience;
use crate::value::BootInstant;
use crate::wire::Command;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Tells it from all others of this process.
    pub(crate) id: u64,
    pub(crate) name: String,
    shared: Driven,
    mail: Driven,
}

impl Peer {
    pub(super) fn new(connector: Connector, timeouts: Timeouts, runtime: Handle) -> Arc<Peer> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (name, connector) = (connector.target.to_string(), Arc::new(connector));
        let patient = Timeouts {
            while_closed: WhileClosed::Wait,
            ..timeouts
        };
        Arc::new(Peer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            shared: Driven::new(connector.clone(), timeouts, runtime.clone()),
            mail: Driven::new(connector, patient, runtime),
        })
    }

    /// Another node of the same cluster.
    pub(super) fn other(&self, node: &str) -> Option<Arc<Peer>> {
        let it = &self.shared;
        let connector = it.connector.to_node(node)?;
        Some(Peer::new(connector, it.timeouts, it.runtime.clone()))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.shared.is_open()
    }

    /// Resolves once every request but those for letters was answered or has failed.
    pub(super) async fn settled(&self) {
        self.shared.settled().await;
    }

    pub(super) fn fails_over(&self) -> bool {
        self.shared.connector.target.fails_over()
    }

    /// Sends what may wait for `wait` on a connection of its own.
    pub(crate) fn send_mail(
        &self,
        command: &Command<'_>,
        wait: Duration,
        now: BootInstant,
    ) -> Pending {
        let limit = self.mail.timeouts.answer.saturating_add(wait);
        let patience = Patience { late: limit, limit };
        self.mail.send(&[command], patience, now)
    }
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) peer: Arc<Peer>,
    /// The key's slot is on its way there.
    pub(super) is_asking: bool,
}

impl Route {
    pub(crate) fn to(peer: Arc<Peer>) -> Route {
        let is_asking = false;
        Route { peer, is_asking }
    }

    /// Sends a command whose answer is late after a while: then another connection is tried. Those to one peer arrive in the
    /// order in which they were sent, as long as the connection lives that all share.
    pub(crate) fn send_urgently(
        &self,
        late: Duration,
        command: &Command<'_>,
        now: BootInstant,
    ) -> Pending {
        let shared = &self.peer.shared;
        let limit = shared.timeouts.answer;
        let late = late.min(limit);
        let both = [&Command::Plain(&[b"ASKING"]), command];
        let commands = if self.is_asking { &both } else { &both[1..] };
        shared.send(commands, Patience { late, limit }, now)
    }

    pub(crate) fn send(&self, command: &Command<'_>, now: BootInstant) -> Pending {
        self.send_urgently(Duration::MAX, command, now)
    }
}
