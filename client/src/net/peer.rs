//! One server process: a connection that all commands share, and one that collects letters. Each is opened when it is first
//! used, and again after it was lost.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::connection::{Connection, Limits, Pending};
use super::dial::Dial;
use super::drive::drive;
use crate::proto::command::Command;
use crate::value::clock::BootInstant;
use crate::value::sync::lock;

pub(crate) struct Peer {
    /// Tells it from all others of this process.
    pub(crate) id: u64,
    pub(crate) name: String,
    dial: Arc<Dial>,
    limits: Limits,
    runtime: Handle,
    shared: Mutex<Option<Connection>>,
    mail: Mutex<Option<Connection>>,
}

impl Peer {
    pub(crate) fn new(name: String, dial: Dial, limits: Limits, runtime: Handle) -> Peer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Peer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            dial: Arc::new(dial),
            limits,
            runtime,
            shared: Mutex::new(None),
            mail: Mutex::new(None),
        }
    }

    /// Sends a command on the connection that all share. Those to one peer arrive in the order in which they were sent, as
    /// long as the connection lives.
    pub(crate) fn send(&self, command: &Command<'_>, now: BootInstant) -> Pending {
        self.send_within(Duration::MAX, command, now)
    }

    fn send_within(&self, limit: Duration, command: &Command<'_>, now: BootInstant) -> Pending {
        let mut shared = lock(&self.shared);
        let connection = self.connection(&mut shared, self.limits);
        connection.send(command, limit.min(self.limits.answer), now)
    }

    /// The same for a key whose slot is on its way to this node.
    pub(crate) fn send_asking(&self, command: &Command<'_>, now: BootInstant) -> Pending {
        let mut shared = lock(&self.shared);
        let connection = self.connection(&mut shared, self.limits);
        connection.send_both([&Command::Plain(&[b"ASKING"]), command], now)
    }

    /// Sends what may wait for `wait` on a connection of its own.
    pub(crate) fn send_mail(
        &self,
        command: &Command<'_>,
        wait: Duration,
        now: BootInstant,
    ) -> Pending {
        let patient = Limits {
            impatient: false,
            ..self.limits
        };
        let mut mail = lock(&self.mail);
        self.connection(&mut mail, patient).send(
            command,
            self.limits.answer.saturating_add(wait),
            now,
        )
    }

    /// The next command goes over a new connection, which may lead elsewhere.
    pub(crate) fn reconnect(&self) {
        *lock(&self.shared) = None;
        *lock(&self.mail) = None;
    }

    fn connection<'a>(
        &self,
        current: &'a mut Option<Connection>,
        limits: Limits,
    ) -> &'a Connection {
        if current.as_ref().is_none_or(Connection::is_closed) {
            let connection = Connection::new(limits);
            self.runtime
                .spawn(drive(connection.shared(), self.dial.clone()));
            *current = Some(connection);
        }
        current.as_ref().expect("a connection was just made")
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("name", &self.name)
            .field("dial", &self.dial)
            .field("shared", &*lock(&self.shared))
            .field("mail", &*lock(&self.mail))
            .finish_non_exhaustive()
    }
}

/// Where a request goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) peer: Arc<Peer>,
    /// The slot is on its way there.
    asking: bool,
}

impl Route {
    pub(crate) fn to(peer: Arc<Peer>) -> Route {
        Route {
            peer,
            asking: false,
        }
    }

    /// To a node that a slot is on its way to.
    #[cfg(feature = "cluster")]
    pub(super) fn asking(peer: Arc<Peer>) -> Route {
        Route { peer, asking: true }
    }

    pub(crate) fn send(&self, command: &Command<'_>, now: BootInstant) -> Pending {
        self.send_within(Duration::MAX, command, now)
    }

    /// The same where the answer is of no use after `limit`.
    pub(crate) fn send_within(
        &self,
        limit: Duration,
        command: &Command<'_>,
        now: BootInstant,
    ) -> Pending {
        match self.asking {
            true => self.peer.send_asking(command, now),
            false => self.peer.send_within(limit, command, now),
        }
    }
}
