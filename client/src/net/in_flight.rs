//! The requests of one connection that are not answered yet, in their order. The server answers in that order, so a request is
//! known by its number, and needs neither a channel nor an allocation. Nothing here sends or waits.

use std::collections::{HashMap, VecDeque};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::value::{BootInstant, ConnectionError};
use crate::wire::{Answer, NoReply};

/// How long a request may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until it is late: another connection may be faster.
    pub(super) late: Duration,
    /// Until it has failed.
    pub(super) limit: Duration,
}

/// A request without its bytes.
pub(super) struct Request {
    /// When it was sent, or the connection opened.
    pub(super) since: BootInstant,
    pub(super) patience: Patience,
    /// How many bytes it has.
    pub(super) length: usize,
    /// Wakes the task that awaits the answer; `None` if none does.
    pub(super) waker: Option<Waker>,
}

/// What time asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// An answer is late.
    pub(super) is_late: bool,
    /// When something is due next.
    pub(super) next: Option<BootInstant>,
}

impl Due {
    pub(super) fn is_by(self, now: BootInstant) -> bool {
        self.is_late || self.next.is_some_and(|next| next <= now)
    }
}

/// When a request is late.
struct Late {
    number: u64,
    at: BootInstant,
}

#[derive(Default)]
pub(super) struct InFlight {
    /// The first has the number `first`.
    requests: VecDeque<Request>,
    first: u64,
    /// So many of the first ones have failed because of their limits, and only await their replies to be thrown away.
    expired: usize,
    /// The answers that were not taken yet, by the number of their requests.
    answers: HashMap<u64, Answer>,
    /// When requests are late: of each run of them the one that is late first, so the first is late first of all.
    late: VecDeque<Late>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    pub(super) fn push(&mut self, request: Request) {
        self.requests.push_back(request);
        self.schedule_late(self.requests.len() - 1);
    }

    /// The caller awaits the answer to the last one.
    pub(super) fn want_last(&mut self) {
        if let Some(last) = self.requests.back_mut() {
            last.waker = Some(Waker::noop().clone());
        }
    }

    /// Whether no request is in flight but those that have failed already.
    pub(super) fn is_settled(&self) -> bool {
        self.requests.len() == self.expired
    }

    /// Whether one of those from this number on is late, or fails, before all others.
    pub(super) fn is_due_first(&self, number: u64) -> bool {
        let is_late_first = self.late.front().is_some_and(|late| late.number >= number);
        is_late_first || self.first + self.expired as u64 >= number
    }

    /// Times all from this moment.
    pub(super) fn restart(&mut self, now: BootInstant) {
        for request in &mut self.requests {
            request.since = now;
        }
        self.late.clear();
        for index in 0..self.requests.len() {
            self.schedule_late(index);
        }
    }

    /// Schedules when the request at this index is late. Those before it that are late after it do not matter: the server
    /// answers them first.
    fn schedule_late(&mut self, index: usize) {
        let request = &self.requests[index];
        let at = request.since + request.patience.late;
        while self.late.back().is_some_and(|last| last.at >= at) {
            self.late.pop_back();
        }
        let number = self.first + index as u64;
        self.late.push_back(Late { number, at });
    }

    /// How many, from the first on, were sent by then, and how many bytes they have.
    pub(super) fn sent_by(&self, moment: BootInstant) -> (usize, usize) {
        let old = self.requests.iter().take_while(|it| it.since <= moment);
        old.fold((0, 0), |(count, length), it| {
            (count + 1, length + it.length)
        })
    }

    /// Answers the first one, and returns its waker. An error if no request is in flight.
    pub(super) fn answer(&mut self, answer: Answer) -> Result<Option<Waker>, ConnectionError> {
        let unexpected = || ConnectionError::new("more replies than requests");
        let request = self.requests.pop_front().ok_or_else(unexpected)?;
        let number = self.first;
        self.first += 1;
        self.expired = self.expired.saturating_sub(1);
        while self.late.front().is_some_and(|it| it.number <= number) {
            self.late.pop_front();
        }
        if request.waker.is_some() {
            self.answers.insert(number, answer);
        }
        Ok(request.waker)
    }

