//! Leaving a name: said to a server until it has answered, or no hold of that name can be there any more.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::net::server::Server;
use crate::proto::{Name, Reply, Verb, checked};
use crate::run::{Call, trace};
use crate::value::{BootInstant, Error, Released};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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
pub(crate) struct Leave(Option<Leaving>);

struct Leaving {
    janitor: Arc<Janitor>,
    server: Arc<Server>,
    name: Name,
    /// Something of it may arrive yet.
    late: bool,
    /// When its lease has ended whatever is said.
    until: BootInstant,
    /// What is on its way.
    call: Option<Call>,
    /// It was said before, for all that is known.
    is_repeated: bool,
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
        let verb = match is_held && !late {
            true => Verb::Release,
            false => Verb::Leave { late },
        };
        Leave(Some(Leaving {
            janitor: janitor.clone(),
            server: server.clone(),
            call: Some(Call::new(server, &name, verb)),
            name,
            late,
            until: BootInstant::now() + lease,
            is_repeated: !matches!(verb, Verb::Release),
        }))
    }
}

impl Future for Leave {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(leaving) = &mut self.0 else {
            return Poll::Ready(Err(Error::Closed));
        };
        let answer = ready!(Pin::new(leaving).poll(context));
        if answer.is_ok() {
            self.0 = None;
        }
        Poll::Ready(answer)
    }
}

impl Future for Leaving {
    type Output = Result<Released, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let verb = Verb::Leave { late: this.late };
            let say = || Call::new(&this.server, &this.name, verb);
            let (_, answer) = ready!(Pin::new(this.call.get_or_insert_with(say)).poll(context));
            this.call = None;
            let was_repeated = mem::replace(&mut this.is_repeated, true);
            return Poll::Ready(match checked(answer, &this.server.name) {
                // Any number left, or one that was left: it was held until now.
                Ok(Reply::Int(left)) if left > 0 || !was_repeated => Ok(Released::Held),
                Ok(_) if was_repeated => Ok(Released::Unknown),
                Ok(_) => Ok(Released::Lost),
                Err(Error::Connection { error, .. }) if !error.is_timeout() && !was_repeated => {
                    continue;
                }
                Err(error) => Err(error),
            });
        }
    }
}

impl Leaving {
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

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(leaving) = self.0.take() {
            let janitor = leaving.janitor.clone();
            let unsaid = Unsaid::new(janitor.clone());
            janitor.runtime.spawn(async move {
                leaving.go_on().await;
                drop(unsaid);
            });
        }
    }
}

/// Something that is still to be said, as long as its task is there.
struct Unsaid(Arc<Janitor>);

impl Unsaid {
    fn new(janitor: Arc<Janitor>) -> Unsaid {
        janitor.unsaid.send_modify(|count| *count += 1);
        Unsaid(janitor)
    }
}

impl Drop for Unsaid {
    fn drop(&mut self) {
        self.0.unsaid.send_modify(|count| *count -= 1);
    }
}
