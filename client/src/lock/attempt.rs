//! One attempt to take a lock on one server, under a name that nobody has had.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::{Ask, Core, Failed, Guard, Request, ServerHold, Share};
use crate::value::Error;
use crate::wire::{Grant, Name, Verb};

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Attempted<T> {
    pub(crate) result: Result<T, Failed>,
    /// It waited in a queue.
    pub(crate) was_queued: bool,
}

/// What a grant becomes.
pub(crate) trait Granted: Sized {
    /// What was granted by what was asked for under this name. An error if that is over already.
    fn new(core: &Arc<Core>, name: &Name, grant: Grant, ask: &Ask) -> Result<Self, Error>;

    fn guards(&self) -> &[Guard];
}

impl Granted for Guard {
    fn new(core: &Arc<Core>, name: &Name, grant: Grant, ask: &Ask) -> Result<Guard, Error> {
        let (mode, renews) = (ask.acquire.mode, ask.renews);
        let hold = ServerHold::new(core, name, grant, ask)?;
        Guard::of(hold, Share { mode, renews }, None)
    }

    fn guards(&self) -> &[Guard] {
        std::slice::from_ref(self)
    }
}

/// The name while it is unknown what the server has of it. Dropped, the name is left.
pub(super) struct Armed<'a> {
    core: &'a Arc<Core>,
    name: &'a Name,
    lease: Duration,
    /// The server has nothing of it, or a hold is made of it.
    pub(super) is_settled: bool,
    /// Dropped after the name was left: until then its box knows it, and `close` with it.
    request: Option<Request>,
}

impl<'a> Armed<'a> {
    /// A name that nothing was sent for. A hold of it may have this lease.
    pub(super) fn new(core: &'a Arc<Core>, name: &'a Name, lease: Duration) -> Armed<'a> {
        Armed {
            core,
            name,
            lease,
            is_settled: true,
            request: None,
        }
    }

    /// Asks the server for it. An error, and nothing is sent, if the client is closed.
    pub(super) fn send(&mut self, verb: Verb, wait: Option<u64>) -> Result<&mut Request, Error> {
        // One name is in its box once.
        self.request = None;
        let request = Request::acquiring(self.core, self.name, verb, wait)?;
        self.is_settled = false;
        Ok(self.request.insert(request))
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            self.core.leave(self.name, self.lease);
        }
    }
}

/// Asks for a lock under this name. Dropped, the name is left.
pub(crate) async fn attempt<T: Granted>(core: &Arc<Core>, name: &Name, ask: Ask) -> Attempted<T> {
    let mut armed = Armed::new(core, name, ask.acquire.lease.duration());
    let request = match armed.send(Verb::Acquire(ask.acquire), ask.wait) {
        Ok(request) => request,
        Err(error) => {
            return Attempted {
                result: Err(Failed::Refused(error)),
                was_queued: false,
            };
        }
    };
    let granted = request.granted().await;
    let was_queued = request.was_queued();
    let result = granted.and_then(|grant| T::new(core, name, grant, &ask).map_err(Failed::Unknown));
    armed.is_settled = !matches!(result, Err(Failed::Unknown(_)));
    Attempted { result, was_queued }
}
