//! The keys with waiters, and the holders of their locks. No rules here.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use super::position::{Position, WaiterId};
use crate::key::{Db, KeyId, KeyRef};
use crate::lock::Lock;
use crate::owner::{Owner, OwnerRef};
use crate::slab::Slab;
use crate::slots::slot_of;
use crate::types::Instant;

/// The number of a key, for as long as anybody waits there.
pub(crate) type KeyNo = u32;

/// What a settle has left for the next one.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Upgrades after this one have not been checked.
    pub(crate) upgrades: Option<WaiterId>,
    /// Owners may hold whose requests from here on were not decided when they came to hold.
    pub(crate) recheck_from: Option<Position>,
    /// This owner holds now, and not all of its requests have been decided.
    pub(crate) own: Option<Owner>,
}

impl Unsettled {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            upgrades,
            recheck_from,
            own,
        } = self;
        upgrades.is_none() && recheck_from.is_none() && own.is_none()
    }
}

/// A key with waiters.
#[derive(Debug)]
pub(crate) struct WaitedKey {
    pub(crate) id: KeyId,
    /// How many wait.
    pub(crate) len: u32,
    held: Lock,
    /// The count of changes of its database when its holders were observed.
    changes: u32,
    /// When it loses its first hold; [`Instant::NEVER`] for never.
    deadline: Instant,
    pub(crate) unsettled: Option<Box<Unsettled>>,
}

/// In place of the hash of a task: nobody holds the key, or several owners do.
const FREE: u64 = 0;
const SHARED: u64 = 1;

/// A database in which somebody waits.
#[derive(Debug, Default)]
struct Database {
    /// How many keys have waiters.
    keys: usize,
    /// Counts how often all of its locks went, or gave way to others.
    changes: u32,
}

/// The keys with waiters, and who holds their locks.
#[derive(Debug, Default)]
pub(crate) struct WaitedKeys {
    all: Slab<WaitedKey>,
    by_slot: BTreeSet<Visited>,
    /// The keys that nobody holds, as far as is known.
    unheld: BTreeSet<Visited>,
    /// The keys that are held, by the task that holds them.
    held: BTreeSet<(u64, KeyNo)>,
    /// When each loses its first hold.
    deadlines: BTreeSet<(Instant, KeyNo)>,
    databases: BTreeMap<Db, Database>,
    /// Counts how often the locks of all databases went, or gave way to others.
    changes_of_all: u32,
    hasher: RandomState,
}

impl WaitedKeys {
    pub(crate) fn get(&self, key: KeyNo) -> &WaitedKey {
        &self.all[key]
    }

    pub(crate) fn get_mut(&mut self, key: KeyNo) -> &mut WaitedKey {
        &mut self.all[key]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyNo, &WaitedKey)> {
        let all = self.by_slot.iter();
        all.map(|visited| (visited.key, &self.all[visited.key]))
    }

    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<KeyNo> {
        if self.by_slot.is_empty() {
            return None;
        }
        let first = self.visit(key, KeyNo::MIN);
        let same_hash = |found: &&Visited| (found.slot, found.hash) == (first.slot, first.hash);
        let mut found = self.by_slot.range(first..).take_while(same_hash);
        let found = found.find(|visited| self.all[visited.key].id.as_ref() == key);
        found.map(|visited| visited.key)
    }

    /// The place of the key in the order of slots. In a slot the order is that of a hash.
    fn visit(&self, key: KeyRef<'_>, no: KeyNo) -> Visited {
        Visited {
            slot: slot_of(key.name),
            hash: self.hasher.hash_one(key) as u32,
            key: no,
        }
    }

    pub(crate) fn find_or_insert(&mut self, key: KeyRef<'_>) -> KeyNo {
        if let Some(found) = self.find(key) {
            return found;
        }
        self.databases.entry(key.db).or_default().keys += 1;
        let no = self.all.insert(WaitedKey {
            id: key.to_id(),
            len: 0,
            held: Lock::free(),
            changes: self.changes_of(key.db),
            deadline: Instant::NEVER,
            unsettled: None,
        });
        self.by_slot.insert(self.visit(key, no));
        no
    }

    /// Removes a key at which nobody waits any more.
    pub(crate) fn remove(&mut self, key: KeyNo) {
        self.set_deadline(key, None);
        let Some(WaitedKey { id, held, .. }) = self.all.remove(key) else {
            return;
        };
        self.held.remove(&(self.holder(&held), key));
        let visited = self.visit(id.as_ref(), key);
        self.by_slot.remove(&visited);
        self.unheld.remove(&visited);
        if let Some(database) = self.databases.get_mut(&id.db) {
            database.keys -= 1;
            if database.keys == 0 {
                self.databases.remove(&id.db);
            }
        }
    }

