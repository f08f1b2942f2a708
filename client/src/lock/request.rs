//! One request about a name: sent at once, so that nothing that is sent after it arrives before it. It resolves to its
//! answer, wherever the key is by then, also if it has to wait in a queue for that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::lock::Core;
use crate::lock::mail::Entry;
use crate::net::{Alarm, Pending, Route};
use crate::value::{BootInstant, ConnectionError, Error, Loss};
use crate::wire::{Answer, Command, Grant, Name, NoReply, Reply, Verb, WaitByMail, checked, token};

/// So often a request is sent elsewhere.
const REDIRECTIONS: u32 = 8;

/// A request that was sent; resolves to its answer.
pub(crate) struct Request {
    core: Arc<Core>,
    name: Name,
    verb: Verb,
    route: Route,
    pending: Pending,
    /// After how long the answer is late.
    late: Duration,
    /// It may wait in a queue, for so many milliseconds, 0 without limit.
    wait: Option<u64>,
    /// The letter that may answer it.
    entry: Option<Entry>,
    queued: Option<Queued>,
    /// When it was sent, for the last time; later if it is known that it was granted later.
    sent: BootInstant,
    redirections: u32,
    loss: OnConnectionLoss,
}

/// It waits in a queue.
struct Queued {
    /// When the server has not answered in time.
    overdue: Option<BootInstant>,
    alarm: Option<Alarm>,
}

/// What happens to a request that a broken connection has lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnConnectionLoss {
    Fails,
    /// Doing it twice changes nothing.
    Resends,
    HasResent,
}

/// Why a request was not granted.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Null: others hold the lock, or the name holds nothing.
    Denied,
    /// The server refused it, or it was never sent: it has changed nothing.
    Refused(Error),
    /// Nobody knows whether it was carried out.
    Unknown(Error),
}

impl Request {
    pub(crate) fn new(core: &Arc<Core>, name: &Name, verb: Verb) -> Request {
        Request::urgent(Duration::MAX, core, name, verb)
    }

    /// One whose answer is late after a while: then another connection is tried.
    pub(crate) fn urgent(late: Duration, core: &Arc<Core>, name: &Name, verb: Verb) -> Request {
        let route = core.endpoint.route(&name.key);
        let mut request = Request::unsent(core, name, verb, route);
        request.late = late;
        request.transmit();
        request
    }

    /// One that asks for a lock, and may wait for it.
    pub(crate) fn acquiring(
        core: &Arc<Core>,
        name: &Name,
        verb: Verb,
        wait: Option<u64>,
    ) -> Result<Request, Error> {
        let route = core.endpoint.route(&name.key);
        // Before the request is sent: a letter may overtake the reply.
        let entry = core.enter(name, &route)?;
        let mut request = Request::unsent(core, name, verb, route);
        (request.wait, request.entry) = (wait, Some(entry));
        request.transmit();
        Ok(request)
    }

    fn unsent(core: &Arc<Core>, name: &Name, verb: Verb, route: Route) -> Request {
        Request {
            core: core.clone(),
            name: name.clone(),
            verb,
            route,
            pending: Pending::refused(NoReply::Closed),
            late: Duration::MAX,
            wait: None,
            entry: None,
            queued: None,
            sent: BootInstant::default(),
            redirections: 0,
            loss: OnConnectionLoss::Fails,
        }
    }

    fn transmit(&mut self) {
        self.sent = BootInstant::now();
        let wait = self.wait.zip(self.entry.as_ref());
        let wait = wait.map(|(limit, entry)| WaitByMail {
            limit,
            mailbox: &entry.mailbox.name,
        });
        let command = Command::Lock {
            name: &self.name,
            verb: &self.verb,
            wait,
        };
        let route = &self.route;
        self.pending = route.send_urgently(self.late, &command, self.sent);
    }

    /// It is sent again, once, if a broken connection has lost it.
    pub(crate) fn resent_once(mut self) -> Request {
        self.loss = OnConnectionLoss::Resends;
        self
    }

