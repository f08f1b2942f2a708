//! A server in memory: what the module does around `mortise-core`, without Redis, files and clients. The naive models in
//! `core/tests/rules` judge it step by step, and whole clients run against it in `verify/simulation`.
//!
//! As in the module, [`Server::settle`] is the one place that grants waiters. Whoever changes a lock or a queue settles its keys, at once
//! or by [`Server::end_turn`]. Waiters that have got an answer are in [`Server::ended`].

mod ask;

use std::collections::{BTreeMap, BTreeSet};

use mortise_core::{
    AcquireError, Deadlock, Decided, Grant, Instant, KeyId, Lease, Live, Lock, Micros, OwnerRef,
    Pass, PassError, Passed, PendingRequest, Queues, Release, ReleaseError, Released, Removed,
    Revoked, Settled, Stake, Token, TokenClock, Undo, Verdict, WaiterId,
};

pub use ask::{Answer, Ask, WaitsAlready};

/// A waiter that has left its queues with an answer.
#[derive(Debug)]
pub enum Ended {
    /// It was granted, denied or refused.
    Decided(Decided),
    /// It had become an upgrade, whose wait would close a cycle.
    Deadlock(Removed),
}

/// The locks of a server, and all that wait for them.
#[derive(Debug)]
pub struct Server {
    /// The key space. Nobody holds a lock that is not here.
    pub locks: BTreeMap<KeyId, Lock>,
    /// Who waits.
    pub queues: Queues,
    /// The fencing tokens.
    pub tokens: TokenClock,
    /// The present moment.
    pub now: Instant,
    /// The same by the wall clock.
    pub wall: Micros,
    /// In a grace nothing is granted.
    pub grace: bool,
    /// Requests wait although that closes a cycle, and none is moved to end one.
    pub ignore_cycles: bool,
    /// How many waiters a settle decides in one step.
    pub slice: usize,
    /// Waiters that have got an answer, in this order, until the caller takes them.
    pub ended: Vec<Ended>,
    /// Keys to settle at the end of the turn.
    pub dirty: BTreeSet<KeyId>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            locks: BTreeMap::new(),
            queues: Queues::new(),
            tokens: TokenClock::new(),
            now: Instant::default(),
            wall: Micros(0),
            grace: false,
            ignore_cycles: false,
            slice: 64,
            ended: Vec::new(),
            dirty: BTreeSet::new(),
        }
    }
}

