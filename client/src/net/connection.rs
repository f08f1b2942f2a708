//! One connection that many share. Requests are answered in the order in which they were sent, so a request is a place in a
//! row, and needs neither a channel nor an allocation. What moves the bytes is in `drive`.
//!
//! Where one request is not answered in time the connection is given up, and with it everything that is in flight.

use std::collections::VecDeque;
use std::fmt;
use std::iter;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::proto::{Answer, Command, Failure, Reply};
use crate::value::{BootInstant, ConnectionError, lock};

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

/// What the users of a connection share with what drives it.
pub(super) struct Connection {
    state: Mutex<State>,
    /// Something is to be written.
    more: Notify,
}

#[derive(Default)]
struct State {
    /// What everybody who sends is told now.
    refusal: Option<Failure>,
    is_open: bool,
    /// What is to be written.
    out: Vec<u8>,
    /// The requests in their order; the first has this number.
    row: VecDeque<Request>,
    first: u64,
    /// How many of the row are answered.
    answered: usize,
    /// When it was last given up because its server is no primary, and how long the next one is kept though its is none.
    left: Option<(BootInstant, Duration)>,
}

/// A server that is no primary any more is left, because the primary may be behind the same address now: the first time at
/// once, and then less and less often, down to this.
const SHORTEST_STAY: Duration = Duration::from_millis(100);
const LONGEST_STAY: Duration = Duration::from_secs(5);

struct Request {
    /// When it was sent, or the connection opened.
    since: BootInstant,
    limit: Duration,
    length: usize,
    place: Place,
}

enum Place {
    Waiting(Waker),
    Answered(Answer),
    /// Its caller is gone, or has the answer.
    Unwanted,
}

/// A request that was sent; resolves to its answer. Dropped, the answer is thrown away.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Where its answer comes from until it has resolved, or why it was not sent.
    connection: Result<Arc<Connection>, Failure>,
    number: u64,
    /// It was sent before its connection was open.
    pub(crate) is_early: bool,
}

