//! All queues of a server: the waiters of each key, which of them to grant next, and the search for deadlocks.
//!
//! A queue belongs to a database and a key name, not to a lock: RENAME, MOVE and SWAPDB move
//! locks, never waiters.
//!
//! * `waiters` and `keys` index the requests and their keys in every order that is needed, and contain no rules.
//! * `settle` grants the waiters that a lock admits, `several` those that ask for several keys at once.
//! * `deadlock` finds out whether a wait would never end.
//! * `enqueue` lets a request begin to wait.

use std::rc::Rc;

mod deadlock;
mod enqueue;
mod keys;
mod position;
mod settle;
mod several;
mod waiter;
mod waiters;

pub use deadlock::{Deadlock, Moves};
pub use enqueue::{Enqueued, PendingKey, PendingRequest};
pub use keys::{Visited, WaitingKeys};
pub use position::WaiterId;
pub use waiter::{Decided, Removed, Settled, Verdict, Waiter};

use keys::{KeyNo, WaitedKeys};
use position::Position;
use waiter::QueuedAt;
use waiters::Waiters;

use crate::key::{Db, KeyId, KeyList, KeyRef};
use crate::lock::Lock;
use crate::owner::OwnerRef;
use crate::request::Terms;
use crate::types::{Instant, Lease};

/// How many of the waiters that were moved to the head are checked for the longest wait.
const MOVED: usize = 64;

/// Every queue of a server.
#[derive(Debug, Default)]
pub struct Queues {
    /// Only keys with waiters are kept.
    keys: WaitedKeys,
    waiters: Waiters,
    last_id: u64,
}

impl Queues {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many requests wait, all keys together.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue of a key, if anybody waits there.
    pub fn get(&self, key: KeyRef<'_>) -> Option<Queue<'_>> {
        let key = self.keys.find(key)?;
        Some(Queue { queues: self, key })
    }

    /// Every key with waiters, with its queue.
    pub fn iter(&self) -> impl Iterator<Item = (&KeyId, Queue<'_>)> {
        let queue = |key| Queue { queues: self, key };
        self.keys
            .iter()
            .map(move |(key, waited)| (&waited.id, queue(key)))
    }

    /// The keys with waiters, to be walked a few at a time.
    pub fn waiting_keys(&self) -> WaitingKeys<'_> {
        WaitingKeys(&self.keys)
    }

    /// The last waiter that came.
    pub fn last_id(&self) -> WaiterId {
        WaiterId(self.last_id)
    }

    /// Removes a waiter, from all of its queues. The caller settles their keys.
    pub fn remove(&mut self, id: WaiterId) -> Option<Removed> {
        self.take(id, None)
    }

    /// Removes a waiter from all of its queues, and the keys without waiters, except `but`, which a settle still needs.
    fn take(&mut self, id: WaiterId, but: Option<KeyNo>) -> Option<Removed> {
        let waiting = self.waiters.remove(id)?;
        let keys = match &waiting.queued_at {
            QueuedAt::One(key) => KeyList::One(self.keys.get(*key).id.clone()),
            QueuedAt::Several(several) => KeyList::Several(Rc::clone(&several.list)),
        };
        for key in waiting.keys() {
            self.keys.get_mut(*key).len -= 1;
            if Some(*key) != but {
                self.drop_if_empty(*key);
            }
        }
        let waiter = Box::new(waiting.waiter);
        Some(Removed { waiter, keys })
    }

    fn drop_if_empty(&mut self, key: KeyNo) {
        if self.keys.get(key).len == 0 {
            self.keys.remove(key);
        }
    }

    /// The waiter `id`, and its key, the first one if they are several.
    pub fn waiter(&self, id: WaiterId) -> Option<(&KeyId, &Waiter)> {
        let waiting = self.waiters.get(id)?;
        let first = waiting.keys().first()?;
        Some((&self.keys.get(*first).id, &waiting.waiter))
    }

