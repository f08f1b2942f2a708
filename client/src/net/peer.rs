//! One server process: a connection that all commands share, and one that collects letters. Each is opened when it is first
//! used, and again after it was lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::{Limits, Pending};
use super::dial::Dial;
use super::drive::Driven;
use crate::proto::Command;
use crate::value::{BootInstant, lock};

#[derive(Debug)]
pub(crate) struct Peer {
    /// Tells it from all others of this process.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(super) dial: Arc<Dial>,
    limits: Limits,
    runtime: Handle,
    shared: Mutex<Option<Driven>>,
    mail: Mutex<Option<Driven>>,
}

impl Peer {
    pub(super) fn new(dial: Dial, limits: Limits, runtime: Handle) -> Arc<Peer> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Peer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name: dial.way.to_string(),
            dial: Arc::new(dial),
            limits,
            runtime,
            shared: Mutex::new(None),
            mail: Mutex::new(None),
        })
    }

    /// Another node of the same cluster.
    pub(super) fn other(&self, node: &str) -> Option<Arc<Peer>> {
        let dial = self.dial.to_node(node)?;
        Some(Peer::new(dial, self.limits, self.runtime.clone()))
    }

    /// Sends what may wait for `wait` on a connection of its own.
    pub(crate) fn send_mail(
        &self,
        command: &Command<'_>,
        wait: Duration,
        now: BootInstant,
    ) -> Pending {
        let mut patient = self.limits;
        patient.impatient = false;
        let limit = self.limits.answer.saturating_add(wait);
        self.send_on(&self.mail, patient, &[command], limit, now)
    }

    fn send_on(
        &self,
        connection: &Mutex<Option<Driven>>,
        limits: Limits,
        commands: &[&Command<'_>],
        limit: Duration,
        now: BootInstant,
    ) -> Pending {
        let mut current = lock(connection);
        current.take_if(|it| it.0.is_closed());
        let open = || Driven::open(self.dial.clone(), limits, &self.runtime);
        let current = current.get_or_insert_with(open);
        current.0.send(commands, limit, now)
    }

    /// The next command goes over a new connection, which may lead elsewhere.
    pub(super) fn reconnect(&self) {
        *lock(&self.shared) = None;
        *lock(&self.mail) = None;
    }
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) peer: Arc<Peer>,
    /// The key's slot is on its way there.
    pub(super) asking: bool,
}

impl Route {
    pub(crate) fn to(peer: Arc<Peer>) -> Route {
        let asking = false;
        Route { peer, asking }
    }

    /// Sends a command whose answer is of no use after `limit`. Those to one peer arrive in the order in which they were
    /// sent, as long as the connection lives that all share.
    pub(crate) fn send_within(
        &self,
        limit: Duration,
        command: &Command<'_>,
        now: BootInstant,
    ) -> Pending {
        let peer = &self.peer;
        let limit = limit.min(peer.limits.answer);
        let both = [&Command::Plain(&[b"ASKING"]), command];
        let commands = if self.asking { &both } else { &both[1..] };
        peer.send_on(&peer.shared, peer.limits, commands, limit, now)
    }

    pub(crate) fn send(&self, command: &Command<'_>, now: BootInstant) -> Pending {
        self.send_within(Duration::MAX, command, now)
    }
}
