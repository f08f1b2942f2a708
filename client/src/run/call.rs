//! One request about a name: sent at once, so that nothing that is sent after it arrives before it; resolves to its answer,
//! wherever the key is by then.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::net::Pending;
use crate::net::peer::Route;
use crate::net::server::Server;
use crate::proto::{Answer, Command, Failure, Name, Verb};
use crate::value::BootInstant;

/// So often a request is sent elsewhere.
pub(crate) const REDIRECTIONS: u32 = 8;

/// A request that was sent; resolves to when it was, for the last time, and the answer.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) name: Name,
    pub(crate) verb: Verb,
    route: Route,
    pending: Pending,
    sent: BootInstant,
    limit: Duration,
    redirections: u32,
    /// It is sent again, once, if a broken connection has lost it.
    pub(crate) repeats: bool,
}

impl Call {
    pub(crate) fn new(server: &Arc<Server>, name: &Name, verb: Verb) -> Call {
        Call::within(Duration::MAX, server, name, verb)
    }

    /// The same where the answer is of no use after `limit`.
    pub(crate) fn within(limit: Duration, server: &Arc<Server>, name: &Name, verb: Verb) -> Call {
        let (route, sent) = (server.route(&name.key), BootInstant::now());
        let pending = route.send_within(limit, &Command::Of(name.who(), verb, None), sent);
        Call {
            server: server.clone(),
            name: name.clone(),
            verb,
            route,
            pending,
            sent,
            limit,
            redirections: 0,
            repeats: false,
        }
    }

    /// Sent again, once, if a broken connection has lost it: doing it twice changes nothing.
    pub(crate) fn repeated(mut self) -> Call {
        self.repeats = true;
        self
    }
}

impl Future for Call {
    type Output = (BootInstant, Answer);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let answer = ready!(Pin::new(&mut self.pending).poll(context));
            self.route = match (self.server.redirected(&self.route, &answer), &answer) {
                (Some(route), _) if self.redirections < REDIRECTIONS => {
                    self.redirections += 1;
                    route
                }
                (_, Err(Failure::Unknown(error))) if self.repeats && !error.is_timeout() => {
                    self.repeats = false;
                    self.server.route(&self.name.key)
                }
                _ => return Poll::Ready((self.sent, answer)),
            };
            self.sent = BootInstant::now();
            let command = Command::Of(self.name.who(), self.verb, None);
            self.pending = self.route.send_within(self.limit, &command, self.sent);
        }
    }
}

/// Calls to several servers, answered in any order.
pub(crate) struct Calls<F = Call>(pub(crate) Vec<(usize, F)>);

impl<F> Default for Calls<F> {
    fn default() -> Calls<F> {
        Calls(Vec::new())
    }
}

impl<F: Future + Unpin> Calls<F> {
    pub(crate) fn add(&mut self, server: usize, call: F) {
        self.0.push((server, call));
    }

    /// The next that is answered; `None` once all are.
    pub(crate) async fn next(&mut self) -> Option<(usize, F::Output)> {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(output) = Pin::new(&mut self.0[at].1).poll(context) {
                    return Poll::Ready(Some((self.0.swap_remove(at).0, output)));
                }
            }
            match self.0.is_empty() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }
}
