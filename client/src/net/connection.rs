//! One connection that many share: what is to be written, and the requests in flight. What moves the bytes is in `drive`.
//!
//! A request that is not answered in time fails alone. The connection is given up, and with it everything that is in flight,
//! once another one is open, or none can be opened.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::awaiting::{Awaiting, Yielded};
use super::in_flight::{Due, InFlight, Patience, Request};
use crate::value::{BootInstant, ConnectionError, lock};
use crate::wire::{Answer, Command, NoReply, Reply};

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// Connecting, handshake included.
    pub(crate) connect: Duration,
    /// An answer.
    pub(crate) answer: Duration,
    /// What happens to requests while there is no connection.
    pub(crate) while_closed: WhileClosed,
}

/// What happens to requests while there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhileClosed {
    /// They wait until connecting has succeeded or failed.
    Wait,
    /// They wait no longer than for an answer, and not at all once connecting has failed: other servers can answer.
    FailFast,
}

/// What the users of a connection share with what drives it.
pub(super) struct Connection {
    state: Mutex<State>,
    /// Something was sent, or refused.
    sent: Notify,
    /// A request is late, or fails, before those that were sent before it.
    earlier: Notify,
    /// Every request was answered or has failed.
    settled: Notify,
    /// Everything that has arrived was delivered.
    delivered: Notify,
}

#[derive(Default)]
struct State {
    /// Why requests are refused now, if they are.
    refusal: Option<NoReply>,
    /// A request was refused since the last attempt to connect.
    was_refused: bool,
    is_open: bool,
    is_driven: bool,
    /// What is to be written.
    out: Vec<u8>,
    in_flight: InFlight,
    /// Since the last delivery nobody has looked whether more has arrived.
    is_behind: bool,
    given_up: Option<GivenUp>,
}

/// That the last connection was closed because its server is no primary: another one may be behind the same address now.
struct GivenUp {
    at: BootInstant,
    /// How long the next connection is kept even so: longer and longer, because the server may be a replica for good.
    keeps_next: Duration,
}

const SHORTEST_KEPT: Duration = Duration::from_millis(100);
const LONGEST_KEPT: Duration = Duration::from_secs(5);

/// A request that was sent; resolves to its answer. Dropped, the answer is thrown away.
#[derive(Debug)]
pub(crate) struct Pending(Sent);

enum Sent {
    InFlight(Arc<Connection>, u64),
    /// It was not sent. The task yields once before it learns that: one that asks again and again without a pause would keep
    /// a runtime with one thread from ever opening the connection.
    Refused(NoReply, Yielded),
    Answered,
}

impl Connection {
    pub(super) fn new() -> Arc<Connection> {
        Arc::new(Connection {
            state: Mutex::default(),
            sent: Notify::new(),
            earlier: Notify::new(),
            settled: Notify::new(),
            delivered: Notify::new(),
        })
    }

    /// Sends commands in one go, now, and awaits the answer to the last.
    pub(super) fn send(
        self: &Arc<Self>,
        commands: &[&Command<'_>],
        patience: Patience,
        now: BootInstant,
    ) -> Pending {
        let mut state = lock(&self.state);
        if let Some(refusal) = &state.refusal {
            let refused = Pending::refused(refusal.clone());
            state.was_refused = true;
            drop(state);
            self.sent.notify_one();
            return refused;
        }
        let (is_first, first) = (state.out.is_empty(), state.in_flight.next_number());
        for command in commands {
            let before = state.out.len();
            command.encode(&mut state.out);
            let length = state.out.len() - before;
            state.in_flight.push(Request {
                since: now,
                patience,
                length,
                waker: None,
            });
        }
        state.in_flight.want_last();
        let number = state.in_flight.next_number() - 1;
        let is_due_first = state.in_flight.is_due_first(first);
        drop(state);
        if is_first {
            self.sent.notify_one();
        }
        if is_due_first {
            self.earlier.notify_one();
        }
        Pending(Sent::InFlight(self.clone(), number))
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.state).is_open
    }

    /// Whether the caller has to start the task that drives it; `true` once, until `undriven`.
    pub(super) fn needs_driver(&self) -> bool {
        !mem::replace(&mut lock(&self.state).is_driven, true)
    }

