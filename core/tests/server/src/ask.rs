//! Requests to hold: granted, refused, or they wait.

use std::collections::BTreeMap;

use mortise_core::{
    AcquireError, Busy, Deadlock, Grant, Instant, KeyId, PendingKey, PendingRequest, Queue,
    Request, Stake, Turn, WaiterId,
};

use crate::Server;

/// A request for one key, or for several at once. Their locks have been settled.
#[derive(Debug)]
pub struct Ask<'a> {
    /// One key, or as many as the terms say.
    pub keys: &'a [KeyId],
    /// Who asks, and for what.
    pub request: Request<'a>,
    /// Until when it may wait; `None` if it may not.
    pub until: Option<Instant>,
    /// The request that this one repeats, which keeps its place.
    pub repeats: Option<WaiterId>,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// It holds.
    Granted(Grant),
    /// It was about to wait, and holds now: it stands ahead of the requests for several keys that wait there, to end a cycle.
    LetPast(Grant),
    /// It would have to wait, and may not.
    Denied,
    /// It can never be granted.
    Refused(AcquireError),
    /// The owner holds all keys already, and in a grace nothing is renewed.
    NotGranting,
    /// Its wait would close this cycle.
    Deadlock(Deadlock),
    /// It waits.
    Waits {
        /// As which request.
        id: WaiterId,
        /// Ahead of all others.
        is_upgrade: bool,
        /// The cycle that it closes, if that was to be ignored.
        cycle: Option<Deadlock>,
    },
}

/// Why a request is refused whose owner waits at one of its keys for something else.
#[derive(Debug)]
pub enum WaitsAlready {
    /// This one is for several keys.
    Here,
    /// That one is for several keys.
    ForSeveral,
}

/// The state of a key when a request for several came.
struct Found {
    hold: Option<Stake>,
    admits: bool,
    has_waiters: bool,
}

impl Server {
    /// Grants the request, or lets it wait.
    pub fn ask(&mut self, ask: &Ask<'_>) -> Answer {
        match (ask.request.terms.sharing.keys(), ask.keys) {
            (None, [key]) => self.ask_one(ask, key),
            _ => self.ask_several(ask),
        }
    }

    /// The request of this owner for the same mode and for exactly these keys that waits by mail, if this one waits `by_mail`, too.
    ///
    /// # Errors
    /// The owner waits at one of the keys for something else, and one of the two requests is for several keys.
    pub fn repeated(
        &self,
        keys: &[KeyId],
        request: &Request<'_>,
        is_by_mail: impl Fn(WaiterId) -> bool,
    ) -> Result<Option<WaiterId>, WaitsAlready> {
        let is_several = request.terms.sharing.keys().is_some();
        for key in keys {
            // Where an owner waits for several keys it has no other request.
            let Some(first) = self.queues.first_request_of(key.as_ref(), request.owner) else {
                continue;
            };
            match self.queues.keys_of(first) {
                Some(its) if is_several && is_by_mail(first) && its.are(keys) => {
                    return Ok(Some(first));
                }
                _ if is_several => return Err(WaitsAlready::Here),
                Some(_) => return Err(WaitsAlready::ForSeveral),
                None => {}
            }
            let its_requests = self.queues.requests_of(key.as_ref(), request.owner);
            let is_same = |id: &WaiterId| {
                let waiter = self.queues.waiter(*id);
                is_by_mail(*id)
                    && waiter.is_some_and(|(_, it)| it.terms.mode() == request.terms.mode())
            };
            return Ok(its_requests.into_iter().find(is_same));
        }
        Ok(None)
    }

    fn has_waiters(&self, key: &KeyId) -> bool {
        self.queues.get(key.as_ref()).is_some()
    }

    fn ask_one(&mut self, ask: &Ask<'_>, key: &KeyId) -> Answer {
        let turn = match self.has_waiters(key) {
            true => Turn::Behind,
            false => Turn::First,
        };
        match self.acquire(key, &ask.request, turn) {
            Ok(grant) => Answer::Granted(grant),
            Err(AcquireError::Busy(busy)) => {
                let is_free = turn == Turn::Behind
                    && !self.grace
                    && self.queues.any_several()
                    && self.with_live(key, |_, live| live.admits(&ask.request));
                self.wait(ask, busy, is_free)
            }
            Err(error) => Answer::Refused(error),
        }
    }

    fn acquire(
        &mut self,
        key: &KeyId,
        request: &Request<'_>,
        turn: Turn,
    ) -> Result<Grant, AcquireError> {
        // A grant may change the mode: others wait for the holder then.
        self.mark(key);
        self.with_live(key, |server, live| match server.grace {
            true => Err(live.refuse_in_grace(request)),
            false => live.acquire(request, turn, &mut server.tokens, server.wall),
        })
    }

    fn ask_several(&mut self, ask: &Ask<'_>) -> Answer {
        let find = |key: &KeyId| {
            let has_waiters = self.has_waiters(key);
            self.with_live(key, |_, live| Found {
                hold: live.hold(ask.request.owner),
                admits: live.admits(&ask.request),
                has_waiters,
            })
        };
        let found: Vec<Found> = ask.keys.iter().map(find).collect();
        if found.iter().any(|found| found.hold.is_some()) {
            return self.renew_several(ask, &found);
        }
        let is_free = !self.grace && found.iter().all(|found| found.admits);
        let is_behind = found.iter().any(|found| found.has_waiters);
        if is_free && !is_behind && ask.repeats.is_none() {
            return Answer::Granted(self.take_several(ask));
        }
        self.wait(ask, Busy::Held, is_free)
    }

