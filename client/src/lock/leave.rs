//! Gives names back: repeated until the server has answered, or no hold of that name can be there any more.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::{Core, Request, trace};
use crate::net::task;
use crate::value::{BootInstant, Error, Loss};
use crate::wire::{Name, Reply, Verb};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How much longer than its lease a hold may be there: a renewal may have been on its way for so long, and so long a server
/// keeps a request in a queue for a box that nobody reads any more.
const LATEST: Duration = Duration::from_secs(5);

impl Core {
    /// Leaves a name whose requests may arrive late, in the background. A hold of it may have this lease.
    pub(super) fn leave(self: &Arc<Self>, name: &Name, lease: Duration) {
        for name in name.each() {
            self.send_until_answered(&name, Verb::LeaveForGood, lease);
        }
    }

    /// Leaves a name of which nothing can arrive late.
    pub(super) fn leave_known(self: &Arc<Self>, name: &Name, lease: Duration) {
        self.send_until_answered(name, Verb::Leave, lease);
    }

    fn send_until_answered(self: &Arc<Self>, name: &Name, verb: Verb, lease: Duration) {
        if self.is_forked() {
            return;
        }
        let request = Request::new(self, name, verb.clone()).resent_once();
        self.finish(request, name, verb, lease);
    }

    /// Waits in the background for the answer, and sends `again` until there is one.
    fn finish(self: &Arc<Self>, mut request: Request, name: &Name, again: Verb, lease: Duration) {
        let until = BootInstant::now() + lease + LATEST;
        let (core, name, unfinished) = (self.clone(), name.clone(), self.unfinished.subscribe());
        let finishing = async move {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = request.reply().await {
                let is_in_vain = matches!(error, Error::NoModule { .. } | Error::RuntimeGone);
                if is_in_vain || BootInstant::now() >= until {
                    trace::abandoned(&core.endpoint.name, &name.key, &error);
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                request = Request::new(&core, &name, again.clone()).resent_once();
            }
            drop(unfinished);
        };
        task::spawn(&self.runtime, finishing);
    }
}

/// A release, or what ends a hold otherwise. Dropped before the server has answered, the rest goes on in the background.
pub(super) struct Releasing {
    core: Arc<Core>,
    name: Name,
    request: Option<Request>,
    /// How long a hold of the name may be there.
    lease: Duration,
}

impl Releasing {
    /// Sends it.
    pub(super) fn send(core: &Arc<Core>, name: &Name, verb: Verb, lease: Duration) -> Releasing {
        Releasing {
            core: core.clone(),
            name: name.clone(),
            request: Some(Request::new(core, name, verb).resent_once()),
            lease,
        }
    }

    /// Waits for the answer. An error if the hold was lost, or if nobody knows whether it was.
    pub(super) async fn finish(mut self) -> Result<(), Error> {
        let Some(request) = &mut self.request else {
            return Ok(());
        };
        let reply = request.reply().await;
        let was_resent = request.was_resent();
        match reply {
            Ok(Reply::Int(_)) => self.request = None,
            Ok(_) => {
                self.request = None;
                return Err(Error::Lost(match was_resent {
                    // The first one may have done it.
                    true => Loss::Unknown,
                    false => Loss::Denied,
                }));
            }
            // It is repeated in the background.
            Err(error) => {
                self.request = Some(Request::new(&self.core, &self.name, Verb::Leave));
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Releasing {
    fn drop(&mut self) {
        if let Some(request) = self.request.take()
            && !self.core.is_forked()
        {
            let (core, name) = (&self.core, &self.name);
            core.finish(request, name, Verb::Leave, self.lease);
        }
    }
}
