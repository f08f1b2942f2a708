//! Leaving a name: said to a server until it has answered, or no hold of that name can be there any more.

use std::sync::Arc;
use std::time::Duration;

use crate::net::task;
use crate::proto::{Name, Reply, Verb, checked};
use crate::run::{Call, Calls, Core, trace};
use crate::value::{BootInstant, Error, Released};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How much longer than its lease a hold may be there: a renewal may have been on its way for so long, and so long a server
/// keeps a request in a queue for a box that nobody reads any more.
const LATEST: Duration = Duration::from_secs(5);

/// A name that is left, or its hold released, on some servers. Where one has failed to answer, or has not answered when this
/// is dropped, it is said again and again in the background.
pub(crate) struct Leave {
    core: Arc<Core>,
    calls: Calls,
    /// For how long a hold of the name may be there.
    lease: Duration,
}

impl Core {
    /// Leaves a name, or releases its hold, on servers that may know it, some late yet, where a hold of this lease may live.
    pub(crate) fn leave(
        self: &Arc<Self>,
        (name, there): (&Name, impl Iterator<Item = (usize, bool)>),
        lease: Duration,
        verb: Verb,
    ) -> Leave {
        let call = |(server, late): (usize, bool)| {
            let verb = match late {
                true => Verb::Leave { late },
                false => verb.clone(),
            };
            let call = Call::new(&self.servers[server], name, verb);
            (server, call.repeated())
        };
        let mut calls = Calls(Vec::with_capacity(self.servers.len()));
        calls.0.extend(there.map(call));
        let core = self.clone();
        Leave { core, calls, lease }
    }

    /// Says it in the background until it is answered.
    fn say(self: &Arc<Self>, mut call: Call, lease: Duration) {
        let unsaid = self.unsaid.subscribe();
        let until = BootInstant::now() + lease + LATEST;
        let saying = async move {
            let mut pause = FIRST_PAUSE;
            while let Err(error) = checked((&mut call).await, &call.server.name) {
                let is_in_vain = matches!(error, Error::NoModule { .. } | Error::Closed);
                if is_in_vain || BootInstant::now() >= until {
                    trace::abandoned(&call.server.name, &call.name.key, &error);
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                call = again(&call);
            }
            drop(unsaid);
        };
        task::spawn(&self.runtime, saying);
    }
}

impl Leave {
    pub(crate) fn len(&self) -> usize {
        self.calls.0.len()
    }

    /// What the next server that answers has found; `None` once all have.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Released, Error>)> {
        let (server, call, answer) = self.calls.next().await?;
        let releases = matches!(call.verb, Verb::Release(_));
        let released = checked(answer, &call.server.name).map(|reply| match reply {
            // Any number left, or one that was left: it was held until now.
            Reply::Int(left) if left > 0 || releases => Released::Held,
            _ if releases && call.repeats => Released::Lost,
            _ => Released::Unknown,
        });
        if released.is_err() {
            self.core.say(again(&call), self.lease);
        }
        Some((server, released))
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        for (_, call) in self.calls.0.drain(..) {
            self.core.say(call, self.lease);
        }
    }
}

fn again(call: &Call) -> Call {
    let late = matches!(call.verb, Verb::Leave { late: true });
    Call::new(&call.server, &call.name, Verb::Leave { late })
}
