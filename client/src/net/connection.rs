//! One connection that many share. Requests are answered in the order in which they were sent, so a request is a place in a
//! row, and needs neither a channel nor an allocation. What drives the connection is in `drive`.
//!
//! Where one request is not answered in time the connection is given up, and with it everything that is in flight.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::proto::command::Command;
use crate::proto::reply::{Answer, Failure, Reply};
use crate::value::clock::BootInstant;
use crate::value::error::ConnectionError;
use crate::value::sync::lock;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connecting, handshake included.
    pub(crate) connect: Duration,
    /// An answer.
    pub(crate) answer: Duration,
    /// Whether a request waits no longer than for an answer while the connection is opened, which is tried again and again;
    /// and not at all once that has failed. (Other servers are there to answer.)
    pub(crate) impatient: bool,
}

/// A connection; closed when this is dropped, after what has been sent is answered.
pub(crate) struct Connection(Arc<Shared>);

/// What the users of a connection share with its driver.
pub(super) struct Shared {
    pub(super) limits: Limits,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// What is to be written.
    out: Vec<u8>,
    /// The requests in their order; the first has this number.
    row: VecDeque<Request>,
    first: u64,
    /// How many of the row are answered.
    answered: usize,
    driver: Option<Waker>,
    /// Nobody sends any more.
    is_dropped: bool,
}

enum Phase {
    Opening {
        /// Why the last attempt failed.
        failed: Option<ConnectionError>,
    },
    Open,
    Closed(Failure),
}

struct Request {
    sent: BootInstant,
    due: BootInstant,
    length: usize,
    limit: Duration,
    place: Place,
}

enum Place {
    Waiting(Option<Waker>),
    /// Its caller is gone.
    Unwanted,
    Answered(Answer),
    Taken,
}

/// A request that was sent; resolves to its answer. Dropped, the answer is thrown away.
pub(crate) struct Pending(Way);

enum Way {
    InRow(Arc<Shared>, u64),
    Refused(Option<Failure>),
}

impl Connection {
    /// Not yet opened.
    pub(super) fn new(limits: Limits) -> Connection {
        Connection(Arc::new(Shared {
            limits,
            state: Mutex::new(State {
                phase: Phase::Opening { failed: None },
                out: Vec::new(),
                row: VecDeque::new(),
                first: 0,
                answered: 0,
                driver: None,
                is_dropped: false,
            }),
        }))
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.0.clone()
    }

    /// Sends a command, now; its answer may take up to `limit`.
    pub(crate) fn send(&self, command: &Command<'_>, limit: Duration, now: BootInstant) -> Pending {
        self.0.send(&[command], limit, now)
    }