    /// The task that drove it is gone.
    pub(super) fn undriven(&self, reason: &NoReply) {
        let mut state = lock(&self.state);
        (state.is_driven, state.refusal) = (false, None);
        drop(state);
        self.fail(reason);
    }

    /// Resolves once a request is in flight, or was refused since the last attempt to connect.
    pub(super) async fn wanted(&self) {
        let is_wanted = || {
            let mut state = lock(&self.state);
            mem::take(&mut state.was_refused) || !state.in_flight.is_empty()
        };
        while !is_wanted() {
            self.sent.notified().await;
        }
    }

    /// It is open: what was sent before is timed from now.
    pub(super) fn opened(&self) {
        let now = BootInstant::now();
        let mut state = lock(&self.state);
        (state.refusal, state.is_open) = (None, true);
        state.in_flight.restart(now);
    }

    /// It is closed: everything in flight has failed.
    pub(super) fn fail(&self, reason: &NoReply) {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.out.clear();
        let count = state.in_flight.len();
        let _ = self.answer(state, (0..count).map(|_| Err(reason.clone())));
    }

    /// It is closed: what was sent by then was not answered in time, and what was sent later is lost with it.
    pub(super) fn time_out(&self, moment: BootInstant, reason: &NoReply) {
        let lost = ConnectionError::new("an earlier request was not answered in time");
        let lost = NoReply::Unknown(lost);
        let mut state = lock(&self.state);
        state.is_open = false;
        state.out.clear();
        let (late, _) = state.in_flight.sent_by(moment);
        let rest = state.in_flight.len() - late;
        let reasons = std::iter::repeat_n(reason, late).chain(std::iter::repeat_n(&lost, rest));
        let _ = self.answer(state, reasons.map(|reason| Err(reason.clone())));
    }

    /// It was not opened: what was sent by then has failed. What was sent later waits for the next attempt.
    pub(super) fn fail_sent_by(&self, moment: BootInstant, reason: &NoReply) {
        let mut state = lock(&self.state);
        let (count, length) = state.in_flight.sent_by(moment);
        state.out.drain(..length);
        let _ = self.answer(state, (0..count).map(|_| Err(reason.clone())));
    }

    /// Refuses what is sent from now on.
    pub(super) fn refuse(&self, reason: NoReply) {
        lock(&self.state).refusal = Some(reason);
    }

    /// What is to be written, once there is something; `spare` is used for what comes next.
    pub(super) async fn next_batch(&self, mut spare: Vec<u8>) -> Vec<u8> {
        while lock(&self.state).out.is_empty() {
            self.sent.notified().await;
        }
        spare.clear();
        mem::replace(&mut lock(&self.state).out, spare)
    }

    /// Awaits what the server sends next. While there is nothing, everything that has arrived was delivered.
    pub(super) async fn listen<T>(&self, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        poll_fn(|context| {
            let polled = next.as_mut().poll(context);
            if polled.is_pending() && mem::take(&mut lock(&self.state).is_behind) {
                self.delivered.notify_waiters();
            }
            polled
        })
        .await
    }

    /// Resolves once everything that has arrived was delivered.
    pub(super) async fn delivered(&self) {
        self.until(&self.delivered, |state| !state.is_behind).await;
    }

    /// Delivers replies to the requests that were sent first, and returns the tasks that await them.
    pub(super) fn deliver(&self, replies: &mut Vec<Reply>) -> Result<Awaiting, ConnectionError> {
        let is_demoted =
            |it: &Reply| matches!(it, Reply::Error(line) if line.starts_with("READONLY"));
        let mut state = lock(&self.state);
        let gives_up = replies.iter().any(is_demoted) && state.gives_up(BootInstant::now());
        // A server that answers is asked again.
        state.refusal = None;
        // More may have arrived.
        state.is_behind = true;
        let awaiting = self.answer(state, replies.drain(..).map(Ok))?;
        match gives_up {
            true => Err(ConnectionError::new("the server is no longer a primary")),
            false => Ok(awaiting),
        }
    }

    /// Fails requests whose time is over; `true` if there are any.
    pub(super) fn expire(&self, now: BootInstant) -> bool {
        let mut state = lock(&self.state);
        let wakers = state.in_flight.expire(now);
        let has_expired = !wakers.is_empty();
        drop(self.awaiting(state, wakers));
        has_expired
    }

