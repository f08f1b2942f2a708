//! All queues of a server: the waiters of each key, which of them to grant next, and the search for deadlocks.
//!
//! A queue belongs to a database and a key name, not to a lock: RENAME, MOVE and SWAPDB move
//! locks, never waiters.
//!
//! * `waiters` and `keys` index the waiters and their keys in every order that is needed. They lie in `slab`s, linked into
//!   `tree`s and `table`s, and contain no rules.
//! * `settle` grants the waiters that a lock admits.
//! * `pending` searches for a request that is about to wait, and enqueues it.
//! * `several` enqueues, grants and removes the requests for several keys at once, which are kept in `bundles`.
//! * `deadlock` finds out whether a wait would never end.

mod bundles;
mod deadlock;
mod keys;
mod pending;
mod settle;
mod several;
mod waiter;
mod waiters;

pub use deadlock::{Wait, WaitPlan};
pub use keys::WaitingKeys;
pub use pending::{PendingKey, PendingRequest};
pub use several::Member;
pub use waiter::{Decided, Removed, Settled, Verdict, Waiter, WaiterId};
pub use waiters::{Rank, Reserved};

use crate::tree::NIL;
use bundles::Bundles;
use keys::Keys;
use waiters::{MEMBER, Position, Waiters};

use crate::key::{Db, KeyId, KeyRef};
use crate::observed::Observed;
use crate::owner::OwnerRef;
use crate::request::Terms;
use crate::types::{Instant, Lease};

/// How many of the waiters that were moved to the head are checked for the longest wait.
const MOVED: usize = 64;

/// Every queue of a server.
#[derive(Debug, Default)]
pub struct Queues {
    /// Only keys with waiters are kept.
    keys: Keys,
    waiters: Waiters,
    bundles: Bundles,
    last_id: u64,
}

impl Queues {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many requests wait, all keys together.
    pub fn len(&self) -> usize {
        self.waiters.len() - self.bundles.surplus()
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
        self.keys
            .iter()
            .map(|(key, node)| (&node.id, Queue { queues: self, key }))
    }

    /// The keys with waiters, to be walked a few at a time.
    pub fn waiting_keys(&self) -> WaitingKeys<'_> {
        WaitingKeys(&self.keys)
    }

    /// The last waiter that came.
    pub fn last_id(&self) -> WaiterId {
        WaiterId(self.last_id)
    }

    /// The id for the next waiter.
    pub fn next_id(&mut self) -> WaiterId {
        self.last_id += 1;
        WaiterId(self.last_id)
    }

    /// Enqueues `waiter`, where its rank puts it.
    pub fn push(&mut self, key: KeyRef<'_>, waiter: Waiter, rank: Rank) {
        let key = self.keys.find_or_insert(key);
        let node = self.keys.node_mut(key);
        node.len += 1;
        self.waiters.insert(&mut node.line, key, waiter, rank);
    }

    /// Removes a waiter, from all of its queues. The caller settles their keys.
    pub fn remove(&mut self, id: WaiterId) -> Option<Removed> {
        let slot = self.waiters.find(id)?;
        if self.waiters.node(slot).is_member() {
            return self.remove_several(id, NIL);
        }
        let key = self.waiters.node(slot).key;
        let id = self.keys.node(key).id.clone();
        let waiter = Box::new(self.unlink(key, slot)?);
        self.drop_if_empty(key);
        Some(Removed {
            key: id,
            waiter,
            keys: None,
        })
    }

    fn unlink(&mut self, key: u32, slot: u32) -> Option<Waiter> {
        let node = self.keys.node_mut(key);
        let waiter = self.waiters.remove(&mut node.line, slot)?;
        node.len -= 1;
        Some(waiter)
    }

    /// The request `id` has that rank from now on, in all of its queues.
    fn set_rank(&mut self, id: WaiterId, slots: &[u32], rank: Rank) {
        let position = self.waiters.take_place(id, rank);
        self.set_position(id, slots, position);
    }

    /// The request `id` stands at `position` from now on, in all of its queues.
    fn set_position(&mut self, id: WaiterId, slots: &[u32], position: Position) {
        for slot in slots {
            let key = self.waiters.node(*slot).key;
            (self.waiters).step_out(&mut self.keys.node_mut(key).line, *slot);
        }
        self.waiters.set_position(id, slots, position);
        for slot in slots {
            let key = self.waiters.node(*slot).key;
            (self.waiters).step_in(&mut self.keys.node_mut(key).line, *slot);
        }
    }

    fn drop_if_empty(&mut self, key: u32) {
        if self.keys.node(key).len == 0 {
            self.keys.remove(key);
        }
    }

    /// The waiter `id` and its key.
    pub fn waiter(&self, id: WaiterId) -> Option<(&KeyId, &Waiter)> {
        let node = self.waiters.node(self.waiters.find(id)?);
        Some((&self.keys.node(node.key).id, &node.waiter))
    }

    /// The requests of `owner` that wait at the key, in their order.
    pub fn requests_of(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Vec<WaiterId> {
        let Some(key) = self.keys.find(key) else {
            return Vec::new();
        };
        let task = self.waiters.task_of(owner);
        let mut found = Vec::new();
        let mut at = self.waiters.first_request(task, key, owner);
        while at != NIL {
            let node = self.waiters.node(at);
            found.push(node.waiter.id);
            let behind = self.waiters.position(at).behind();
            at = self.waiters.request_from(task, key, owner, behind);
        }
        found
    }

    /// The request `id` is repeated: it keeps its place and its mode, and takes over the new terms. True if they differ from
    /// the old ones, so that it might be granted now.
    pub fn take_over(&mut self, id: WaiterId, terms: Terms, until: Instant) -> bool {
        let slots = self.slots_of(id);
        let Some(first) = slots.first() else {
            return false;
        };
        let before = self.waiters.node(*first).waiter.terms;
        for slot in slots {
            self.waiters.take_over(slot, terms, until);
        }
        before != terms
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

    /// The longest lease that anybody waits for.
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
        Some(self.keys.node(key).id.clone())
    }

    /// When the first key with waiters loses a hold.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.keys.first_deadline().map(|(deadline, _)| deadline)
    }
}

