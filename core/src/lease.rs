//! Locks in the order in which their leases end.
//!
//! Leases that end within the same 32 ms share a bucket: a doubly linked list through a slab. A sorted map has the first entry of each bucket. So an
//! insert or a remove costs O(log buckets), however many locks there are, and a release leaves nothing behind.

mod tables;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::slab::Slab;
use crate::types::Instant;

pub use tables::{LeaseTables, Listed};

/// Width of a bucket, as a power of two in milliseconds.
const TICK_BITS: u32 = 5;
/// The end of a list.
const NIL: u32 = u32::MAX;

/// Where an entry is kept. Valid until the entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId(NonZeroU32);

impl LeaseId {
    /// One more than the slot, so that an optional id takes no more room than an id.
    fn of(slot: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(slot))
    }

    fn slot(self) -> u32 {
        self.0.get() - 1
    }
}

/// Entries in the order of their deadlines, to the width of a bucket (32 ms).
#[derive(Debug)]
pub struct LeaseOrder<K> {
    /// The first slot of each bucket, by tick.
    buckets: BTreeMap<u64, u32>,
    entries: Slab<Entry<K>>,
}

#[derive(Debug)]
struct Entry<K> {
    /// The bucket it is listed in.
    tick: u64,
    prev: u32,
    next: u32,
    key: K,
}

impl<K> Default for LeaseOrder<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> LeaseOrder<K> {
    /// Bytes an entry takes beside what its key has allocated.
    pub const ENTRY_SIZE: usize = Slab::<Entry<K>>::SLOT_SIZE;

    /// An order without entries.
    pub const fn new() -> Self {
        Self {
            buckets: BTreeMap::new(),
            entries: Slab::new(),
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds `key`, which [`Self::due`] finds within 32 ms of `deadline`.
    pub fn insert(&mut self, deadline: Instant, key: K) -> LeaseId {
        let tick = tick(deadline);
        let id = self.entries.insert(Entry {
            tick,
            prev: NIL,
            next: NIL,
            key,
        });
        self.list(id, tick);
        LeaseId::of(id)
    }

    /// Makes the entry, which is in no list, the first of the bucket.
    fn list(&mut self, id: u32, tick: u64) {
        let next = self.buckets.insert(tick, id).unwrap_or(NIL);
        let entry = &mut self.entries[id];
        (entry.tick, entry.prev, entry.next) = (tick, NIL, next);
        if next != NIL {
            self.entries[next].prev = id;
        }
    }

    /// The key of `id`, if there is such an entry.
    pub fn get(&self, id: LeaseId) -> Option<&K> {
        self.entries.get(id.slot()).map(|entry| &entry.key)
    }

    /// Gives `id` another deadline. Does nothing if there is no such entry.
    pub fn reschedule(&mut self, id: LeaseId, deadline: Instant) {
        let (id, to) = (id.slot(), tick(deadline));
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let (from, prev, next) = (entry.tick, entry.prev, entry.next);
        if from != to {
            self.close_gap(from, prev, next);
            self.list(id, to);
        }
    }

    /// Removes the entry. `None` if there is no such entry.
    pub fn remove(&mut self, id: LeaseId) -> Option<K> {
        let Entry {
            tick,
            prev,
            next,
            key,
        } = self.entries.remove(id.slot())?;
        self.close_gap(tick, prev, next);
        Some(key)
    }

    /// An entry leaves the list of its bucket.
    fn close_gap(&mut self, tick: u64, prev: u32, next: u32) {
        if next != NIL {
            self.entries[next].prev = prev;
        }
        if prev != NIL {
            self.entries[prev].next = next;
        } else if next != NIL {
            self.buckets.insert(tick, next);
        } else {
            self.buckets.remove(&tick);
        }
    }

    /// An entry whose deadline has passed, by up to 32 ms. The caller removes or reschedules it; until then each call returns the same one.
    pub fn due(&self, now: Instant) -> Option<(LeaseId, &K)> {
        // Every deadline in an earlier bucket has passed; those of the current one may not have.
        let (first, id) = self.buckets.first_key_value()?;
        (*first < tick(now)).then(|| (LeaseId::of(*id), &self.entries[*id].key))
    }

    /// Drops some of the entries of an order that is no longer used. False if none is left.
    pub fn drop_some(&mut self) -> bool {
        self.entries.drop_some()
    }
}

fn tick(at: Instant) -> u64 {
    at.as_millis() >> TICK_BITS
}