    /// Fails those whose limit is over. They stay in line: the server may answer late.
    pub(super) fn expire(&mut self, now: BootInstant) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(request) = self.requests.get_mut(self.expired)
            && request.since + request.patience.limit <= now
        {
            let silence = ConnectionError::silence("no reply", request.patience.limit);
            if let Some(waker) = request.waker.take() {
                let number = self.first + self.expired as u64;
                self.answers.insert(number, Err(NoReply::Unknown(silence)));
                wakers.push(waker);
            }
            self.expired += 1;
        }
        wakers
    }

    /// Whether one has failed, and is not answered yet.
    pub(super) fn has_expired(&self) -> bool {
        self.expired > 0
    }

    pub(super) fn due(&self, now: BootInstant) -> Due {
        let late = self.late.front().map(|late| late.at);
        let is_late = late.is_some_and(|at| at <= now);
        let expiring = self.requests.get(self.expired);
        let expires = expiring.map(|it| it.since + it.patience.limit);
        let next = late.filter(|_| !is_late).into_iter().chain(expires).min();
        Due { is_late, next }
    }

    /// Takes the answer out; until there is one, the waker is kept and woken by it.
    pub(super) fn poll(&mut self, number: u64, waker: &Waker) -> Poll<Answer> {
        if let Some(answer) = self.answers.remove(&number) {
            return Poll::Ready(answer);
        }
        match self.unanswered(number) {
            Some(request) => {
                let wanted = request.waker.get_or_insert(Waker::noop().clone());
                wanted.clone_from(waker);
                Poll::Pending
            }
            None => Poll::Ready(Err(NoReply::RuntimeGone)),
        }
    }

    /// The caller no longer awaits the answer.
    pub(super) fn forget(&mut self, number: u64) -> Option<Waker> {
        self.answers.remove(&number);
        self.unanswered(number)?.waker.take()
    }

    fn unanswered(&mut self, number: u64) -> Option<&mut Request> {
        let index = number.checked_sub(self.first)?;
        self.requests.get_mut(index as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reply;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn push(requests: &mut InFlight, late: u64, limit: u64, since: BootInstant) -> u64 {
        let (late, limit) = (ms(late), ms(limit));
        requests.push(Request {
            since,
            patience: Patience { late, limit },
            length: 1,
            waker: Some(Waker::noop().clone()),
        });
        requests.next_number() - 1
    }

    fn nil(requests: &mut InFlight) {
        requests.answer(Ok(Reply::Nil)).unwrap();
    }

    #[test]
    fn the_earliest_time_out_counts_and_not_the_earliest_request() {
        let (mut requests, now) = (InFlight::default(), BootInstant::now());
        for late in [900, 300, 500, 400] {
            push(&mut requests, late, 1_000, now);
        }
        let mut due = Vec::new();
        while !requests.is_empty() {
            due.extend(requests.due(now).next.map(|at| at.since(now)));
            nil(&mut requests);
        }
        assert_eq!(due, [300, 300, 400, 400].map(ms));
        assert_eq!(requests.due(now).next, None);
    }

    #[test]
    fn a_request_that_times_out_fails_and_its_late_reply_goes_to_no_other() {
        let (mut requests, now) = (InFlight::default(), BootInstant::now());
        let first = push(&mut requests, 300, 500, now);
        let second = push(&mut requests, 300, 500, now + ms(100));
        let next = Some(now + ms(300));
        assert_eq!(
            requests.due(now),
            Due {
                is_late: false,
                next
            }
        );
        let next = Some(now + ms(500));
        assert_eq!(
            requests.due(now + ms(300)),
            Due {
                is_late: true,
                next
            }
        );
        assert_eq!(requests.expire(now + ms(499)).len(), 0);
        assert_eq!(requests.expire(now + ms(500)).len(), 1);
        let answer = requests.poll(first, Waker::noop());
        assert!(matches!(answer, Poll::Ready(Err(NoReply::Unknown(_)))));
        assert!(requests.has_expired());
        assert!(requests.is_due_first(second), "it is the next to time out");
        let third = push(&mut requests, 300, 500, now + ms(100));
        assert!(!requests.is_due_first(third));
        nil(&mut requests);
        assert!(!requests.has_expired());
        assert!(requests.poll(second, Waker::noop()).is_pending());
        requests.answer(Ok(Reply::Int(2))).unwrap();
        let answer = requests.poll(second, Waker::noop());
        assert!(matches!(answer, Poll::Ready(Ok(Reply::Int(2)))));
        nil(&mut requests);
        assert!(requests.answer(Ok(Reply::Nil)).is_err(), "more than asked");
    }

    #[test]
    fn a_reply_that_nobody_reads_does_not_delay_other_requests() {
        let (mut requests, now) = (InFlight::default(), BootInstant::now());
        let untaken = push(&mut requests, 1, 1, now);
        nil(&mut requests);
        for _ in 0..1_000 {
            let taken = push(&mut requests, 1, 1, now);
            nil(&mut requests);
            requests.forget(taken);
        }
        let kept = |it: &InFlight| (it.requests.len(), it.answers.len());
        assert_eq!(kept(&requests), (0, 1));
        requests.forget(untaken);
        assert_eq!(kept(&requests), (0, 0));
    }
}
