//! Every queue of a server, with what spans them: who waits where, and whose time is up next.
//!
//! A queue belongs to a database and a key name, not to a lock: RENAME, MOVE and SWAPDB move
//! locks, never waiters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use crate::lock::{Live, Lock};
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::place::Rank;
use crate::queue::{Changed, Queue, Settled, Waiter, WaiterId};
use crate::slots::WaitingKeys;
use crate::token::TokenClock;
use crate::types::{Instant, Lease, Micros};

/// A key: its database and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The number of the database.
    pub db: u32,
    /// Any bytes.
    pub name: Rc<[u8]>,
}

/// Waiters for whom there is room when all have gone.
const ROOM_KEPT: usize = 64;

/// Every queue of a server.
#[derive(Debug, Default)]
pub struct Queues {
    /// No database and no queue is kept in which nobody waits.
    by_db: BTreeMap<u32, HashMap<Rc<[u8]>, Queue>>,
    keys: HashMap<WaiterId, KeyId>,
    /// Where each owner waits, and how often there.
    pub(crate) owners: BTreeMap<Owner, BTreeMap<KeyId, usize>>,
    limits: BTreeSet<(Instant, WaiterId)>,
    /// How many ask for a lease of which length.
    leases: BTreeMap<Lease, usize>,
    /// When the locks with waiters lose their first hold, as of the last settle.
    deadlines: BTreeMap<KeyId, Instant>,
    by_deadline: BTreeSet<(Instant, KeyId)>,
    waiting_keys: WaitingKeys,
    last_id: u64,
}

impl Queues {
    /// Nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many wait, all keys together.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The queue of a key, if anybody waits there.
    pub fn get(&self, db: u32, name: &[u8]) -> Option<&Queue> {
        self.by_db.get(&db)?.get(name)
    }

