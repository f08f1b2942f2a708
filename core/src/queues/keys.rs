//! The keys with waiters: the roots of their queues, and the holders of their locks. No rules here.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use super::waiter::WaiterId;
use crate::key::{Db, KeyId, KeyRef};
use crate::observed::Observed;
use crate::owner::Owner;
use crate::slab::Slab;
use crate::slots::{SlotKey, SlotSet, slot_of};
use crate::table::{Chained, Table};
use crate::tree::{self, Forest, Links, NIL};
use crate::types::Instant;

/// What a settle has left for the next one.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Upgrades after this one have not been checked.
    pub(crate) upgrades: Option<WaiterId>,
    pub(crate) holders: HoldersToRecheck,
    /// This owner holds now, and not all of its requests have been decided.
    pub(crate) own: Option<Owner>,
}

/// The holders that may have requests here that were not decided when they came to hold.
#[derive(Debug, Default)]
pub(crate) enum HoldersToRecheck {
    #[default]
    None,
    All,
    /// Those behind this one.
    Behind(Owner),
}

impl Unsettled {
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            upgrades,
            holders,
            own,
        } = self;
        upgrades.is_none() && matches!(holders, HoldersToRecheck::None) && own.is_none()
    }
}

impl HoldersToRecheck {
    pub(crate) fn behind(last: Option<Owner>) -> Self {
        last.map_or(Self::All, Self::Behind)
    }
}

#[derive(Debug)]
pub(crate) struct KeyNode {
    pub(crate) id: KeyId,
    /// The root of its line, and how many stand there.
    pub(crate) line: u32,
    pub(crate) len: u32,
    held: Observed,
    /// The count of changes of its database when its holders were observed.
    changes: u32,
    /// What the holder's task hashes to, [`SHARED`] for several, [`FREE`] for none.
    holder: u64,
    deadline: Option<Instant>,
    pub(crate) unsettled: Option<Box<Unsettled>>,
    slot: u16,
    holders: Links,
    deadlines: Links,
    slots: Links,
    link: u32,
}

const FREE: u64 = 0;
const SHARED: u64 = 1;

/// All keys by name.
enum Name {}
/// The keys that are held, by holder.
enum Holder {}
/// The keys that are held, by when they lose their first hold.
enum Deadline {}
/// All keys by cluster slot.
enum Slot {}

#[derive(Debug, Default)]
struct Nodes {
    slab: Slab<KeyNode>,
    hasher: RandomState,
}

/// A database in which somebody waits.
#[derive(Debug, Default)]
struct Database {
    /// How many keys have waiters.
    keys: usize,
    /// Counts how often all of its locks went, or gave way to others.
    changes: u32,
}