    /// Sends two commands in one go, and awaits the answer to the second.
    pub(crate) fn send_both(&self, commands: [&Command<'_>; 2], now: BootInstant) -> Pending {
        self.0.send(&commands, self.0.limits.answer, now)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(lock(&self.0.state).phase, Phase::Closed(_))
    }
}

impl Shared {
    /// The answer to the last one is awaited.
    fn send(
        self: &Arc<Self>,
        commands: &[&Command<'_>],
        limit: Duration,
        now: BootInstant,
    ) -> Pending {
        let mut state = lock(&self.state);
        let refused = match &state.phase {
            Phase::Closed(Failure::Gone) => Some(Failure::Gone),
            Phase::Closed(Failure::Unknown(error) | Failure::NotSent(error)) => {
                Some(Failure::NotSent(error.clone()))
            }
            Phase::Opening {
                failed: Some(error),
            } if self.limits.impatient => Some(Failure::NotSent(error.clone())),
            _ => None,
        };
        if refused.is_some() {
            return Pending(Way::Refused(refused));
        }
        let is_first = state.out.is_empty();
        for command in commands {
            let before = state.out.len();
            command.encode(&mut state.out);
            let length = state.out.len() - before;
            state.row.push_back(Request {
                sent: now,
                due: now + limit,
                length,
                limit,
                place: Place::Unwanted,
            });
        }
        let number = state.first + state.row.len() as u64 - 1;
        if let Some(last) = state.row.back_mut() {
            last.place = Place::Waiting(None);
        }
        // The driver takes all that is there; and it has a timer while there is something in the row.
        let driver = is_first.then(|| state.driver.take()).flatten();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        Pending(Way::InRow(self.clone(), number))
    }

    /// The connection is open: what waits may be written, and is timed from now.
    pub(super) fn open(&self) {
        let now = BootInstant::now();
        let mut state = lock(&self.state);
        state.phase = Phase::Open;
        for request in &mut state.row {
            request.due = now + request.limit;
        }
    }

    /// An attempt to open it, begun at `began`, has failed: who has waited for all of it is told. `true` if others wait.
    pub(super) fn fail_opening(&self, error: &ConnectionError, began: BootInstant) -> bool {
        let mut state = lock(&self.state);
        state.phase = Phase::Opening {
            failed: Some(error.clone()),
        };
        let failed = Failure::NotSent(error.clone());
        let all = self.limits.impatient;
        let wakers = state.fail_unsent(&failed, |request| all || request.sent <= began);
        let others_wait = state.row.len() > state.answered;
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        others_wait
    }

    /// It was lost, and is opened again. One that was silent is not waited for until it is.
    pub(super) fn reopen(&self, error: ConnectionError) {
        let mut state = lock(&self.state);
        state.phase = Phase::Opening {
            failed: error.is_timeout().then(|| error.clone()),
        };
        let wakers = state.fail_all(&Failure::Unknown(error));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends it: nothing more is answered.
    pub(super) fn close(&self, failure: Failure) {
        let mut state = lock(&self.state);
        let told = match (&state.phase, &failure) {
            (Phase::Closed(_), _) => return,
            (Phase::Opening { .. }, Failure::Unknown(error)) => Failure::NotSent(error.clone()),
            _ => failure.clone(),
        };
        state.phase = Phase::Closed(failure);
        let wakers = state.fail_all(&told);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails what has waited for the opening for too long, without being sent. Returns when the next one has.
    pub(super) fn expire_unsent(&self, now: BootInstant) -> Option<BootInstant> {
        let mut state = lock(&self.state);
        if !self.limits.impatient {
            return None;
        }
        let silence = ConnectionError::silence("not connected", self.limits.answer);
        let wakers = state.fail_unsent(&Failure::NotSent(silence), |request| request.due <= now);
        let due = state.row.get(state.answered).map(|request| request.due);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        due
    }

    /// What is to be written, if anything; and registers the driver to be woken when there is more.
    pub(super) fn take_out(&self, spare: &mut Vec<u8>, driver: &Waker) {
        spare.clear();
        let mut state = lock(&self.state);
        mem::swap(&mut state.out, spare);
        state.register(driver);
    }

    pub(super) fn has_out(&self) -> bool {
        !lock(&self.state).out.is_empty()
    }

    /// Registers the driver to be woken when there is something to do.
    pub(super) fn register(&self, driver: &Waker) {
        lock(&self.state).register(driver);
    }

    /// Delivers replies to the first who wait. `false` if there are more replies than requests.
    pub(super) fn deliver(&self, replies: &mut Vec<Reply>) -> bool {
        let mut wakers = Vec::new();
        let mut state = lock(&self.state);
        let mut is_right = true;
        for reply in replies.drain(..) {
            let at = state.answered;
            match state.row.get_mut(at) {
                Some(request) => request.answer(Ok(reply), &mut wakers),
                None => {
                    is_right = false;
                    break;
                }
            }
            state.answered += 1;
        }
        state.shorten();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        is_right
    }

    /// When the oldest request should be answered, and within how long of its sending.
    pub(super) fn next_due(&self) -> Option<(BootInstant, Duration)> {
        let state = lock(&self.state);
        let oldest = state.row.get(state.answered)?;
        Some((oldest.due, oldest.limit))
    }

    /// Whether nobody sends any more, and everything is answered.
    pub(super) fn is_done(&self) -> bool {
        let state = lock(&self.state);
        state.is_dropped && state.answered == state.row.len() && state.out.is_empty()
    }

    pub(super) fn is_dropped(&self) -> bool {
        lock(&self.state).is_dropped
    }
}

impl State {
    fn register(&mut self, driver: &Waker) {
        if self.driver.as_ref().is_none_or(|it| !it.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
    }

    /// Returns whom to wake.
    fn fail_all(&mut self, failure: &Failure) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for request in self.row.iter_mut().skip(self.answered) {
            request.answer(Err(failure.clone()), &mut wakers);
        }
        self.answered = self.row.len();
        self.out.clear();
        self.shorten();
        wakers
    }

    /// Fails the first of what has not been sent. Returns whom to wake.
    fn fail_unsent(
        &mut self,
        failure: &Failure,
        is_failed: impl Fn(&Request) -> bool,
    ) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(request) = self.row.get_mut(self.answered)
            && is_failed(request)
        {
            request.answer(Err(failure.clone()), &mut wakers);
            self.out.drain(..request.length);
            self.answered += 1;
        }
        self.shorten();
        wakers
    }

    /// Drops the answers at the front of the row that were taken.
    fn shorten(&mut self) {
        while let Some(request) = self.row.front()
            && matches!(request.place, Place::Taken)
        {
            self.row.pop_front();
            self.first += 1;
            self.answered -= 1;
        }
    }
}

impl Request {
    fn answer(&mut self, answer: Answer, wakers: &mut Vec<Waker>) {
        let place = mem::replace(&mut self.place, Place::Taken);
        if let Place::Waiting(waker) = place {
            self.place = Place::Answered(answer);
            wakers.extend(waker);
        }
    }
}

impl Pending {
    /// One that has failed.
    #[cfg(feature = "cluster")]
    pub(super) fn failed(failure: Failure) -> Pending {
        Pending(Way::Refused(Some(failure)))
    }

    pub(crate) fn poll_take(&mut self, context: &mut Context<'_>) -> Poll<Answer> {
        let (shared, number) = match &mut self.0 {
            Way::InRow(shared, number) => (shared, *number),
            Way::Refused(failure) => {
                let failure = failure.take().unwrap_or(Failure::Gone);
                return Poll::Ready(Err(failure));
            }
        };
        let mut state = lock(&shared.state);
        let Some(at) = number.checked_sub(state.first) else {
            return Poll::Ready(Err(Failure::Gone));
        };
        let request = &mut state.row[at as usize];
        match mem::replace(&mut request.place, Place::Taken) {
            Place::Answered(answer) => {
                state.shorten();
                drop(state);
                self.0 = Way::Refused(None);
                Poll::Ready(answer)
            }
            Place::Waiting(waker) => {
                let waker = match waker {
                    Some(waker) if waker.will_wake(context.waker()) => waker,
                    _ => context.waker().clone(),
                };
                request.place = Place::Waiting(Some(waker));
                Poll::Pending
            }
            _ => Poll::Ready(Err(Failure::Gone)),
        }
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.poll_take(context)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let Way::InRow(shared, number) = &self.0 else {
            return;
        };
        let mut state = lock(&shared.state);
        if let Some(at) = number.checked_sub(state.first) {
            let request = &mut state.row[at as usize];
            request.place = match request.place {
                Place::Waiting(_) => Place::Unwanted,
                _ => Place::Taken,
            };
            state.shorten();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_dropped = true;
        let driver = state.driver.take();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0.state);
        let phase = match &state.phase {
            Phase::Opening { .. } => "opening",
            Phase::Open => "open",
            Phase::Closed(_) => "closed",
        };
        f.debug_struct("Connection")
            .field("phase", &phase)
            .field("in_flight", &(state.row.len() - state.answered))
            .finish()
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}
