//! Locks in the order in which their leases end.
//!
//! A ring of buckets, each 32 ms wide, covers the next four minutes. Later deadlines lie in a sorted map of buckets, which move
//! into the ring as time passes. A bucket is a doubly linked list through a slab. So an insert or a remove is O(1) within the
//! ring and O(log buckets) beyond it, and a release leaves nothing behind. Unlike in the hierarchical wheels of Varghese and
//! Lauck (1987), no entry cascades: a million leases that end together are not touched before they end.
//!
//! A sparse order keeps its buckets in the sorted map alone.

mod tables;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::slab::Slab;
use crate::types::Instant;

pub use tables::{LeaseTables, Listed};

/// Width of a bucket, as a power of two in milliseconds.
const TICK_BITS: u32 = 5;
/// Buckets in the ring: 8192 × 32 ms = 262 s.
const RING: u64 = 8192;
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
    buckets: Buckets,
    entries: Slab<Entry<K>>,
    /// It has no ring.
    sparse: bool,
}

#[derive(Debug)]
struct Entry<K> {
    /// The bucket it is listed in.
    tick: u64,
    prev: u32,
    next: u32,
    key: K,
}

/// Where the lists begin.
#[derive(Debug)]
struct Buckets {
    /// First slot of each bucket of the ring, by tick modulo [`RING`]. Empty if there is no ring: a sparse order has none, and others have
    /// one from the first entry on.
    ring: Vec<u32>,
    /// Buckets of the ring that hold entries.
    occupied: usize,
    /// First slot of each bucket past the ring's reach.
    beyond: BTreeMap<u64, u32>,
    /// The earliest tick whose bucket may hold entries.
    cursor: u64,
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
        Self::with(false)
    }

    /// The same, for one of many orders: it takes some hundred bytes instead of 32 KB while it has few entries, and an insert or a remove is
    /// O(log n).
    pub const fn sparse() -> Self {
        Self::with(true)
    }

    const fn with(sparse: bool) -> Self {
        Self {
            buckets: Buckets::new(),
            entries: Slab::new(),
            sparse,
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
    pub fn insert(&mut self, now: Instant, deadline: Instant, key: K) -> LeaseId {
        let buckets = &mut self.buckets;
        if self.entries.len() == 0 {
            // There was no entry, so skip all buckets up to now at once.
            buckets.cursor = tick(now);
        }
        if buckets.ring.is_empty() && !self.sparse {
            buckets.add_ring();
        }
        let tick = buckets.bucket_of(deadline);
        let mut next = NIL;
        let id = self.entries.insert_with(|id| {
            next = buckets.push(tick, id);
            Entry {
                tick,
                prev: NIL,
                next,
                key,
            }
        });
        if next != NIL {
            self.entries[next].prev = id;
        }
        LeaseId::of(id)
    }

    /// The key of `id`, if there is such an entry.
    pub fn get(&self, id: LeaseId) -> Option<&K> {
        self.entries.get(id.slot()).map(|entry| &entry.key)
    }

    /// Gives `id` another deadline. Does nothing if there is no such entry.
    pub fn reschedule(&mut self, id: LeaseId, deadline: Instant) {
        let id = id.slot();
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let (from, to) = (entry.tick, self.buckets.bucket_of(deadline));
        if from == to {
            return;
        }
        let (prev, next) = (entry.prev, entry.next);
        let first = self.buckets.push(to, id);
        (entry.tick, entry.prev, entry.next) = (to, NIL, first);
        if first != NIL {
            self.entries[first].prev = id;
        }
        self.close_gap(from, prev, next);
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

    /// An entry has left the list of its bucket.
    fn close_gap(&mut self, tick: u64, prev: u32, next: u32) {
        if next != NIL {
            self.entries[next].prev = prev;
        }
        if prev != NIL {
            self.entries[prev].next = next;
        } else {
            self.buckets.set_first(tick, next);
        }
    }

    /// An entry whose deadline has passed, by up to 32 ms or the time since the last call. The
    /// caller removes or reschedules it; until then each call returns the same one.
    pub fn due(&mut self, now: Instant) -> Option<(LeaseId, &K)> {
        if self.is_empty() {
            return None;
        }
        let id = self.buckets.due(now)?;
        Some((LeaseId::of(id), &self.entries[id].key))
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        *self = Self::with(self.sparse);
    }

    /// Drops some of the entries of an order that is no longer used. False if none is left.
    pub fn drop_some(&mut self) -> bool {
        self.entries.drop_some()
    }
}

impl Buckets {
    const fn new() -> Self {
        Self {
            ring: Vec::new(),
            occupied: 0,
            beyond: BTreeMap::new(),
            cursor: 0,
        }
    }

    #[cold]
    fn add_ring(&mut self) {
        self.ring = vec![NIL; RING as usize];
    }

    /// The first bucket after those that the ring reaches.
    fn end(&self) -> u64 {
        self.cursor + self.ring.len() as u64
    }

    /// The bucket for `deadline`; a bucket that was passed already counts as the current one.
    fn bucket_of(&self, deadline: Instant) -> u64 {
        tick(deadline).max(self.cursor)
    }

    /// Makes `id` the first in the bucket. Returns which one was first before.
    fn push(&mut self, tick: u64, id: u32) -> u32 {
        let first = if tick < self.end() {
            let first = &mut self.ring[ring_index(tick)];
            self.occupied += usize::from(*first == NIL);
            first
        } else {
            self.beyond.entry(tick).or_insert(NIL)
        };
        std::mem::replace(first, id)
    }

    /// The first one has left the bucket, and this one was the next.
    fn set_first(&mut self, tick: u64, next: u32) {
        if tick < self.end() {
            self.ring[ring_index(tick)] = next;
            self.occupied -= usize::from(next == NIL);
        } else if next != NIL {
            self.beyond.insert(tick, next);
        } else {
            self.beyond.remove(&tick);
        }
    }

    /// The first one of the first bucket that has passed.
    fn due(&mut self, now: Instant) -> Option<u32> {
        // Every deadline in an earlier bucket has passed; those of the current one may not have.
        let now = tick(now);
        if self.ring.is_empty() {
            let (tick, first) = self.beyond.first_key_value()?;
            self.cursor = now.min(*tick).max(self.cursor);
            return (*tick < now).then_some(*first);
        }
        while self.cursor < now {
            let first = self.ring[ring_index(self.cursor)];
            if first != NIL {
                return Some(first);
            }
            self.advance(now);
        }
        None
    }

    /// Passes an empty bucket, or an empty ring at once, but goes no further than `to`: after a long time without calls (the machine was
    /// suspended, a replica was promoted) there is no point in visiting each bucket.
    fn advance(&mut self, to: u64) {
        self.cursor = match self.beyond.first_key_value() {
            _ if self.occupied > 0 => self.cursor + 1,
            Some((first, _)) => to.min(*first),
            None => to,
        };
        self.move_into_ring();
    }

    /// Moves buckets into the ring that it reaches by now.
    fn move_into_ring(&mut self) {
        while let Some(bucket) = self.beyond.first_entry()
            && *bucket.key() < self.cursor + RING
        {
            let (tick, first) = bucket.remove_entry();
            self.ring[ring_index(tick)] = first;
            self.occupied += 1;
        }
    }
}

fn tick(at: Instant) -> u64 {
    at.as_millis() >> TICK_BITS
}

fn ring_index(tick: u64) -> usize {
    (tick % RING) as usize
}