/// The keys with waiters.
#[derive(Debug)]
pub(crate) struct Keys {
    nodes: Nodes,
    names: Table,
    holders: u32,
    deadlines: u32,
    by_slot: u32,
    slots: SlotSet,
    /// The keys that nobody holds, as far as is known.
    unheld: BTreeSet<SlotKey>,
    databases: BTreeMap<Db, Database>,
    /// Counts how often the locks of all databases went, or gave way to others.
    changes_of_all: u32,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            nodes: Nodes::default(),
            names: Table::default(),
            holders: NIL,
            deadlines: NIL,
            by_slot: NIL,
            slots: SlotSet::default(),
            unheld: BTreeSet::new(),
            databases: BTreeMap::new(),
            changes_of_all: 0,
        }
    }
}

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.nodes.slab.len()
    }

    pub(crate) fn node(&self, key: u32) -> &KeyNode {
        &self.nodes.slab[key]
    }

    pub(crate) fn node_mut(&mut self, key: u32) -> &mut KeyNode {
        &mut self.nodes.slab[key]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &KeyNode)> {
        self.nodes.slab.iter()
    }

    pub(crate) fn find(&self, key: KeyRef<'_>) -> Option<u32> {
        if self.len() == 0 {
            return None;
        }
        let hash = self.nodes.hasher.hash_one(key);
        self.names
            .find::<Name>(&self.nodes, hash, |slot| self.node(slot).id.as_ref() == key)
    }

    pub(crate) fn find_or_insert(&mut self, key: KeyRef<'_>) -> u32 {
        if let Some(found) = self.find(key) {
            return found;
        }
        let slot = slot_of(key.name);
        self.databases.entry(key.db).or_default().keys += 1;
        let changes = self.changes_of(key.db);
        let key = self.nodes.slab.insert(KeyNode {
            id: key.to_id(),
            line: NIL,
            len: 0,
            held: Observed::Free,
            changes,
            holder: FREE,
            deadline: None,
            unsettled: None,
            slot,
            holders: Links::NONE,
            deadlines: Links::NONE,
            slots: Links::NONE,
            link: 0,
        });
        self.names.insert::<Name>(&mut self.nodes, key);
        tree::insert::<Slot>(&mut self.nodes, &mut self.by_slot, key);
        self.slots.insert(slot);
        key
    }

    /// Removes a key at which nobody waits any more.
    pub(crate) fn remove(&mut self, key: u32) {
        self.set_free(key);
        self.set_unheld(key, false);
        self.set_deadline(key, None);
        self.names.remove::<Name>(&mut self.nodes, key);
        tree::remove::<Slot>(&mut self.nodes, &mut self.by_slot, key);
        let node = self.nodes.slab.remove(key);
        if let Some(KeyNode { id, .. }) = &node {
            self.leave_database(id.db);
        }
        if self.len() == 0 {
            self.slots = SlotSet::default();
        } else if let Some(KeyNode { slot, .. }) = node
            && self.first_of(slot).is_none()
        {
            self.slots.remove(slot);
        }
    }

    /// A key of the database has no waiters any more.
    fn leave_database(&mut self, db: Db) {
        if let Some(database) = self.databases.get_mut(&db) {
            database.keys -= 1;
            if database.keys == 0 {
                self.databases.remove(&db);
            }
        }
    }

    /// When the first key loses a hold, and which that is.
    pub(crate) fn first_deadline(&self) -> Option<(Instant, u32)> {
        let first = tree::first::<Deadline>(&self.nodes, self.deadlines);
        let deadline = (first != NIL).then(|| self.node(first).deadline)?;
        Some((deadline?, first))
    }

    pub(crate) fn set_deadline(&mut self, key: u32, deadline: Option<Instant>) {
        let before = self.node(key).deadline;
        if before == deadline {
            return;
        }
        if before.is_some() {
            tree::remove::<Deadline>(&mut self.nodes, &mut self.deadlines, key);
        }
        self.node_mut(key).deadline = deadline;
        if deadline.is_some() {
            tree::insert::<Deadline>(&mut self.nodes, &mut self.deadlines, key);
        }
    }

    /// Who holds the key, as far as is known.
    pub(crate) fn held(&self, key: u32) -> &Observed {
        match self.has_changed(key) {
            true => &Observed::Free,
            false => &self.node(key).held,
        }
    }

    /// Whether the lock of the key may be another one than when its holders were observed.
    fn has_changed(&self, key: u32) -> bool {
        let node = self.node(key);
        node.changes != self.changes_of(node.id.db)
    }

    /// The next settle decides the requests of all holders.
    pub(crate) fn recheck_holders(&mut self, key: u32) {
        let unsettled = self.node_mut(key).unsettled.get_or_insert_default();
        unsettled.holders = HoldersToRecheck::All;
    }

    /// What the last settle of the key has left to do, and what a change of its whole database has added to it.
    pub(crate) fn take_unsettled(&mut self, key: u32) -> Unsettled {
        if self.has_changed(key) {
            self.recheck_holders(key);
        }
        let unsettled = self.node_mut(key).unsettled.take();
        unsettled.map_or_else(Unsettled::default, |unsettled| *unsettled)
    }

    /// `hash_of` gives an owner's task a hash.
    pub(crate) fn observe(
        &mut self,
        key: u32,
        held: Observed,
        hash_of: impl FnOnce(&Owner) -> u64,
    ) {
        let holder = match &held {
            Observed::Free => FREE,
            Observed::Many(_) => SHARED,
            Observed::One { owner, .. } => hash_of(owner).max(SHARED + 1),
        };
        if self.has_changed(key) {
            self.recheck_holders(key);
        }
        let changes = self.changes_of(self.node(key).id.db);
        let node = self.node_mut(key);
        (node.held, node.changes) = (held, changes);
        self.set_holder(key, holder);
        self.set_unheld(key, holder == FREE);
    }

    /// The key has lost its lock.
    pub(crate) fn set_free(&mut self, key: u32) {
        self.node_mut(key).held = Observed::Free;
        self.set_holder(key, FREE);
        self.set_unheld(key, true);
    }

    fn set_unheld(&mut self, key: u32, unheld: bool) {
        if !unheld && self.unheld.is_empty() {
            return;
        }
        let KeyNode { slot, id, .. } = self.node(key);
        let (slot, id) = (*slot, id.clone());
        let key = SlotKey { slot, key: id };
        match unheld {
            true => self.unheld.insert(key),
            false => self.unheld.remove(&key),
        };
    }

    /// The database, or every one, has lost its locks or got others. O(1): each key notices at the next visit.
    pub(crate) fn forget_holders(&mut self, db: Option<Db>) {
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

    fn set_holder(&mut self, key: u32, holder: u64) {
        let before = self.node(key).holder;
        if before == holder {
            return;
        }
        if before != FREE {
            tree::remove::<Holder>(&mut self.nodes, &mut self.holders, key);
        }
        self.node_mut(key).holder = holder;
        if holder != FREE {
            tree::insert::<Holder>(&mut self.nodes, &mut self.holders, key);
        }
    }

    /// The keys that a single owner holds, or held recently, whose task has that hash.
    pub(crate) fn held_by(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.with_holder(hash.max(SHARED + 1))
    }

    /// The keys that several owners hold, or held recently.
    pub(crate) fn shared(&self) -> impl Iterator<Item = u32> {
        self.with_holder(SHARED)
    }

    fn with_holder(&self, holder: u64) -> impl Iterator<Item = u32> {
        let mut at = tree::first_from::<Holder>(&self.nodes, self.holders, |key| {
            self.node(key).holder >= holder
        });
        std::iter::from_fn(move || {
            let found = (at != NIL && self.node(at).holder == holder).then_some(at)?;
            at = tree::next::<Holder>(&self.nodes, at);
            Some(found)
        })
    }
}

