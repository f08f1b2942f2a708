//! What all locks on one server share: connections, names, boxes, and what goes on in the background.

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::select;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::lock::holds::Holds;
use crate::lock::mailboxes::Mailboxes;
use crate::net::{Endpoint, Timeouts, sleep_until};
use crate::value::{BootInstant, Error, Names, lock};

pub(crate) struct Core {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) timeouts: Timeouts,
    pub(crate) names: Names,
    /// Where everything runs that must go on when its caller does not.
    pub(crate) runtime: Handle,
    /// The holds, by when something is due.
    pub(super) holds: Mutex<Holds>,
    /// Something is due earlier than what the background task sleeps for.
    pub(super) earlier: Notify,
    pub(super) mailboxes: Mutex<Mailboxes>,
    /// Everything in the background that `close` waits for subscribes to it.
    pub(super) unfinished: watch::Sender<()>,
    is_closed: watch::Sender<bool>,
    /// The process that built it. A fork copies it, but neither its threads nor its place on the server.
    process: u32,
}

impl Core {
    pub(crate) fn new(
        endpoint: Endpoint,
        names: Names,
        timeouts: Timeouts,
        runtime: Handle,
    ) -> Arc<Core> {
        Arc::new(Core {
            endpoint: Arc::new(endpoint),
            timeouts,
            names,
            runtime,
            holds: Mutex::default(),
            earlier: Notify::new(),
            mailboxes: Mutex::default(),
            unfinished: watch::Sender::new(()),
            is_closed: watch::Sender::new(false),
            process: std::process::id(),
        })
    }

    /// An error once the client is closed, and in a process that was forked from the one that built it.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        match (self.is_forked(), *self.is_closed.borrow()) {
            (true, _) => Err(Error::Forked),
            (_, true) => Err(Error::Closed),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Ends what is under way, gives back what is held, and resolves when the server has answered.
    pub(crate) async fn close(self: &Arc<Self>) {
        if self.is_forked() {
            return;
        }
        self.is_closed.send_replace(true);
        // An acquisition is known to its box until its hold is known, and that is refused from now on.
        let holds = lock(&self.holds).close();
        for hold in holds {
            hold.close();
        }
        for name in Mailboxes::close(&self.mailboxes) {
            self.leave(&name, Duration::ZERO);
        }
        // Releases that other tasks await. Those that fail are repeated in the background.
        self.endpoint.settled().await;
        self.unfinished.closed().await;
    }

    /// Resolves after a pause, on whatever runtime, or once the client is closed.
    pub(crate) async fn pause(&self, pause: Duration) {
        if pause.is_zero() {
            return;
        }
        let mut is_closed = self.is_closed.subscribe();
        let closing = pin!(is_closed.wait_for(|is_closed| *is_closed));
        select(pin!(sleep_until(BootInstant::now() + pause)), closing).await;
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint.name)
    }
}