impl Server {
    /// Runs `act` on the lock as it is now, or on a free one. The key is deleted if nobody holds the lock afterwards.
    pub fn with_live<T>(
        &mut self,
        key: &KeyId,
        act: impl FnOnce(&mut Self, &mut Live<'_>) -> T,
    ) -> T {
        let mut lock = self.locks.remove(key).unwrap_or_default();
        let mut live = lock.at(self.now, |_, _| {});
        let outcome = act(self, &mut live);
        drop(live.take_remains());
        if !lock.is_free() {
            self.locks.insert(key.clone(), lock);
        }
        outcome
    }

    /// What the owner holds at the key, its lease over or not.
    pub fn hold(&self, key: &KeyId, owner: OwnerRef<'_>) -> Option<Stake> {
        self.locks.get(key)?.hold(owner)
    }

    /// Settles the key at the end of the turn.
    pub fn mark(&mut self, key: &KeyId) {
        self.dirty.insert(key.clone());
    }

    /// One step of a settle: decides up to [`Self::slice`] waiters that the lock admits. In a grace it only answers the upgrades whose
    /// hold has ended.
    pub fn settle_step(&mut self, key: &KeyId) -> Settled {
        let settled = self.with_live(key, |server, live| {
            let (key, most) = (key.as_ref(), server.slice);
            if server.grace {
                return (server.queues).settle_lost(key, live.lock(), server.now, most);
            }
            let (tokens, wall) = (&mut server.tokens, server.wall);
            server.queues.settle(key, live, tokens, wall, most)
        });
        assert!(settled.decided.len() + settled.upgrading.len() <= self.slice);
        self.dirty.extend(settled.left.iter().cloned());
        settled
    }

    /// Grants the waiters that the lock of the key admits.
    pub fn settle(&mut self, key: &KeyId) {
        loop {
            let settled = self.settle_step(key);
            let mut go_on = settled.more;
            self.ended
                .extend(settled.decided.into_iter().map(Ended::Decided));
            for id in settled.upgrading {
                if self.check_upgrade(id).is_err() {
                    let removed = self.remove(id).expect("it waits");
                    self.ended.push(Ended::Deadlock(removed));
                    go_on = true;
                }
            }
            if !go_on {
                return;
            }
        }
    }

    /// A waiter has become an upgrade. Others move if that ends a cycle which it closes.
    ///
    /// # Errors
    /// The cycle, if nothing ends it.
    pub fn check_upgrade(&mut self, id: WaiterId) -> Result<(), Deadlock> {
        let moves = self.queues.end_cycles(id, self.now)?;
        self.dirty.extend(self.queues.keys_of_moves(&moves));
        Ok(())
    }

    /// Settles the keys that were marked, and grants the requests for several keys that are due.
    pub fn end_turn(&mut self) {
        loop {
            let is_any_due = self.queues.any_due();
            if let Some(key) = self.dirty.pop_first() {
                self.settle(&key);
            } else if let Some(id) = self.queues.next_due() {
                assert!(is_any_due);
                self.grant_several(id);
            } else {
                assert!(!is_any_due);
                return;
            }
        }
    }

    /// Grants the request for several keys if it is the first at each of them and all are free.
    fn grant_several(&mut self, id: WaiterId) {
        let keys = self.queues.keys_of(id).expect("it waits");
        let mut is_grantable = |key: &KeyId| {
            self.with_live(key, |server, live| {
                !server.grace && server.queues.is_grantable(key.as_ref(), id, live)
            })
        };
        if !keys.as_slice().iter().all(&mut is_grantable) {
            return;
        }
        let waiter = self.queues.waiter(id).expect("it waits").1.clone();
        let token = self.next_token(waiter.terms.fence);
        let mut stake = None;
        for key in keys.as_slice().iter().rev() {
            let granted = self.with_live(key, |server, live| {
                (server.queues).grant_last_key(key.as_ref(), id, live, token)
            });
            stake = Some(granted.expect("it is grantable"));
            self.mark(key);
        }
        let verdict = Verdict::Granted {
            grant: Grant::New(stake.expect("it has a key")),
            before: None,
            alone: true,
        };
        self.ended.push(Ended::Decided(Decided {
            waiter: Box::new(waiter),
            keys,
            verdict,
        }));
    }

    fn next_token(&mut self, fence: Option<Token>) -> Token {
        let token = self.tokens.next(self.wall, fence);
        token.expect("no test uses up the tokens here")
    }

    /// The keys of a cycle that the wait of this request would close. Afterwards it does not wait.
    pub fn find_cycle(&mut self, request: &PendingRequest) -> Option<Deadlock> {
        match self.queues.enqueue(request) {
            Ok(enqueued) => {
                self.queues.withdraw(enqueued);
                None
            }
            Err(deadlock) => Some(deadlock),
        }
    }

    /// A request leaves all its queues.
    pub fn remove(&mut self, id: WaiterId) -> Option<Removed> {
        let removed = self.queues.remove(id)?;
        self.dirty.extend(removed.keys.as_slice().iter().cloned());
        Some(removed)
    }

    /// Releases a hold, or a part of it.
    ///
    /// # Errors
    /// As the core says. Nothing has changed.
    pub fn release(
        &mut self,
        key: &KeyId,
        release: &Release<'_>,
    ) -> Result<Released, ReleaseError> {
        self.mark(key);
        self.with_live(key, |_, live| live.release(release))
    }

    /// Extends the lease of a hold.
    pub fn renew(
        &mut self,
        key: &KeyId,
        owner: OwnerRef<'_>,
        lease: Lease,
        token: Option<Token>,
    ) -> Option<Stake> {
        self.with_live(key, |_, live| live.renew(owner, lease, token))
    }

    /// Passes the hold on to another owner.
    ///
    /// # Errors
    /// As the core says. Nothing has changed.
    pub fn pass(&mut self, key: &KeyId, pass: &Pass<'_>) -> Result<Passed, PassError> {
        let passed = self.with_live(key, |server, live| {
            live.pass(pass, &mut server.tokens, server.wall)
        })?;
        self.queues.came_to_hold(key.as_ref(), pass.new_owner);
        self.mark(key);
        Ok(passed)
    }

    /// Makes a hold end with its lease, and refuses the requests of its owner at the key.
    pub fn revoke(&mut self, key: &KeyId, owner: OwnerRef<'_>) -> Option<Revoked> {
        let revoked = self.with_live(key, |_, live| live.revoke(owner, None))?;
        for id in self.queues.requests_of(key.as_ref(), owner) {
            let Removed { waiter, keys } = self.remove(id).expect("it waits");
            let verdict = Verdict::Refused(AcquireError::Revoked);
            self.ended.push(Ended::Decided(Decided {
                waiter,
                keys,
                verdict,
            }));
        }
        Some(revoked)
    }

    /// Undoes a grant at the key that could not be delivered. False if its hold has changed since.
    pub fn undo(&mut self, key: &KeyId, undo: &Undo) -> bool {
        let owner = undo.owner.as_ref();
        self.mark(key);
        self.with_live(key, |_, live| {
            // A new hold of the same owner has another token.
            let is_same = live
                .hold(owner)
                .is_some_and(|hold| hold.token == undo.token);
            is_same && live.undo(owner, undo.granted, undo.before.as_deref().copied())
        })
    }
}