/// The keys with waiters, in an order that can be walked a few keys at a time: by slot. A walk remembers the last key that it visited and
/// continues after it, whatever came or went meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct WaitingKeys<'a>(pub(super) &'a Keys);

impl<'a> WaitingKeys<'a> {
    /// The slots of them all.
    pub fn slots(self) -> &'a SlotSet {
        &self.0.slots
    }

    /// The first one after `last`, or the first of all.
    pub fn after(self, last: Option<&SlotKey>) -> Option<SlotKey> {
        let keys = self.0;
        let found = tree::first_from::<Slot>(&keys.nodes, keys.by_slot, |key| {
            let node = keys.node(key);
            last.is_none_or(|last| (last.slot, &last.key) < (node.slot, &node.id))
        });
        keys.slot_key(found)
    }

    /// The first one after `last`, or the first of all, of those that nobody holds as far as is known.
    pub fn unheld_after(self, last: Option<&SlotKey>) -> Option<SlotKey> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = self.0.unheld.range((from, Bound::Unbounded));
        found.next().cloned()
    }

    /// The first one of `slot`.
    pub fn first_of(self, slot: u16) -> Option<SlotKey> {
        self.0.first_of(slot)
    }
}

impl Keys {
    fn first_of(&self, slot: u16) -> Option<SlotKey> {
        let found =
            tree::first_from::<Slot>(&self.nodes, self.by_slot, |key| self.node(key).slot >= slot);
        self.slot_key(found).filter(|found| found.slot == slot)
    }