/// Who holds the keys with waiters.
impl Queues {
    /// Records who holds the lock of a key with waiters, and when it loses its first hold. Settling does this by itself.
    /// This call is for a request that has just begun to wait.
    ///
    /// A search that spans keys uses these records alone and opens no other key.
    pub fn observe(&mut self, key: KeyRef<'_>, held: Observed) {
        if let Some(key) = self.keys.find(key) {
            let deadline = held.next_deadline();
            self.observe_at(key, held);
            self.keys.set_deadline(key, deadline);
        }
    }

    fn observe_at(&mut self, key: u32, held: Observed) {
        let nodes = &self.waiters.nodes;
        self.keys
            .observe(key, held, |owner| nodes.hash_task(owner.as_ref()));
    }

    /// The key has lost its lock, or the lock its key: until the next settle nobody holds as far as
    /// is known. That settle rechecks the holders, because the key may have another lock by then.
    pub fn forget_holders(&mut self, key: KeyRef<'_>) {
        if let Some(key) = self.keys.find(key) {
            self.keys.set_free(key);
            self.keys.recheck_holders(key);
        }
    }

    /// Each key of database `db`, or of all, has lost its lock, and may have another one: as [`Self::forget_holders`] for
    /// each of them, but O(1).
    pub fn forget_all_holders(&mut self, db: Option<Db>) {
        self.keys.forget_holders(db);
    }
}

/// The waiters of one key.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    queues: &'a Queues,
    key: u32,
}

impl<'a> Queue<'a> {
    /// How many wait.
    pub fn len(self) -> usize {
        self.queues.keys.node(self.key).len as usize
    }

    /// Nobody waits.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The waiters, the next one first.
    pub fn iter(self) -> impl Iterator<Item = &'a Waiter> {
        let mut at = self.first_from(Position::FIRST);
        let waiters = &self.queues.waiters;
        std::iter::from_fn(move || {
            let found = (at != NIL).then(|| &waiters.node(at).waiter)?;
            at = waiters.next_in_line(at);
            Some(found)
        })
    }

    /// Since when the one waits that has waited longest.
    pub fn oldest(self) -> Option<Instant> {
        let waiters = &self.queues.waiters;
        let firsts = [Position::FIRST, Position::REGULAR].map(|position| self.first_from(position));
        let mut moved = self.first_from(Position::BEHIND_UPGRADES);
        let moved = std::iter::from_fn(|| {
            let is_moved = moved != NIL && waiters.position(moved) < Position::REGULAR;
            let found = is_moved.then_some(moved)?;
            moved = waiters.next_in_line(moved);
            Some(found)
        });
        // Requests that were moved to the head do not stand in the order in which they came.
        let found = firsts.into_iter().chain(moved.take(MOVED));
        let found = found.filter(|first| *first != NIL);
        found.map(|first| waiters.node(first).waiter.since).min()
    }

    /// The first waiter that takes several keys at once.
    pub fn first_several(self) -> Option<&'a Waiter> {
        let waiters = &self.queues.waiters;
        let line = self.queues.keys.node(self.key).line;
        let found = waiters.first_flagged(line, MEMBER);
        (found != NIL).then(|| &waiters.node(found).waiter)
    }

    /// True if another request would stand ahead of one of that rank that came now.
    fn is_any_ahead_of(self, rank: Rank) -> bool {
        let first = self.first_from(Position::FIRST);
        let waiters = &self.queues.waiters;
        first != NIL && waiters.position(first) < waiters.nodes.end(rank)
    }

    /// Who holds, as far as the queues know: see [`Queues::observe`].
    pub fn held(self) -> &'a Observed {
        self.queues.keys.held(self.key)
    }

    fn first_from(self, position: Position) -> u32 {
        let line = self.queues.keys.node(self.key).line;
        self.queues.waiters.line_from(line, position)
    }
}
