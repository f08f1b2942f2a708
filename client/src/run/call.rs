//! One request about a name: sent at once, so that nothing that is sent after it arrives before it; resolves to its answer,
//! wherever the key is by then, also where it has to queue for that.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::net::Pending;
use crate::net::peer::Route;
use crate::net::server::Server;
use crate::proto::{Answer, Command, Failure, Name, Reply, Verb, Vote};
use crate::run::Core;
use crate::run::mail::Entry;
use crate::value::{BootInstant, Error, Loss};

/// So often a request is sent elsewhere.
const REDIRECTIONS: u32 = 8;

/// How long an answer may take.
#[derive(Default)]
pub(crate) struct Limit {
    /// It is of no use later.
    pub(crate) answer: Option<Duration>,
    /// The request may queue for others to leave, for so many milliseconds, 0 without limit.
    pub(crate) wait: Option<(Arc<Core>, u64)>,
}

/// A request that was sent; resolves to its answer.
pub(crate) struct Call {
    pub(crate) server: Arc<Server>,
    pub(crate) name: Name,
    pub(crate) verb: Verb,
    limit: Limit,
    route: Route,
    pending: Option<Pending>,
    /// Where the letter comes that answers it.
    entry: Option<Entry>,
    pub(crate) is_queued: bool,
    /// When it was sent, for the last time; later if it is known that it was granted later.
    sent: BootInstant,
    redirections: u32,
    /// It is sent again, once, if a broken connection has lost it.
    pub(crate) repeats: bool,
}

impl Call {
    pub(crate) fn new(server: &Arc<Server>, name: &Name, verb: Verb) -> Call {
        Call::within(Limit::default(), server, name, verb)
    }

    /// The same whose answer is awaited for so long.
    pub(crate) fn within(limit: Limit, server: &Arc<Server>, name: &Name, verb: Verb) -> Call {
        let mut call = Call {
            server: server.clone(),
            name: name.clone(),
            verb,
            limit,
            route: server.route(&name.key),
            pending: None,
            entry: None,
            is_queued: false,
            sent: BootInstant::default(),
            redirections: 0,
            repeats: false,
        };
        call.send();
        call
    }

    fn send(&mut self) {
        self.sent = BootInstant::now();
        // One at a time: it may be sent to the same server again.
        self.entry = None;
        // Before the request is sent: a letter may overtake the reply.
        let enter = |(core, _): &(Arc<Core>, u64)| {
            let mail = core.mail(&self.server, &self.route.peer, &self.name.key);
            mail.enter(self.name.owner.clone())
        };
        self.entry = self.limit.wait.as_ref().map(enter);
        let wait = self.limit.wait.as_ref().zip(self.entry.as_ref());
        let wait = wait.map(|((_, limit), entry)| (*limit, &*entry.mail.name));
        let command = Command::Of(self.name.who(), &self.verb, wait);
        let limit = self.limit.answer.unwrap_or(Duration::MAX);
        self.pending = Some(self.route.send_within(limit, &command, self.sent));
    }

    /// Sent again, once, if a broken connection has lost it: doing it twice changes nothing.
    pub(crate) fn repeated(mut self) -> Call {
        self.repeats = true;
        self
    }

    /// Where it is sent again after this answer.
    fn next_route(&mut self, answer: &Answer) -> Option<Route> {
        let redirected = self.server.redirected(&self.route, answer);
        match answer {
            Err(Failure::Unknown(error)) if self.repeats && !error.is_timeout() => {
                self.repeats = false;
                Some(self.server.route(&self.name.key))
            }
            _ => {
                self.redirections += 1;
                redirected.filter(|_| self.redirections <= REDIRECTIONS)
            }
        }
    }

    /// Whether it was sent before its connection was open.
    pub(crate) fn is_early(&self) -> bool {
        self.pending.as_ref().is_some_and(|it| it.is_early)
    }

    /// What the answer says of the name.
    pub(crate) fn vote(&self, answer: Answer) -> Vote {
        let until = self.verb.believed_until(self.sent);
        let vote = Vote::of(answer, (self.sent, until), &self.server.name);
        // What has run out while it was queued is not taken up again.
        match vote {
            Vote::Held(_) if self.is_queued && until.remaining().is_zero() => {
                Vote::Unknown(Error::Lost(Loss::Expired))
            }
            vote => vote,
        }
    }
}

impl Future for Call {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let call = &mut *self;
        loop {
            if let Some(entry) = call.entry.as_ref().filter(|_| call.is_queued) {
                let (answer, since) = ready!(entry.poll(context.waker()));
                call.sent = call.sent.max(since);
                return Poll::Ready(answer);
            }
            let Some(pending) = &mut call.pending else {
                return Poll::Ready(Err(Failure::Gone));
            };
            let answer = ready!(Pin::new(pending).poll(context));
            if let Some(route) = call.next_route(&answer) {
                call.route = route;
                call.send();
                continue;
            }
            match (&answer, &call.limit.wait, &call.entry) {
                (Ok(queued @ Reply::Array(_)), Some((core, _)), Some(entry)) => {
                    entry.queued(core, queued);
                    call.is_queued = true;
                }
                _ => return Poll::Ready(answer),
            }
        }
    }
}

/// Calls to several servers, answered in any order.
#[derive(Default)]
pub(crate) struct Calls(pub(crate) Vec<(usize, Call)>);

impl Calls {
    pub(crate) fn any(&self, server: usize, is: fn(&Call) -> bool) -> bool {
        self.0.iter().any(|it| it.0 == server && is(&it.1))
    }

    /// The next that is answered; `None` once all are.
    pub(crate) async fn next(&mut self) -> Option<(usize, Call, Answer)> {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(answer) = Pin::new(&mut self.0[at].1).poll(context) {
                    let (server, call) = self.0.swap_remove(at);
                    return Poll::Ready(Some((server, call, answer)));
                }
            }
            match self.0.is_empty() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// The next that says something of a name. A renewal that has failed says nothing.
    pub(crate) async fn next_vote(&mut self) -> Option<(usize, Call, Vote)> {
        loop {
            let (server, call, answer) = self.next().await?;
            let vote = call.vote(answer);
            let has_failed = matches!(vote, Vote::Unknown(_) | Vote::Failed(_));
            if !(has_failed && matches!(call.verb, Verb::Renew(..))) {
                return Some((server, call, vote));
            }
        }
    }
}