    /// The owner holds some of the keys. If it holds all of them, for writing and by one token, the reply of the same request was
    /// lost: its leases are extended.
    fn renew_several(&mut self, ask: &Ask<'_>, found: &[Found]) -> Answer {
        let holds: Vec<Stake> = found.iter().filter_map(|found| found.hold).collect();
        let first = holds[0];
        let is_same = |hold: &Stake| hold.write > 0 && hold.token == first.token;
        if holds.len() < found.len() || !holds.iter().all(is_same) {
            return Answer::Refused(AcquireError::HoldsOne);
        }
        if holds.iter().any(|hold| hold.revoked) {
            return Answer::Refused(AcquireError::Revoked);
        }
        if self.grace {
            return Answer::NotGranting;
        }
        for key in ask.keys {
            let Request { owner, terms } = ask.request;
            self.renew(key, owner, terms.lease, Some(first.token));
        }
        Answer::Granted(Grant::Reentry(first))
    }

    fn take_several(&mut self, ask: &Ask<'_>) -> Grant {
        let token = self.next_token(ask.request.terms.fence);
        let mut stake = None;
        for key in ask.keys.iter().rev() {
            let taken = self.with_live(key, |_, live| live.take(&ask.request, token));
            stake = Some(taken.expect("all are free"));
        }
        Grant::New(stake.expect("a request has a key"))
    }

    /// The request cannot be granted at once. `is_free`: its locks would admit it if nobody stood ahead.
    fn wait(&mut self, ask: &Ask<'_>, busy: Busy, is_free: bool) -> Answer {
        if let Some(id) = ask.repeats {
            return self.repeat(ask, id);
        }
        let may_wait = ask.until.is_some();
        if !(may_wait || is_free && self.is_behind_several(ask.keys)) {
            return Answer::Denied;
        }
        let pending = self.pending(ask, busy);
        let is_upgrade = busy == Busy::Upgrade;
        if self.ignore_cycles {
            let cycle = self.find_cycle(&pending);
            let id = self.queues.push(&pending);
            self.begin(ask.keys);
            return Answer::Waits {
                id,
                is_upgrade,
                cycle,
            };
        }
        self.check_withdrawal(&pending);
        let enqueued = match self.queues.enqueue(&pending) {
            Ok(enqueued) => enqueued,
            Err(_) if !may_wait => return Answer::Denied,
            Err(deadlock) => return Answer::Deadlock(deadlock),
        };
        if is_free && enqueued.is_first {
            self.queues.remove(enqueued.id);
            self.dirty.extend(enqueued.moved);
            return Answer::LetPast(self.take_past(ask));
        }
        if !may_wait {
            self.queues.withdraw(enqueued);
            return Answer::Denied;
        }
        self.begin(ask.keys);
        self.dirty.extend(enqueued.moved);
        Answer::Waits {
            id: enqueued.id,
            is_upgrade,
            cycle: None,
        }
    }

    /// A request that is refused, or does not wait after all, has moved nobody.
    fn check_withdrawal(&mut self, pending: &PendingRequest) {
        let order = |server: &Self| {
            let queues = server.queues.iter();
            let ids = |queue: Queue<'_>| queue.iter().map(|waiter| waiter.id).collect();
            let queues = queues.map(|(key, queue)| (key.clone(), ids(queue)));
            queues.collect::<BTreeMap<KeyId, Vec<WaiterId>>>()
        };
        // Nobody else moves.
        if self.queues.any_several() {
            let before = order(self);
            self.find_cycle(pending);
            assert_eq!(order(self), before, "requests have moved");
        }
    }

    fn is_behind_several(&self, keys: &[KeyId]) -> bool {
        let several = |key: &KeyId| self.queues.get(key.as_ref()).and_then(Queue::first_several);
        keys.iter().any(|key| several(key).is_some())
    }

    fn pending(&mut self, ask: &Ask<'_>, busy: Busy) -> PendingRequest {
        let keys = ask.keys.iter().map(|key| PendingKey {
            key: key.clone(),
            held: self.with_live(key, |_, live| live.lock().observe()),
        });
        PendingRequest {
            keys: keys.collect(),
            owner: ask.request.owner.to_owner(),
            terms: ask.request.terms,
            busy,
            since: self.now,
            until: ask.until.unwrap_or(Instant::NEVER),
        }
    }

    /// The request need not wait: it is granted ahead of the requests for several keys that stand there.
    fn take_past(&mut self, ask: &Ask<'_>) -> Grant {
        match (ask.request.terms.sharing.keys(), ask.keys) {
            (None, [key]) => {
                let granted = self.acquire(key, &ask.request, Turn::First);
                granted.expect("its lock admits it")
            }
            _ => self.take_several(ask),
        }
    }

    /// A request waits from now on. In a grace its owner may hold the lock, and gets its re-entry as soon as anything is granted.
    fn begin(&mut self, keys: &[KeyId]) {
        if self.grace {
            for key in keys {
                self.queues.recheck_holders(key.as_ref());
            }
        }
    }

    fn repeat(&mut self, ask: &Ask<'_>, id: WaiterId) -> Answer {
        let until = ask.until.unwrap_or(Instant::NEVER);
        if self.queues.take_over(id, ask.request.terms, until) {
            // The locks may be free for what it asks for now.
            self.dirty.extend(ask.keys.iter().cloned());
        }
        Answer::Waits {
            id,
            is_upgrade: false,
            cycle: None,
        }
    }
}
