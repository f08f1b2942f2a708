//! Leaving a name: said to a server until it has answered, or no hold of that name can be there any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::net::task;
use crate::proto::{Name, Reply, Round, Verb, Vote, checked};
use crate::run::{Call, Calls, Core, trace};
use crate::value::{BootInstant, Error, Released};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How much longer than its lease a hold may be there: a renewal may have been on its way for so long, and so long a server
/// keeps a request in a queue for a box that nobody reads any more.
const LATEST: Duration = Duration::from_secs(5);

/// A name that is left on one server: resolves when that is answered for the first time. Dropped before it is done, it is
/// said again and again in the background.
pub(crate) struct Leave {
    core: Arc<Core>,
    /// What was said; nothing, once it is answered.
    call: Option<Call>,
    /// By then nothing of the name is there any more.
    until: BootInstant,
}

impl Core {
    /// Leaves a name, or releases its hold, on all servers of a round that may know it, where a hold of this lease may live.
    pub(crate) fn leave(
        self: &Arc<Self>,
        (name, round): (&Name, &Round),
        lease: Duration,
        verb: Verb,
    ) -> Calls<Leave> {
        let leave = |(server, vote): (usize, &Vote)| {
            let verb = match vote.may_be_there()? {
                true => Verb::Leave { late: true },
                false => verb,
            };
            Some((server, self.leave_at(server, name, lease, verb)))
        };
        Calls(round.iter().enumerate().filter_map(leave).collect())
    }

    /// The same on one server.
    pub(crate) fn leave_at(
        self: &Arc<Self>,
        server: usize,
        name: &Name,
        lease: Duration,
        verb: Verb,
    ) -> Leave {
        let call = Call::new(&self.servers[server], name, verb).repeated();
        Leave {
            core: self.clone(),
            call: Some(call),
            until: BootInstant::now() + lease + LATEST,
        }
    }
}

impl Future for Leave {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else {
            return Poll::Ready(Err(Error::Closed));
        };
        let (_, answer) = ready!(Pin::new(&mut *call).poll(context));
        let releases = matches!(call.verb, Verb::Release(_));
        let released = checked(answer, &call.server.name).map(|reply| match reply {
            // Any number left, or one that was left: it was held until now.
            Reply::Int(left) if left > 0 || releases => Released::Held,
            _ if releases && call.repeats => Released::Lost,
            _ => Released::Unknown,
        });
        self.call = released.is_err().then(|| again(call));
        Poll::Ready(released)
    }
}

fn again(call: &Call) -> Call {
    let late = matches!(call.verb, Verb::Leave { late: true });
    Call::new(&call.server, &call.name, Verb::Leave { late })
}

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.core.unsaid.send_modify(|count| *count += 1);
            let saying = say(Unsaid(self.core.clone()), call, self.until);
            task::spawn(&self.core.runtime, saying);
        }
    }
}

/// Something that is being said in the background.
struct Unsaid(Arc<Core>);

impl Drop for Unsaid {
    fn drop(&mut self) {
        self.0.unsaid.send_modify(|count| *count -= 1);
    }
}

async fn say(_unsaid: Unsaid, mut call: Call, until: BootInstant) {
    let mut pause = FIRST_PAUSE;
    while let Err(error) = checked((&mut call).await.1, &call.server.name) {
        let is_in_vain = matches!(error, Error::NoModule { .. } | Error::Closed);
        if is_in_vain || BootInstant::now() >= until {
            return trace::abandoned(&call.server.name, &call.name.key, &error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        call = again(&call);
    }
}