    fn slot_key(&self, key: u32) -> Option<SlotKey> {
        let node = (key != NIL).then(|| self.node(key))?;
        Some(SlotKey {
            slot: node.slot,
            key: node.id.clone(),
        })
    }
}

impl Forest<Slot> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].slots
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].slots
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (&self.slab[one], &self.slab[other]);
        (one.slot, &one.id).cmp(&(other.slot, &other.id))
    }
}

impl Chained<Name> for Nodes {
    fn link(&self, slot: u32) -> u32 {
        self.slab[slot].link
    }

    fn set_link(&mut self, slot: u32, link: u32) {
        self.slab[slot].link = link;
    }

    fn hash(&self, slot: u32) -> u64 {
        self.hasher.hash_one(self.slab[slot].id.as_ref())
    }
}

impl Forest<Holder> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].holders
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].holders
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let by_holder = self.slab[one].holder.cmp(&self.slab[other].holder);
        by_holder.then(one.cmp(&other))
    }
}

impl Forest<Deadline> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].deadlines
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].deadlines
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (&self.slab[one], &self.slab[other]);
        (one.deadline, &one.id).cmp(&(other.deadline, &other.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Lock;
    use crate::owner::OwnerRef;
    use crate::stake::{Stake, Touched};
    use crate::types::Token;

    #[test]
    fn a_database_is_forgotten_with_its_last_waiter() {
        let mut keys = Keys::default();
        for db in (0..100).map(Db) {
            let key = keys.find_or_insert(KeyRef { db, name: b"key" });
            keys.forget_holders(Some(db));
            keys.remove(key);
            keys.forget_holders(Some(db));
        }
        assert!(keys.databases.is_empty(), "{:?}", keys.databases);
    }

    #[test]
    fn the_holders_of_a_changed_database_are_rechecked_once() {
        let mut keys = Keys::default();
        let key = |name| KeyRef { db: Db(0), name };
        let (one, other) = (
            keys.find_or_insert(key(b"a")),
            keys.find_or_insert(key(b"b")),
        );
        assert!(keys.take_unsettled(one).is_empty());
        keys.forget_holders(Some(Db(0)));
        let late = keys.find_or_insert(key(b"c"));
        assert!(
            keys.take_unsettled(late).is_empty(),
            "it came after the change"
        );
        for changed in [one, other] {
            keys.observe(changed, Observed::Free, |_| 0);
            let unsettled = keys.take_unsettled(changed);
            assert!(matches!(unsettled.holders, HoldersToRecheck::All));
            assert!(keys.take_unsettled(changed).is_empty());
        }
    }

    #[test]
    fn keys_that_nobody_holds_are_found_until_somebody_does_or_nobody_waits() {
        let unheld = |keys: &Keys| {
            let mut last = None;
            std::iter::from_fn(|| {
                last = WaitingKeys(keys).unheld_after(last.as_ref());
                last.clone()
            })
            .count()
        };
        let mut keys = Keys::default();
        let key = keys.find_or_insert(KeyRef {
            db: Db(0),
            name: b"a",
        });
        let other = keys.find_or_insert(KeyRef {
            db: Db(1),
            name: b"a",
        });
        let held = Lock::free().observe();
        keys.observe(key, held.clone(), |_| 0);
        assert_eq!(unheld(&keys), 1);
        keys.observe(other, held, |_| 0);
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
        keys.observe(key, lock.observe(), |_| 0);
        assert_eq!(unheld(&keys), 1);
        keys.set_free(key);
        assert_eq!(unheld(&keys), 2);
        for key in [key, other] {
            keys.remove(key);
        }
        assert_eq!(unheld(&keys), 0);
    }
}