    /// Every key where somebody waits, with its queue.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Rc<[u8]>, &Queue)> {
        self.by_db
            .iter()
            .flat_map(|(db, queues)| queues.iter().map(|(name, queue)| (*db, name, queue)))
    }

    /// The keys of database `db` where somebody waits.
    pub fn keys_of(&self, db: u32) -> impl Iterator<Item = &Rc<[u8]>> {
        self.by_db.get(&db).into_iter().flat_map(HashMap::keys)
    }

    /// The keys where somebody waits, to be walked a few at a time.
    pub fn waiting_keys(&self) -> &WaitingKeys {
        &self.waiting_keys
    }

    /// The waiter that came last.
    pub fn last_id(&self) -> WaiterId {
        WaiterId(self.last_id)
    }

    /// The id for the next waiter.
    pub fn next_id(&mut self) -> WaiterId {
        self.last_id += 1;
        WaiterId(self.last_id)
    }

    /// `waiter` begins to wait: in the line, or ahead of it for an upgrade.
    pub fn push(&mut self, db: u32, name: &[u8], waiter: Waiter, upgrade: bool) {
        let queues = self.by_db.entry(db).or_default();
        let known = queues.get_key_value(name).map(|(name, _)| Rc::clone(name));
        let key = KeyId {
            db,
            name: known.clone().unwrap_or_else(|| Rc::from(name)),
        };
        if known.is_none() {
            self.waiting_keys.insert(&key);
        }
        let name = Rc::clone(&key.name);
        let (id, owner) = (waiter.id, waiter.owner.clone());
        if let Some(limit) = waiter.limit {
            self.limits.insert((limit, id));
        }
        *self.leases.entry(waiter.lease).or_default() += 1;
        let rank = if upgrade { Rank::Upgrade } else { Rank::Line };
        queues.entry(name).or_default().push(Box::new(waiter), rank);
        self.keys.insert(id, key.clone());
        self.remember(&owner, key);
    }

    /// What is known of the lock of a key with waiters: who holds it, and when it loses its first
    /// hold. Settling sees to it by itself; this is for a waiter that has begun to wait, because no
    /// settle has looked since.
    ///
    /// Nobody needs the lock of another key for it: a search that spans keys goes by this alone.
    pub fn observe(&mut self, key: &KeyId, held: Observed) {
        let deadline = held.next_deadline();
        if let Some(queue) = self.queue_mut(key) {
            queue.set_held(held);
            self.set_deadline(key, deadline);
        }
    }

    /// The key has lost its lock, or the lock its key: until the next settle nobody holds as far as
    /// is known.
    pub fn forget_holders(&mut self, db: u32, name: &[u8]) {
        let queue = self.by_db.get_mut(&db);
        if let Some(queue) = queue.and_then(|queues| queues.get_mut(name)) {
            queue.set_held(Observed::Free);
        }
    }

    /// The same for each key of database `db`, or of all.
    pub fn forget_all_holders(&mut self, db: Option<u32>) {
        let wanted = |found: u32| db.is_none_or(|db| db == found);
        let found = self.by_db.iter_mut().filter(|(found, _)| wanted(**found));
        for queue in found.flat_map(|(_, queues)| queues.values_mut()) {
            queue.set_held(Observed::Free);
        }
    }

    /// `id` waits no more. Its key, which is to be settled, and what it had asked for.
    pub fn remove(&mut self, id: WaiterId) -> Option<(KeyId, Box<Waiter>)> {
        let key = self.keys.get(&id)?.clone();
        let waiter = self.queue_mut(&key)?.remove(id)?;
        self.forget(&waiter, &key);
        self.drop_if_empty(&key);
        Some((key, waiter))
    }

    /// What `owner` waits for at the key, the first one first.
    pub fn requests_of(&self, db: u32, name: &[u8], owner: OwnerRef<'_>) -> Vec<WaiterId> {
        let Some(queue) = self.get(db, name) else {
            return Vec::new();
        };
        let standing = queue.standing(&owner.to_owner());
        let places = standing.into_iter().flat_map(|standing| &standing.places);
        places.map(|place| place.id).collect()
    }

    /// The request `id` is made again: it keeps its place and takes over what is asked for now.
    pub fn take_over(&mut self, id: WaiterId, changed: Changed) {
        let Some(key) = self.keys.get(&id).cloned() else {
            return;
        };
        let Some(queue) = self.queue_mut(&key) else {
            return;
        };
        let Some(place) = queue.place_of(id) else {
            return;
        };
        let Some(waiter) = queue.get_mut(place) else {
            return;
        };
        let (lease, limit) = (waiter.lease, waiter.limit);
        waiter.lease = changed.lease;
        waiter.holds = changed.holds;
        waiter.fence = changed.fence;
        waiter.token = changed.token;
        waiter.limit = changed.limit;
        if let Some(limit) = limit {
            self.limits.remove(&(limit, id));
        }
        if let Some(limit) = changed.limit {
            self.limits.insert((limit, id));
        }
        self.forget_lease(lease);
        *self.leases.entry(changed.lease).or_default() += 1;
    }

    /// Lets in whom the lock of the key admits. `strangers`: the lock may hold owners that did not
    /// come through this queue (RENAME, RESTORE and the like), so that their own requests have to
    /// be looked for.
    pub fn settle(
        &mut self,
        db: u32,
        name: &[u8],
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        strangers: bool,
    ) -> Settled {
        self.settle_with(db, name, live, |queue, live| {
            queue.settle(live, tokens, wall, strangers)
        })
    }

    /// While nothing is granted: lets nobody in, but answers the upgrades whose read hold has ended.
    pub fn settle_lost(&mut self, db: u32, name: &[u8], live: &mut Live<'_>) -> Settled {
        self.settle_with(db, name, live, |queue, live| {
            let mut settled = Settled::default();
            queue.answer_lost_upgrades(|owner| live.hold(owner).is_some(), &mut settled);
            settled
        })
    }

    /// The same where nothing may be changed, not even a hold that is over dropped.
    pub fn settle_lost_unchanged(
        &mut self,
        db: u32,
        name: &[u8],
        lock: &Lock,
        now: Instant,
    ) -> Settled {
        let holds = |owner: OwnerRef<'_>| lock.hold(owner).is_some_and(|stake| !stake.is_over(now));
        self.settle_by(db, name, |queue| {
            let mut settled = Settled::default();
            queue.answer_lost_upgrades(holds, &mut settled);
            (settled, lock.observe(), None)
        })
    }

    fn settle_with(
        &mut self,
        db: u32,
        name: &[u8],
        live: &mut Live<'_>,
        settle: impl FnOnce(&mut Queue, &mut Live<'_>) -> Settled,
    ) -> Settled {
        self.settle_by(db, name, |queue| {
            let settled = settle(queue, live);
            (settled, live.observe(), Some(live.next_deadline()))
        })
    }

    /// `settle` answers what it decided, who holds then, and the lock's next deadline if it looked.
    fn settle_by(
        &mut self,
        db: u32,
        name: &[u8],
        settle: impl FnOnce(&mut Queue) -> (Settled, Observed, Option<Option<Instant>>),
    ) -> Settled {
        let Some(queues) = self.by_db.get_mut(&db) else {
            return Settled::default();
        };
        let Some((name, _)) = queues.get_key_value(name) else {
            return Settled::default();
        };
        let name = Rc::clone(name);
        let Some(queue) = queues.get_mut(&name) else {
            return Settled::default();
        };
        let (settled, held, deadline) = settle(queue);
        queue.set_held(held);
        let key = KeyId { db, name };
        if let Some(deadline) = deadline {
            self.set_deadline(&key, deadline);
        }
        for decided in &settled.decided {
            self.forget(&decided.waiter, &key);
        }
        self.drop_if_empty(&key);
        settled
    }

    /// A waiter whose time is up at `now`; the caller removes it.
    pub fn timed_out(&self, now: Instant) -> Option<WaiterId> {
        self.limits
            .first()
            .filter(|(limit, _)| *limit <= now)
            .map(|(_, id)| *id)
    }

    /// The longest lease that anybody waits for.
    pub fn longest_lease(&self) -> Option<Lease> {
        self.leases.last_key_value().map(|(lease, _)| *lease)
    }

    /// When the first waiter's time is up.
    pub fn next_limit(&self) -> Option<Instant> {
        self.limits.first().map(|(limit, _)| *limit)
    }

    /// A key with waiters that loses a hold at or before `now`. It is told once; settling it makes
    /// it be told again for its next deadline.
    pub fn due(&mut self, now: Instant) -> Option<KeyId> {
        let (deadline, key) = self.by_deadline.first()?;
        if *deadline > now {
            return None;
        }
        let key = key.clone();
        self.set_deadline(&key, None);
        Some(key)
    }

    /// When the first key with waiters loses a hold.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(deadline, _)| *deadline)
    }

    fn set_deadline(&mut self, key: &KeyId, deadline: Option<Instant>) {
        let old = match deadline {
            Some(deadline) => self.deadlines.insert(key.clone(), deadline),
            None => self.deadlines.remove(key),
        };
        if old != deadline {
            if let Some(old) = old {
                self.by_deadline.remove(&(old, key.clone()));
            }
            if let Some(deadline) = deadline {
                self.by_deadline.insert((deadline, key.clone()));
            }
        }
    }

    /// The waiter `id` and its key.
    pub fn waiter(&self, id: WaiterId) -> Option<(&KeyId, &Waiter)> {
        let key = self.keys.get(&id)?;
        let queue = self.get(key.db, &key.name)?;
        Some((key, queue.get(queue.place_of(id)?)?))
    }

    fn queue_mut(&mut self, key: &KeyId) -> Option<&mut Queue> {
        self.by_db.get_mut(&key.db)?.get_mut(&key.name)
    }

    fn drop_if_empty(&mut self, key: &KeyId) {
        let Some(queues) = self.by_db.get_mut(&key.db) else {
            return;
        };
        if !queues.get(&key.name).is_some_and(Queue::is_empty) {
            return;
        }
        queues.remove(&key.name);
        if queues.is_empty() {
            self.by_db.remove(&key.db);
        }
        self.waiting_keys.remove(key);
        self.set_deadline(key, None);
    }

    /// `owner` waits once more at `key`. Once it waits at two keys, both queues know that it roams.
    fn remember(&mut self, owner: &Owner, key: KeyId) {
        let waits = self.owners.entry(owner.clone()).or_default();
        *waits.entry(key.clone()).or_default() += 1;
        let roams: Vec<KeyId> = match waits.len() {
            0 | 1 => Vec::new(),
            2 => waits.keys().cloned().collect(),
            _ => vec![key],
        };
        self.set_roams(owner, &roams, true);
    }

    /// The other way round.
    fn forget(&mut self, waiter: &Waiter, key: &KeyId) {
        self.keys.remove(&waiter.id);
        if self.keys.is_empty() {
            // Of a crowd that has gone no memory is kept.
            self.keys.shrink_to(ROOM_KEPT);
        }
        if let Some(limit) = waiter.limit {
            self.limits.remove(&(limit, waiter.id));
        }
        self.forget_lease(waiter.lease);
        let Some(waits) = self.owners.get_mut(&waiter.owner) else {
            return;
        };
        if let Some(times) = waits.get_mut(key) {
            *times -= 1;
            if *times == 0 {
                waits.remove(key);
            }
        }
        match waits.len() {
            0 => {
                self.owners.remove(&waiter.owner);
            }
            1 => {
                let last: Vec<KeyId> = waits.keys().cloned().collect();
                self.set_roams(&waiter.owner, &last, false);
            }
            _ => {}
        }
    }

    fn forget_lease(&mut self, lease: Lease) {
        if let Some(times) = self.leases.get_mut(&lease) {
            *times -= 1;
            if *times == 0 {
                self.leases.remove(&lease);
            }
        }
    }

    fn set_roams(&mut self, owner: &Owner, keys: &[KeyId], roams: bool) {
        for key in keys {
            if let Some(queue) = self.queue_mut(key) {
                queue.set_roams(owner, roams);
            }
        }
    }
}