    /// The first request of `owner` that waits at the key.
    pub fn first_request_of(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Option<WaiterId> {
        let key = self.keys.find(key)?;
        let stand = self.waiters.stand(key, self.waiters.name(owner))?;
        self.waiters
            .at(stand.position)
            .map(|waiting| waiting.waiter.id)
    }

    /// The requests of `owner` that wait at the key, in their order.
    pub fn requests_of(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Vec<WaiterId> {
        let Some(key) = self.keys.find(key) else {
            return Vec::new();
        };
        let name = self.waiters.name(owner);
        let mut found = Vec::new();
        let mut from = Position::FIRST;
        while let Some(position) = self.waiters.request_from(key, name, from) {
            let waiting = self.waiters.at(position);
            found.extend(waiting.map(|waiting| waiting.waiter.id));
            from = position.behind();
        }
        found
    }

    /// The request `id` is repeated: it keeps its place and its mode, and takes over the new terms. True if they differ from
    /// the old ones, so that it might be granted now.
    pub fn take_over(&mut self, id: WaiterId, terms: Terms, until: Instant) -> bool {
        self.waiters.take_over(id, terms, until)
    }

    /// A waiter whose time is up at `now`; the caller removes it.
    pub fn timed_out(&self, now: Instant) -> Option<WaiterId> {
        let (limit, id) = self.waiters.first_limit()?;
        (limit <= now).then_some(id)
    }

    /// When the first waiter's time is up.
    pub fn next_limit(&self) -> Option<Instant> {
        self.waiters.first_limit().map(|(limit, _)| limit)
    }

    /// The longest lease that anybody has asked for since somebody waits; `None` if nobody does.
    pub fn longest_lease(&self) -> Option<Lease> {
        self.waiters.longest_lease()
    }

    /// A key with waiters that loses a hold at or before `now`. Each deadline is returned once: settling the key sets the
    /// next one.
    pub fn due(&mut self, now: Instant) -> Option<KeyId> {
        let (deadline, key) = self.keys.first_deadline()?;
        if deadline > now {
            return None;
        }
        self.keys.set_deadline(key, None);
        Some(self.keys.get(key).id.clone())
    }

    /// When the first key with waiters loses a hold.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.keys.first_deadline().map(|(deadline, _)| deadline)
    }
}

/// Who holds the keys with waiters.
impl Queues {
    /// Records who holds the lock of a key with waiters, and when it loses its first hold. Settling and enqueueing do this by themselves.
    ///
    /// A search that spans keys uses these records alone and opens no other key.
    pub fn observe(&mut self, key: KeyRef<'_>, held: Lock) {
        if let Some(key) = self.keys.find(key) {
            self.observe_at(key, held);
        }
    }

    fn observe_at(&mut self, key: KeyNo, held: Lock) {
        let deadline = held.next_deadline();
        self.keys.observe(key, held);
        self.keys.set_deadline(key, deadline);
    }

    /// The key has lost its lock, or the lock its key: until the next settle nobody holds as far as
    /// is known. That settle rechecks the holders, because the key may have another lock by then.
    pub fn forget_holders(&mut self, key: KeyRef<'_>) {
        if let Some(key) = self.keys.find(key) {
            self.keys.forget_holders(key);
        }
    }

    /// Each key of database `db`, or of all, has lost its lock, and may have another one: as [`Self::forget_holders`] for
    /// each of them, but O(1).
    pub fn forget_all_holders(&mut self, db: Option<Db>) {
        self.keys.forget_all_holders(db);
    }
}

/// The waiters of one key.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    queues: &'a Queues,
    key: KeyNo,
}

impl<'a> Queue<'a> {
    /// How many wait.
    pub fn len(self) -> usize {
        self.queues.keys.get(self.key).len as usize
    }

    /// Nobody waits.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The waiters, the next one first.
    pub fn iter(self) -> impl Iterator<Item = &'a Waiter> {
        self.between(Position::FIRST, Position::END)
    }

    fn between(self, from: Position, to: Position) -> impl Iterator<Item = &'a Waiter> {
        let line = self.queues.waiters.line(self.key, from, to);
        line.map(|(_, waiting)| &waiting.waiter)
    }

    /// Since when the one waits that has waited longest.
    pub fn oldest(self) -> Option<Instant> {
        // Requests that were moved to the head do not stand in the order in which they came.
        let ahead = self.between(Position::FIRST, Position::BEHIND_MOVED);
        let regular = self.between(Position::BEHIND_MOVED, Position::END);
        let oldest = ahead.take(MOVED).chain(regular.take(1));
        oldest.map(|waiter| waiter.since).min()
    }

    /// The first waiter that takes several keys at once.
    pub fn first_several(self) -> Option<&'a Waiter> {
        let waiters = &self.queues.waiters;
        let first = waiters.first_several(self.key)?;
        Some(&waiters.at(first)?.waiter)
    }

    /// Who holds, as far as the queues know: see [`Queues::observe`].
    pub fn held(self) -> &'a Lock {
        self.queues.keys.held(self.key)
    }
}