    pub(crate) fn was_resent(&self) -> bool {
        self.loss == OnConnectionLoss::HasResent
    }

    pub(crate) fn was_queued(&self) -> bool {
        self.queued.is_some()
    }

    /// Sends it elsewhere, or again, if this answer asks for that; `false` if it is the answer.
    fn is_sent_again(&mut self, answer: &Answer) -> Result<bool, Error> {
        let redirected = self.core.endpoint.redirected(&self.route, answer);
        let is_lost = matches!(answer, Err(NoReply::Unknown(error)) if !error.is_timeout());
        let route = match redirected {
            _ if is_lost && self.loss == OnConnectionLoss::Resends => {
                self.loss = OnConnectionLoss::HasResent;
                self.core.endpoint.route(&self.name.key)
            }
            Some(route) if self.redirections < REDIRECTIONS => {
                self.redirections += 1;
                route
            }
            _ => return Ok(false),
        };
        if self.entry.take().is_some() {
            self.entry = Some(self.core.enter(&self.name, &route)?);
        }
        self.route = route;
        self.transmit();
        Ok(true)
    }

    fn poll_letter(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        let (Some(entry), Some(queued)) = (&self.entry, &mut self.queued) else {
            return Poll::Ready(Err(NoReply::Closed));
        };
        if let Poll::Ready((answer, since)) = entry.poll(context.waker()) {
            self.sent = self.sent.max(since);
            return Poll::Ready(answer);
        }
        let Some(overdue) = queued.overdue else {
            return Poll::Pending;
        };
        if overdue.remaining().is_zero() {
            let silence = ConnectionError::silence("no answer", self.core.timeouts.answer);
            return Poll::Ready(Err(NoReply::Unknown(silence)));
        }
        queued.alarm = Some(Alarm::at(overdue, context.waker().clone()));
        Poll::Pending
    }

    /// What the server has granted by this answer.
    fn grant(&self, answer: Answer) -> Result<Grant, Failed> {
        let server = &self.core.endpoint.name;
        let is_settled = matches!(
            answer,
            Ok(Reply::Error(_)) | Err(NoReply::NotSent(_) | NoReply::Forked)
        );
        let token = match checked(answer, server).and_then(token) {
            Ok(Some(token)) => token,
            Ok(None) => return Err(Failed::Denied),
            Err(error) if is_settled => return Err(Failed::Refused(error)),
            Err(error) => return Err(Failed::Unknown(error)),
        };
        let until = self.verb.believed_until(self.sent);
        // A hold that expired before its letter arrived is not resumed.
        if self.was_queued() && until.remaining().is_zero() {
            return Err(Failed::Unknown(Error::Lost(Loss::Expired)));
        }
        Ok(Grant {
            token,
            since: self.sent,
            until,
        })
    }

    /// Waits until it is granted, or has failed.
    pub(crate) async fn granted(&mut self) -> Result<Grant, Failed> {
        let answer = (&mut *self).await;
        self.grant(answer)
    }

    /// The reply.
    pub(crate) async fn reply(&mut self) -> Result<Reply, Error> {
        let answer = (&mut *self).await;
        checked(answer, &self.core.endpoint.name)
    }
}

impl Future for Request {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let request = &mut *self;
        loop {
            if request.queued.is_some() {
                return request.poll_letter(context);
            }
            let answer = ready!(Pin::new(&mut request.pending).poll(context));
            match request.is_sent_again(&answer) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return Poll::Ready(Err(NoReply::Closed)),
            }
            match (&answer, &request.entry, request.wait) {
                (Ok(queued @ Reply::Array(_)), Some(entry), Some(wait)) => {
                    entry.queued(&request.core, queued);
                    let limit = Duration::from_millis(wait);
                    let latest = request.core.timeouts.answer;
                    let overdue = (wait > 0).then(|| request.sent + limit + latest);
                    let alarm = None;
                    request.queued = Some(Queued { overdue, alarm });
                }
                _ => return Poll::Ready(answer),
            }
        }
    }
}