    /// When the first key loses a hold, and which that is.
    pub(crate) fn first_deadline(&self) -> Option<(Instant, KeyNo)> {
        self.deadlines.first().copied()
    }

    pub(crate) fn set_deadline(&mut self, key: KeyNo, deadline: Option<Instant>) {
        let deadline = deadline.unwrap_or(Instant::NEVER);
        let before = std::mem::replace(&mut self.all[key].deadline, deadline);
        if before != deadline {
            self.deadlines.remove(&(before, key));
            if deadline < Instant::NEVER {
                self.deadlines.insert((deadline, key));
            }
        }
    }

    /// The hash of the task that holds a key, or [`SHARED`] or [`FREE`].
    fn holder(&self, held: &Lock) -> u64 {
        match held.only_owner() {
            Some(owner) => self.task(owner.as_ref()),
            None if held.is_free() => FREE,
            None => SHARED,
        }
    }

    /// The keys that `owner`'s task holds alone, or held recently.
    pub(crate) fn held_by_task(&self, owner: OwnerRef<'_>) -> impl Iterator<Item = KeyNo> {
        self.with_holder(self.task(owner))
    }

    /// The keys that several owners hold, or held recently.
    pub(crate) fn shared(&self) -> impl Iterator<Item = KeyNo> {
        self.with_holder(SHARED)
    }

    fn with_holder(&self, holder: u64) -> impl Iterator<Item = KeyNo> {
        let held = self.held.range((holder, KeyNo::MIN)..);
        held.take_while(move |(its, _)| *its == holder)
            .map(|(_, key)| *key)
    }

    fn task(&self, owner: OwnerRef<'_>) -> u64 {
        self.hasher.hash_one(owner.task_owner()).max(SHARED + 1)
    }

    /// Who holds the key, as far as is known.
    pub(crate) fn held(&self, key: KeyNo) -> &Lock {
        match self.has_changed(key) {
            true => const { &Lock::free() },
            false => &self.all[key].held,
        }
    }

    /// Whether the lock of the key may be another one than when its holders were observed.
    fn has_changed(&self, key: KeyNo) -> bool {
        let key = &self.all[key];
        key.changes != self.changes_of(key.id.db)
    }

    /// The next settle decides the requests of all holders.
    pub(crate) fn recheck_holders(&mut self, key: KeyNo) {
        let unsettled = self.all[key].unsettled.get_or_insert_default();
        unsettled.recheck_from = Some(Position::FIRST);
    }

    /// What the last settle of the key has left to do, and what a change of its whole database has added to it.
    pub(crate) fn take_unsettled(&mut self, key: KeyNo) -> Unsettled {
        if self.has_changed(key) {
            self.recheck_holders(key);
        }
        let unsettled = self.all[key].unsettled.take();
        unsettled.map_or_else(Unsettled::default, |unsettled| *unsettled)
    }

    /// The key is held like this now.
    pub(crate) fn observe(&mut self, key: KeyNo, held: Lock) {
        if self.has_changed(key) {
            self.recheck_holders(key);
        }
        let changes = self.changes_of(self.all[key].id.db);
        let (before, holder) = (self.holder(&self.all[key].held), self.holder(&held));
        if before != holder {
            self.held.remove(&(before, key));
            if holder != FREE {
                self.held.insert((holder, key));
            }
        }
        if holder == FREE || !self.unheld.is_empty() {
            let visited = self.visit(self.all[key].id.as_ref(), key);
            match holder {
                FREE => self.unheld.insert(visited),
                _ => self.unheld.remove(&visited),
            };
        }
        let found = &mut self.all[key];
        (found.held, found.changes) = (held, changes);
    }

    /// The key has lost its lock, and may have another one: the next settle decides the requests of its holders.
    pub(crate) fn forget_holders(&mut self, key: KeyNo) {
        self.observe(key, Lock::free());
        self.recheck_holders(key);
    }

    /// The database, or every one, has lost its locks or got others. O(1): each key notices at the next visit.
    pub(crate) fn forget_all_holders(&mut self, db: Option<Db>) {
        let changes = match db {
            Some(db) => self.databases.get_mut(&db).map(|db| &mut db.changes),
            None => Some(&mut self.changes_of_all),
        };
        if let Some(changes) = changes {
            *changes = changes.wrapping_add(1);
        }
    }

    fn changes_of(&self, db: Db) -> u32 {
        let changes = self.databases.get(&db).map_or(0, |db| db.changes);
        changes.wrapping_add(self.changes_of_all)
    }
}

/// The keys with waiters, in an order that can be walked a few keys at a time: by slot. A walk remembers the last key that it visited and
/// continues after it, whatever came or went meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct WaitingKeys<'a>(pub(super) &'a WaitedKeys);

/// How far a walk over the keys with waiters has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visited {
    slot: u16,
    hash: u32,
    key: KeyNo,
}

