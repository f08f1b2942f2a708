//! One connection that many share. The server answers requests in the order in which they were sent, so a request is known
//! by its number, and needs neither a channel nor an allocation. What moves the bytes is in `drive`.
//!
//! When one request is not answered in time the connection is given up, and with it everything that is in flight.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::value::{BootInstant, ConnectionError, lock};
use crate::wire::{Answer, Command, Failure, Reply};

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
    /// A request is overdue before those that were sent before it.
    earlier: Notify,
}

#[derive(Default)]
struct State {
    /// Why requests are refused now, if they are.
    refusal: Option<Failure>,
    /// Something was refused since the last attempt to connect.
    was_refused: bool,
    is_open: bool,
    is_driven: bool,
    /// What is to be written.
    out: Vec<u8>,
    /// The requests that are not answered, in their order; the first has the number `first`.
    in_flight: VecDeque<Request>,
    first: u64,
    /// The answers that were not taken yet, by the number of their requests.
    answers: HashMap<u64, Answer>,
    /// When requests in flight are overdue: of each run of them the one that is due first, so the first is due first of all.
    overdue: VecDeque<Overdue>,
    /// When it was last given up because its server is no primary, and how long the next one is kept even so.
    given_up: Option<(BootInstant, Duration)>,
}

/// When a request is overdue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overdue {
    number: u64,
    pub(super) at: BootInstant,
    pub(super) limit: Duration,
}

/// A server that is no primary any more is given up, because the primary may be behind the same address now: the first time
/// at once, and then less and less often, down to this.
const SHORTEST_STAY: Duration = Duration::from_millis(100);
const LONGEST_STAY: Duration = Duration::from_secs(5);

struct Request {
    /// When it was sent, or the connection opened.
    since: BootInstant,
    limit: Duration,
    /// How many bytes it has.
    length: usize,
    /// Whom to wake; nobody, if nobody wants the answer.
    waker: Option<Waker>,
}

/// A request that was sent; resolves to its answer. Dropped, the answer is thrown away.
#[derive(Debug)]
pub(crate) struct Pending(Sent);

enum Sent {
    InFlight(Arc<Connection>, u64),
    /// It was not sent.
    Refused(Failure),
    Answered,
}

impl Connection {
    pub(super) fn new() -> Arc<Connection> {
        Arc::new(Connection {
            state: Mutex::default(),
            sent: Notify::new(),
            earlier: Notify::new(),
        })
    }