impl Connection {
    pub(super) fn new() -> Arc<Connection> {
        Arc::new(Connection {
            state: Mutex::default(),
            more: Notify::new(),
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
            return Pending::refused(refusal.clone());
        }
        let is_first = state.out.is_empty();
        for command in commands {
            let before = state.out.len();
            command.encode(&mut state.out);
            let length = state.out.len() - before;
            state.row.push_back(Request {
                since: now,
                limit,
                length,
                place: Place::Unwanted,
            });
        }
        if let Some(last) = state.row.back_mut() {
            last.place = Place::Waiting(Waker::noop().clone());
        }
        let number = state.first + state.row.len() as u64 - 1;
        let is_early = !state.is_open;
        drop(state);
        if is_first {
            self.more.notify_one();
        }
        Pending {
            connection: Ok(self.clone()),
            number,
            is_early,
        }
    }

    /// Resolves while somebody waits for an answer.
    pub(super) async fn wanted(&self) {
        while self.oldest().is_none() {
            self.more.notified().await;
        }
    }

    /// It is open: what waits is timed from now.
    pub(super) fn opened(&self) {
        let now = BootInstant::now();
        let mut state = lock(&self.state);
        (state.refusal, state.is_open) = (None, true);
        for request in &mut state.row {
            request.since = now;
        }
    }

    /// Tells those who wait, all of them or those who sent by some moment before it was open; `refuses`: and from now on
    /// everybody who sends.
    pub(super) fn fail(&self, told: &Failure, refuses: bool, sent_by: Option<BootInstant>) {
        let mut state = lock(&self.state);
        state.is_open = false;
        state.refusal = refuses.then(|| match told {
            Failure::Unknown(error) => Failure::NotSent(error.clone()),
            other => other.clone(),
        });
        let waiting = state.row.range(state.answered..);
        let ended = waiting.take_while(|it| sent_by.is_none_or(|by| it.since <= by));
        let (count, length) = ended.fold((0, 0), |(n, length), it| (n + 1, length + it.length));
        // Some of it may be written.
        let unsent = state.out.len().min(length);
        state.out.drain(..unsent);
        answer(state, iter::repeat_n(Err(told.clone()), count));
    }

    /// What is to be written, once there is something; `spare` is used for what comes next.
    pub(super) async fn next_batch(&self, mut spare: Vec<u8>) -> Vec<u8> {
        while lock(&self.state).out.is_empty() {
            self.more.notified().await;
        }
        // The tasks that are ready send theirs first, so that one call of the system takes what all have sent. (tokio's own
        // way to yield would have the system asked for events first.)
        let mut was_put_off = false;
        std::future::poll_fn(|context| {
            if mem::replace(&mut was_put_off, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        spare.clear();
        mem::replace(&mut lock(&self.state).out, spare)
    }

    /// Delivers replies to the first who wait.
    pub(super) fn deliver(&self, replies: &mut Vec<Reply>) -> Result<(), ConnectionError> {
        let is_demoted =
            |it: &Reply| matches!(it, Reply::Error(line) if line.starts_with("READONLY"));
        let is_left =
            replies.iter().any(is_demoted) && lock(&self.state).leaves(BootInstant::now());
        match answer(lock(&self.state), replies.drain(..).map(Ok)) {
            true if is_left => Err(ConnectionError::new("the server is no primary any more")),
            true => Ok(()),
            false => Err(ConnectionError::new("more replies than requests")),
        }
    }

    /// When the oldest request should be answered, and within how long of its sending.
    pub(super) fn oldest(&self) -> Option<(BootInstant, Duration)> {
        let state = lock(&self.state);
        let oldest = state.row.get(state.answered)?;
        Some((oldest.since + oldest.limit, oldest.limit))
    }
}

/// Answers the oldest requests and wakes those who wait for that; `false` if there are more answers than requests.
fn answer(mut state: MutexGuard<'_, State>, answers: impl Iterator<Item = Answer>) -> bool {
    let mut wakers = Vec::new();
    let mut are_expected = true;
    for answer in answers {
        let oldest = state.answered;
        let Some(request) = state.row.get_mut(oldest) else {
            are_expected = false;
            break;
        };
        if let Place::Waiting(waker) = &mut request.place {
            wakers.push(mem::replace(waker, Waker::noop().clone()));
            request.place = Place::Answered(answer);
        }
        state.answered += 1;
    }
    state.shorten();
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
    are_expected
}

impl State {
    /// Whether a server that is no primary is left now.
    fn leaves(&mut self, now: BootInstant) -> bool {
        let since = self.left.map(|(left, stay)| (now.since(left), stay));
        let stay = match since {
            Some((since, stay)) if since < stay => return false,
            // It is the same failover, or a replica for good.
            Some((since, stay)) if since < 2 * LONGEST_STAY => (2 * stay).min(LONGEST_STAY),
            _ => SHORTEST_STAY,
        };
        self.left = Some((now, stay));
        true
    }

    /// Drops what nobody wants at the front of the row.
    fn shorten(&mut self) {
        while self.answered > 0 && matches!(self.row[0].place, Place::Unwanted) {
            self.row.pop_front();
            self.first += 1;
            self.answered -= 1;
        }
    }

    fn place(&mut self, number: u64) -> &mut Place {
        &mut self.row[(number - self.first) as usize].place
    }
}

impl Pending {
    /// What was not sent.
    pub(super) fn refused(failure: Failure) -> Pending {
        Pending {
            connection: Err(failure),
            number: 0,
            is_early: false,
        }
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let connection = match &self.connection {
            Ok(connection) => connection,
            Err(failure) => return Poll::Ready(Err(failure.clone())),
        };
        let mut state = lock(&connection.state);
        let place = state.place(self.number);
        if let Place::Waiting(waker) = place {
            waker.clone_from(context.waker());
            return Poll::Pending;
        }
        let taken = mem::replace(place, Place::Unwanted);
        state.shorten();
        drop(state);
        self.connection = Err(Failure::Gone);
        match taken {
            Place::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Ready(Err(Failure::Gone)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Ok(connection) = &self.connection {
            let mut state = lock(&connection.state);
            *state.place(self.number) = Place::Unwanted;
            state.shorten();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Connection")
            .field("in_flight", &(state.row.len() - state.answered))
            .field("refusal", &state.refusal)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_no_primary_is_left_at_once_and_then_less_and_less_often() {
        let (mut state, start) = (State::default(), BootInstant::now());
        let mut left = |from: u64, to: u64| {
            let at = |ms| start + Duration::from_millis(ms);
            let is_left = |ms: &u64| state.leaves(at(*ms));
            (from..to).filter(is_left).collect::<Vec<_>>()
        };
        let first = [0, 100, 300, 700, 1_500, 3_100, 6_300];
        assert_eq!(left(0, 10_000), first);
        assert_eq!(left(10_000, 30_000), [11_300, 16_300, 21_300, 26_300]);
        // The next failover.
        assert_eq!(left(90_000, 90_150), [90_000, 90_100]);
    }
}
