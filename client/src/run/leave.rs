//! Leaving a name: said to a server until it has answered, or no hold of that name can be there any more.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::net::Pending;
use crate::net::peer::Route;
use crate::net::server::Server;
use crate::proto::command::Command;
use crate::proto::reply::{Reply, checked};
use crate::value::clock::BootInstant;
use crate::value::error::Error;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A name to be left at a server.
#[derive(Debug)]
pub(crate) struct Leave {
    pub(crate) server: Arc<Server>,
    pub(crate) key: Arc<[u8]>,
    owner: Arc<[u8]>,
    /// Something of it may arrive yet.
    pub(crate) late: bool,
    /// When its lease has ended whatever is said.
    until: BootInstant,
    /// A release of it that is on its way, which will do if it is answered.
    pub(crate) said: Option<(Route, Pending)>,
    /// After a failure.
    pause: Duration,
}

impl Leave {
    /// To be said for as long as a lease may last.
    pub(crate) fn new(
        server: Arc<Server>,
        (key, owner): (Arc<[u8]>, Arc<[u8]>),
        lease: Duration,
        late: bool,
    ) -> Leave {
        Leave {
            server,
            key,
            owner,
            late,
            until: BootInstant::now() + lease,
            said: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Sends the first word: a release will do for a hold that is there, for all that is known.
    pub(crate) fn release(mut self) -> Leave {
        if self.late {
            self.say();
            return self;
        }
        let route = self.server.route(&self.key);
        let who = (&*self.key, &*self.owner);
        let command = Command::Release { who, token: None };
        let pending = route.send(&command, BootInstant::now());
        self.said = Some((route, pending));
        self
    }

    pub(crate) fn say(&mut self) {
        let route = self.server.route(&self.key);
        let pending = self.send(&route);
        self.said = Some((route, pending));
    }

    fn send(&self, route: &Route) -> Pending {
        let who = (&*self.key, &*self.owner);
        let late = self.late;
        route.send(&Command::Leave { who, late }, BootInstant::now())
    }

    /// The answer, once it is there; an error is why it is to be said again.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        loop {
            let Some((route, pending)) = &mut self.said else {
                return Poll::Ready(Err(Error::Closed));
            };
            let Poll::Ready(answer) = pending.poll_take(context) else {
                return Poll::Pending;
            };
            if let Some(route) = self.server.redirected(route, &answer) {
                let pending = self.send(&route);
                self.said = Some((route, pending));
                continue;
            }
            return Poll::Ready(checked(answer, &self.server.name));
        }
    }

    /// Whether there is nothing left that could be said, or anybody who could be told.
    pub(crate) fn is_in_vain(&self, error: &Error) -> bool {
        let is_final = matches!(error, Error::NoModule { .. } | Error::Closed);
        is_final || BootInstant::now() >= self.until
    }

    /// How long after a failure it is said again.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}