    /// Sends commands in one go, now, and awaits the answer to the last, which may take up to `limit`.
    pub(super) fn send(
        self: &Arc<Self>,
        commands: &[&Command<'_>],
        limit: Duration,
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
        let (is_first, first) = (state.out.is_empty(), state.next_number());
        for command in commands {
            let before = state.out.len();
            command.encode(&mut state.out);
            let length = state.out.len() - before;
            state.push(Request {
                since: now,
                limit,
                length,
                waker: None,
            });
        }
        if let Some(last) = state.in_flight.back_mut() {
            last.waker = Some(Waker::noop().clone());
        }
        let number = state.next_number() - 1;
        let is_due_first = state.overdue.front().map(|it| it.number) >= Some(first);
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

    /// Whether a task has to be started that drives it; `true` only once, until `undriven`.
    pub(super) fn needs_driver(&self) -> bool {
        !mem::replace(&mut lock(&self.state).is_driven, true)
    }

    /// The task that drove it is gone.
    pub(super) fn undriven(&self, failure: &Failure) {
        lock(&self.state).is_driven = false;
        self.allow();
        self.fail(failure);
    }

    /// Resolves once somebody waits for an answer, or was refused since the last attempt.
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
        for request in &mut state.in_flight {
            request.since = now;
        }
        state.overdue.clear();
        for at in 0..state.in_flight.len() {
            state.note_overdue(at);
        }
    }

    /// It is closed: everything in flight has failed.
    pub(super) fn fail(&self, failure: &Failure) {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.out.clear();
        let count = state.in_flight.len();
        answer(state, (0..count).map(|_| Err(failure.clone())));
    }

    /// It was not opened: what was sent by then has failed. What was sent later waits for the next attempt.
    pub(super) fn fail_sent_by(&self, moment: BootInstant, failure: &Failure) {
        let mut state = lock(&self.state);
        let old = state.in_flight.iter().take_while(|it| it.since <= moment);
        let (count, length) = old.fold((0, 0), |(n, length), it| (n + 1, length + it.length));
        state.out.drain(..length);
        answer(state, (0..count).map(|_| Err(failure.clone())));
    }

    /// Refuses what is sent from now on.
    pub(super) fn refuse(&self, failure: Failure) {
        lock(&self.state).refusal = Some(failure);
    }

    /// Refuses nothing any more.
    pub(super) fn allow(&self) {
        lock(&self.state).refusal = None;
    }

    /// What is to be written, once there is something; `spare` is used for what comes next.
    pub(super) async fn next_batch(&self, mut spare: Vec<u8>) -> Vec<u8> {
        while lock(&self.state).out.is_empty() {
            self.sent.notified().await;
        }
        // The tasks that are ready send theirs first, so that one call of the system takes what all have sent. (tokio's own
        // way to yield would have the system asked for events first.)
        let mut has_yielded = false;
        std::future::poll_fn(|context| {
            if mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        spare.clear();
        mem::replace(&mut lock(&self.state).out, spare)
    }

    /// Delivers replies to the requests that were sent first.
    pub(super) fn deliver(&self, replies: &mut Vec<Reply>) -> Result<(), ConnectionError> {
        let is_demoted =
            |it: &Reply| matches!(it, Reply::Error(line) if line.starts_with("READONLY"));
        let is_given_up =
            replies.iter().any(is_demoted) && lock(&self.state).gives_up(BootInstant::now());
        match answer(lock(&self.state), replies.drain(..).map(Ok)) {
            true if is_given_up => Err(ConnectionError::new("the server is no primary any more")),
            true => Ok(()),
            false => Err(ConnectionError::new("more replies than requests")),
        }
    }

    /// When the first request is overdue, of all that are in flight.
    pub(super) fn first_overdue(&self) -> Option<Overdue> {
        lock(&self.state).overdue.front().copied()
    }

    /// Resolves when a request was sent that is overdue before the others.
    pub(super) async fn is_due_earlier(&self) {
        self.earlier.notified().await;
    }
}

/// Answers the oldest requests and wakes those who wait for that; `false` if there are more answers than requests.
fn answer(mut state: MutexGuard<'_, State>, answers: impl Iterator<Item = Answer>) -> bool {
    let mut wakers = Vec::new();
    let mut are_expected = true;
    for answer in answers {
        let Some(request) = state.in_flight.pop_front() else {
            are_expected = false;
            break;
        };
        let number = state.first;
        state.first += 1;
        if let Some(waker) = request.waker {
            state.answers.insert(number, answer);
            wakers.push(waker);
        }
    }
    let first = state.first;
    while state.overdue.front().is_some_and(|it| it.number < first) {
        state.overdue.pop_front();
    }
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
    are_expected
}

impl State {
    fn next_number(&self) -> u64 {
        self.first + self.in_flight.len() as u64
    }

    fn push(&mut self, request: Request) {
        self.in_flight.push_back(request);
        self.note_overdue(self.in_flight.len() - 1);
    }

    /// Takes in when the request at this index is overdue. Those before it that are due later do not matter: an answer to
    /// this one needs theirs.
    fn note_overdue(&mut self, index: usize) {
        let request = &self.in_flight[index];
        let (at, limit) = (request.since + request.limit, request.limit);
        let number = self.first + index as u64;
        while self.overdue.back().is_some_and(|last| last.at >= at) {
            self.overdue.pop_back();
        }
        self.overdue.push_back(Overdue { number, at, limit });
    }

    /// Whether a server that is no primary is given up now.
    fn gives_up(&mut self, now: BootInstant) -> bool {
        let last = self
            .given_up
            .map(|(given_up, stay)| (now.since(given_up), stay));
        let stay = match last {
            Some((since, stay)) if since < stay => return false,
            // It is the same failover, or a replica for good.
            Some((since, stay)) if since < 2 * LONGEST_STAY => (2 * stay).min(LONGEST_STAY),
            _ => SHORTEST_STAY,
        };
        self.given_up = Some((now, stay));
        true
    }
}

impl Pending {
    /// What was not sent.
    pub(crate) fn refused(failure: Failure) -> Pending {
        Pending(Sent::Refused(failure))
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let (connection, number) = match &self.0 {
            Sent::InFlight(connection, number) => (connection, *number),
            Sent::Refused(failure) => return Poll::Ready(Err(failure.clone())),
            Sent::Answered => panic!("an answer is taken once"),
        };
        let mut state = lock(&connection.state);
        if let Some(index) = number.checked_sub(state.first) {
            let waker = &mut state.in_flight[index as usize].waker;
            waker
                .get_or_insert(Waker::noop().clone())
                .clone_from(context.waker());
            return Poll::Pending;
        }
        let answer = state.answers.remove(&number);
        drop(state);
        self.0 = Sent::Answered;
        Poll::Ready(answer.unwrap_or(Err(Failure::RuntimeGone)))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Sent::InFlight(connection, number) = &self.0 {
            let mut state = lock(&connection.state);
            match number.checked_sub(state.first) {
                Some(index) => state.in_flight[index as usize].waker = None,
                None => drop(state.answers.remove(number)),
            }
        }
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sent::InFlight(..) => "InFlight",
            Sent::Refused(_) => "Refused",
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
    fn a_server_that_is_no_primary_is_given_up_at_once_and_then_less_and_less_often() {
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

    fn send(connection: &Arc<Connection>, limit: u64, now: BootInstant) -> Pending {
        let ping = Command::Plain(&[b"PING"]);
        connection.send(&[&ping], Duration::from_millis(limit), now)
    }

    #[test]
    fn the_request_that_is_due_first_counts_and_not_the_one_that_was_sent_first() {
        let (connection, now) = (Connection::new(), BootInstant::now());
        let sent: Vec<_> = [900, 300, 500, 400]
            .map(|limit| send(&connection, limit, now))
            .into();
        let mut due = Vec::new();
        for _ in &sent {
            due.extend(connection.first_overdue().map(|it| it.limit.as_millis()));
            connection.deliver(&mut vec![Reply::Nil]).unwrap();
        }
        assert_eq!(due, [300, 300, 400, 400]);
        assert!(connection.first_overdue().is_none());
    }

    #[test]
    fn an_answer_that_nobody_takes_keeps_no_other_request() {
        let (connection, now) = (Connection::new(), BootInstant::now());
        let untaken = send(&connection, 1, now);
        connection.deliver(&mut vec![Reply::Nil]).unwrap();
        for _ in 0..1_000 {
            let taken = send(&connection, 1, now);
            connection.deliver(&mut vec![Reply::Nil]).unwrap();
            drop(taken);
        }
        let kept = |of: &State| (of.in_flight.len(), of.answers.len());
        assert_eq!(kept(&lock(&connection.state)), (0, 1));
        drop(untaken);
        assert_eq!(kept(&lock(&connection.state)), (0, 0));
    }
}