    /// Whether a request has failed because of its time, and is not answered yet.
    pub(super) fn is_silent(&self) -> bool {
        lock(&self.state).in_flight.has_expired()
    }

    pub(super) fn due(&self, now: BootInstant) -> Due {
        lock(&self.state).in_flight.due(now)
    }

    /// Resolves once every request was answered or has failed.
    pub(super) async fn settled(&self) {
        let is_settled = |state: &State| state.in_flight.is_settled();
        self.until(&self.settled, is_settled).await;
    }

    /// Resolves once `holds`, which `changed` tells of.
    async fn until(&self, changed: &Notify, holds: impl Fn(&State) -> bool) {
        loop {
            let mut told = pin!(changed.notified());
            told.as_mut().enable();
            if holds(&lock(&self.state)) {
                return;
            }
            told.await;
        }
    }

    /// Resolves when a request was sent that is late, or fails, before the others.
    pub(super) async fn is_due_earlier(&self) {
        self.earlier.notified().await;
    }

    /// Answers the oldest requests. An error if there are more answers than requests.
    fn answer(
        &self,
        mut state: MutexGuard<'_, State>,
        mut answers: impl Iterator<Item = Answer>,
    ) -> Result<Awaiting, ConnectionError> {
        let mut wakers = Vec::new();
        let answered = answers.try_for_each(|answer| {
            wakers.extend(state.in_flight.answer(answer)?);
            Ok(())
        });
        let awaiting = self.awaiting(state, wakers);
        answered.map(|()| awaiting)
    }

    /// The tasks whose requests were answered or have failed.
    fn awaiting(&self, state: MutexGuard<'_, State>, wakers: Vec<Waker>) -> Awaiting {
        let is_settled = state.in_flight.is_settled();
        // Not under the lock: who is woken may ask this connection.
        drop(state);
        if is_settled {
            self.settled.notify_waiters();
        }
        Awaiting::new(wakers)
    }
}

impl State {
    /// Whether a connection to a server that is no primary is closed now.
    fn gives_up(&mut self, now: BootInstant) -> bool {
        let mut keeps_next = SHORTEST_KEPT;
        if let Some(last) = &self.given_up {
            let since = now.since(last.at);
            if since < last.keeps_next {
                return false;
            }
            // It is the same failover, or a replica for good.
            if since < 2 * LONGEST_KEPT {
                keeps_next = (2 * last.keeps_next).min(LONGEST_KEPT);
            }
        }
        let at = now;
        self.given_up = Some(GivenUp { at, keeps_next });
        true
    }
}

impl Pending {
    /// What was not sent.
    pub(crate) fn refused(reason: NoReply) -> Pending {
        Pending(Sent::Refused(reason, Yielded(false)))
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let (connection, number) = match &mut self.0 {
            Sent::InFlight(connection, number) => (connection, *number),
            Sent::Refused(reason, yielded) => {
                return yielded.poll(context).map(|()| Err(reason.clone()));
            }
            Sent::Answered => panic!("an answer is taken once"),
        };
        let polled = lock(&connection.state)
            .in_flight
            .poll(number, context.waker());
        if polled.is_ready() {
            self.0 = Sent::Answered;
        }
        polled
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Sent::InFlight(connection, number) = &self.0 {
            // The waker may hold a task, whose end may ask this connection.
            let waker = lock(&connection.state).in_flight.forget(*number);
            drop(waker);
        }
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sent::InFlight(..) => "InFlight",
            Sent::Refused(..) => "Refused",
            Sent::Answered => "Answered",
        })
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Connection")
            .field("is_open", &state.is_open)
            .field("in_flight", &state.in_flight.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_a_demoted_server_is_closed_at_once_and_then_less_and_less_often() {
        let (mut state, start) = (State::default(), BootInstant::now());
        let mut given_up = |from: u64, to: u64| {
            let at = |ms| start + Duration::from_millis(ms);
            let is_given_up = |ms: &u64| state.gives_up(at(*ms));
            (from..to).filter(is_given_up).collect::<Vec<_>>()
        };
        let first = [0, 100, 300, 700, 1_500, 3_100, 6_300];
        assert_eq!(given_up(0, 10_000), first);
        assert_eq!(given_up(10_000, 30_000), [11_300, 16_300, 21_300, 26_300]);
        // The next failover.
        assert_eq!(given_up(90_000, 90_150), [90_000, 90_100]);
    }
}