impl Visited {
    const fn start_of(slot: u16) -> Self {
        Self {
            slot,
            hash: 0,
            key: KeyNo::MIN,
        }
    }
}

impl<'a> WaitingKeys<'a> {
    /// The first slot with waiters from `slot` on.
    pub fn slot_from(self, slot: u16) -> Option<u16> {
        let mut found = self.0.by_slot.range(Visited::start_of(slot)..);
        found.next().map(|found| found.slot)
    }

    /// This key, if anybody waits there.
    pub fn find(self, key: KeyRef<'_>) -> Option<(Visited, &'a KeyId)> {
        let found = self.0.find(key)?;
        self.visit(Some(&self.0.visit(key, found)))
    }

    /// The first one after `last`, or the first of all.
    pub fn after(self, last: Option<Visited>) -> Option<(Visited, &'a KeyId)> {
        self.first_after(&self.0.by_slot, last)
    }

    /// The same for the keys that nobody holds, as far as is known.
    pub fn unheld_after(self, last: Option<Visited>) -> Option<(Visited, &'a KeyId)> {
        self.first_after(&self.0.unheld, last)
    }

    /// The same for the keys of `slot`.
    pub fn in_slot_after(self, slot: u16, last: Option<Visited>) -> Option<(Visited, &'a KeyId)> {
        let from = match last {
            Some(last) => Bound::Excluded(last),
            None => Bound::Included(Visited::start_of(slot)),
        };
        let mut found = self.0.by_slot.range((from, Bound::Unbounded));
        self.visit(found.next().filter(|found| found.slot == slot))
    }

    fn first_after(
        self,
        order: &'a BTreeSet<Visited>,
        last: Option<Visited>,
    ) -> Option<(Visited, &'a KeyId)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.visit(order.range((from, Bound::Unbounded)).next())
    }

    fn visit(self, found: Option<&Visited>) -> Option<(Visited, &'a KeyId)> {
        let visited = *found?;
        Some((visited, &self.0.get(visited.key).id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::OwnerRef;
    use crate::stake::{Stake, Touched};
    use crate::types::Token;

    #[test]
    fn a_database_is_forgotten_with_its_last_waiter() {
        let mut keys = WaitedKeys::default();
        for db in (0..100).map(Db) {
            let key = keys.find_or_insert(KeyRef { db, name: b"key" });
            keys.forget_all_holders(Some(db));
            keys.remove(key);
            keys.forget_all_holders(Some(db));
        }
        assert!(keys.databases.is_empty(), "{:?}", keys.databases);
    }

    #[test]
    fn the_holders_of_a_changed_database_are_rechecked_once() {
        let mut keys = WaitedKeys::default();
        let key = |name| KeyRef { db: Db(0), name };
        let (one, other) = (
            keys.find_or_insert(key(b"a")),
            keys.find_or_insert(key(b"b")),
        );
        assert!(keys.take_unsettled(one).is_empty());
        keys.forget_all_holders(Some(Db(0)));
        let late = keys.find_or_insert(key(b"c"));
        assert!(
            keys.take_unsettled(late).is_empty(),
            "it came after the change"
        );
        for changed in [one, other] {
            keys.observe(changed, Lock::free());
            let unsettled = keys.take_unsettled(changed);
            assert_eq!(unsettled.recheck_from, Some(Position::FIRST));
            assert!(keys.take_unsettled(changed).is_empty());
        }
    }

    #[test]
    fn keys_that_nobody_holds_are_found_until_somebody_does_or_nobody_waits() {
        let unheld = |keys: &WaitedKeys| {
            let mut last = None;
            std::iter::from_fn(|| {
                let (visited, _) = WaitingKeys(keys).unheld_after(last)?;
                last = Some(visited);
                last
            })
            .count()
        };
        let mut keys = WaitedKeys::default();
        let [key, other] = [Db(0), Db(1)].map(|db| keys.find_or_insert(KeyRef { db, name: b"a" }));
        let held = Lock::free().observe();
        keys.observe(key, held.clone());
        assert_eq!(unheld(&keys), 1);
        keys.observe(other, held);
        assert_eq!(unheld(&keys), 2);
        let mut lock = Lock::free();
        let stake = Stake {
            write: 1,
            read: 0,
            token: Token::MAX,
            deadline: Instant::NEVER,
            since: Instant::default(),
            touched: Touched::by(1),
            revoked: false,
        };
        lock.put(OwnerRef::new(b"a").expect("short"), stake);
        keys.observe(key, lock.observe());
        assert_eq!(unheld(&keys), 1);
        keys.forget_holders(key);
        assert_eq!(unheld(&keys), 2);
        for key in [key, other] {
            keys.remove(key);
        }
        assert_eq!(unheld(&keys), 0);
    }
}
