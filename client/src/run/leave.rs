//! Leaving a name: said to a server until it has answered, or no hold of that name can be there any more.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::net::server::Server;
use crate::net::task;
use crate::proto::{Name, Reply, Verb, checked};
use crate::run::{Call, trace};
use crate::value::{BootInstant, Error, Released};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// A request that nobody knows of may stand in a queue, and be granted until its box goes: so long does one live that nobody
/// reads, unless `lock.mail-timeout` is set otherwise.
const UNREAD_BOX: Duration = Duration::from_secs(5);

/// Says what nobody waits for to the end.
#[derive(Debug)]
pub(crate) struct Janitor {
    pub(crate) runtime: Handle,
    unsaid: watch::Sender<usize>,
}

impl Janitor {
    pub(crate) fn new(runtime: Handle) -> Arc<Janitor> {
        let unsaid = watch::Sender::new(0);
        Arc::new(Janitor { runtime, unsaid })
    }

    /// Resolves when everything that was to be said is said, or has been given up.
    pub(crate) async fn all_said(&self) {
        let _ = self.unsaid.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A name that is left; resolves to what the server says that there was. Dropped before it does, the janitor goes on.
pub(crate) struct Leave {
    janitor: Arc<Janitor>,
    server: Arc<Server>,
    name: Name,
    /// Something of it may arrive yet.
    late: bool,
    /// When its lease has ended whatever is said, as far as can be told.
    until: BootInstant,
    /// What is on its way.
    call: Option<Call>,
    /// It was said before, for all that is known.
    is_repeated: bool,
    is_answered: bool,
    /// The janitor has it.
    is_handed_over: bool,
}

impl Leave {
    /// Sends the first word, about what may be there for `lease`: a release will do for a hold that nobody doubts.
    pub(crate) fn new(
        janitor: &Arc<Janitor>,
        server: &Arc<Server>,
        name: Name,
        lease: Duration,
        (is_held, late): (bool, bool),
    ) -> Leave {
        let is_repeated = late || !is_held;
        let verb = match is_repeated {
            true => Verb::Leave { late },
            false => Verb::Release,
        };
        let unread = if late { UNREAD_BOX } else { Duration::ZERO };
        Leave {
            janitor: janitor.clone(),
            server: server.clone(),
            call: Some(Call::new(server, &name, verb)),
            name,
            late,
            until: BootInstant::now() + lease + unread,
            is_repeated,
            is_answered: false,
            is_handed_over: false,
        }
    }

    async fn go_on(mut self) {
        let mut pause = FIRST_PAUSE;
        while let Err(error) = (&mut self).await {
            let is_in_vain = matches!(error, Error::NoModule { .. } | Error::Closed);
            if is_in_vain || BootInstant::now() >= self.until {
                return trace::abandoned(&self.server.name, &self.name.key, &error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Future for Leave {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let verb = Verb::Leave { late: this.late };
            let say = || Call::new(&this.server, &this.name, verb);
            let (_, answer) = ready!(Pin::new(this.call.get_or_insert_with(say)).poll(context));
            this.call = None;
            let was_repeated = mem::replace(&mut this.is_repeated, true);
            let answer = match checked(answer, &this.server.name) {
                // Any number left, or one that was left: it was held until now.
                Ok(Reply::Int(left)) if left > 0 || !was_repeated => Ok(Released::Held),
                Ok(_) if was_repeated => Ok(Released::Unknown),
                Ok(_) => Ok(Released::Lost),
                Err(Error::Connection { error, .. }) if !error.is_timeout() && !was_repeated => {
                    continue;
                }
                Err(error) => Err(error),
            };
            this.is_answered = answer.is_ok();
            return Poll::Ready(answer);
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let unsaid = &self.janitor.unsaid;
        if self.is_handed_over {
            unsaid.send_modify(|count| *count -= 1);
        } else if !self.is_answered {
            unsaid.send_modify(|count| *count += 1);
            let left = Leave {
                janitor: self.janitor.clone(),
                server: self.server.clone(),
                name: self.name.clone(),
                call: self.call.take(),
                is_handed_over: true,
                ..*self
            };
            task::spawn(&self.janitor.runtime, left.go_on());
        }
    }
}
