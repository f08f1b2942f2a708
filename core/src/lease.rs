//! Which lock's lease runs out next.
//!
//! A ring of buckets, each 32 ms wide, covers the next four minutes; what ends later waits in a
//! sorted map of buckets that move into the ring as time passes. A bucket is a doubly linked list
//! through a slab, so that inserting and removing is O(1) within the ring and O(log buckets)
//! beyond it, and a release leaves nothing behind. Unlike the hierarchical wheels of Varghese and
//! Lauck (1987) nothing cascades entry by entry: a million leases that end together are never
//! touched before they end.
//!
//! The slab grows by chunks: no insert ever copies what is there.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use crate::types::Instant;

/// Width of a bucket, as a power of two in milliseconds.
const TICK_BITS: u32 = 5;
/// Buckets in the ring: 8192 × 32 ms = 262 s.
const RING: u64 = 8192;
/// Slots in a chunk of the slab.
const CHUNK: usize = 1024;
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
    /// First slot of each bucket of the ring, by tick modulo [`RING`]. Allocated at first use.
    ring: Vec<u32>,
    /// Buckets of the ring that hold entries.
    occupied: usize,
    /// First slot of each bucket at or past `cursor + RING`.
    beyond: BTreeMap<u64, u32>,
    /// The earliest tick whose bucket may hold entries.
    cursor: u64,
    chunks: Vec<Vec<Slot<K>>>,
    free: u32,
    len: usize,
}

#[derive(Debug)]
struct Slot<K> {
    /// The bucket it is listed in.
    tick: u64,
    prev: u32,
    next: u32,
    /// `None` in the free list.
    key: Option<K>,
}

impl<K> Default for LeaseOrder<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> LeaseOrder<K> {
    /// Bytes an entry takes beside what its key has allocated.
    pub const ENTRY_SIZE: usize = size_of::<Slot<K>>();

    /// Nothing to run out.
    pub const fn new() -> Self {
        Self {
            ring: Vec::new(),
            occupied: 0,
            beyond: BTreeMap::new(),
            cursor: 0,
            chunks: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `key`, to be found by [`Self::due`] within 32 ms of `deadline`.
    pub fn insert(&mut self, now: Instant, deadline: Instant, key: K) -> LeaseId {
        if self.ring.is_empty() {
            self.ring = vec![NIL; RING as usize];
        }
        if self.len == 0 {
            // Nothing was waiting, so no bucket up to now has to be passed one by one.
            self.cursor = tick(now);
        }
        let id = self.take_slot(key);
        self.link(id, tick(deadline));
        self.len += 1;
        LeaseId::of(id)
    }

    /// The key of `id`, if there is such an entry.
    pub fn get(&self, id: LeaseId) -> Option<&K> {
        let chunk = self.chunks.get(id.slot() as usize / CHUNK)?;
        chunk.get(id.slot() as usize % CHUNK)?.key.as_ref()
    }

    /// Gives `id` another deadline. Does nothing if there is no such entry.
    pub fn reschedule(&mut self, id: LeaseId, deadline: Instant) {
        if self.get(id).is_none() {
            return;
        }
        let to = tick(deadline).max(self.cursor);
        if self.slot(id.slot()).tick != to {
            self.unlink(id.slot());
            self.link(id.slot(), to);
        }
    }

    /// Takes the entry out. `None` if there is no such entry.
    pub fn remove(&mut self, id: LeaseId) -> Option<K> {
        self.get(id)?;
        self.unlink(id.slot());
        self.len -= 1;
        let free = self.free;
        let slot = self.slot_mut(id.slot());
        let key = slot.key.take();
        slot.next = free;
        self.free = id.slot();
        if self.len == 0 {
            self.give_back_memory();
        }
        key
    }

    /// An entry whose deadline has passed, by up to 32 ms or the time since the last call. The
    /// caller removes or reschedules it; until then the same one is answered again.
    pub fn due(&mut self, now: Instant) -> Option<(LeaseId, &K)> {
        if self.len == 0 {
            return None;
        }
        // Every deadline in an earlier bucket has passed; those of the current one may not have.
        while self.cursor < tick(now) {
            let head = self.ring[ring_index(self.cursor)];
            if head != NIL {
                let key = self.chunks[head as usize / CHUNK][head as usize % CHUNK]
                    .key
                    .as_ref()?;
                return Some((LeaseId::of(head), key));
            }
            self.advance(tick(now));
        }
        None
    }

    /// Removes every entry.
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Drops some of the entries of an order that is not used any more. False if none is left.
    pub fn drop_some(&mut self) -> bool {
        self.chunks.pop().is_some()
    }

    /// Bytes allocated, keys not included.
    pub fn heap_size(&self) -> usize {
        self.ring.capacity() * size_of::<u32>()
            + self.chunks.len() * CHUNK * size_of::<Slot<K>>()
            + self.beyond.len() * (size_of::<(u64, u32)>() * 4 / 3)
    }

    /// Past an empty bucket, and past an empty ring in one stride, but no further than `to`:
    /// after a long time without calls (the machine was suspended, a replica was promoted) the
    /// buckets between are not worth a look each. Those that come into the ring's reach move in.
    fn advance(&mut self, to: u64) {
        self.cursor = match self.beyond.first_key_value() {
            _ if self.occupied > 0 => self.cursor + 1,
            Some((first, _)) => to.min(*first),
            None => to,
        };
        while let Some(bucket) = self.beyond.first_entry()
            && *bucket.key() < self.cursor + RING
        {
            let (tick, head) = bucket.remove_entry();
            self.ring[ring_index(tick)] = head;
            self.occupied += 1;
        }
    }

    /// Into the bucket of `tick`; one that was passed already counts as the current one.
    fn link(&mut self, id: u32, tick: u64) {
        let tick = tick.max(self.cursor);
        let head = if tick < self.cursor + RING {
            let head = &mut self.ring[ring_index(tick)];
            self.occupied += usize::from(*head == NIL);
            head
        } else {
            self.beyond.entry(tick).or_insert(NIL)
        };
        let next = std::mem::replace(head, id);
        if next != NIL {
            self.slot_mut(next).prev = id;
        }
        let slot = self.slot_mut(id);
        (slot.tick, slot.prev, slot.next) = (tick, NIL, next);
    }

    fn unlink(&mut self, id: u32) {
        let Slot {
            tick, prev, next, ..
        } = *self.slot(id);
        if next != NIL {
            self.slot_mut(next).prev = prev;
        }
        if prev != NIL {
            self.slot_mut(prev).next = next;
        } else if tick < self.cursor + RING {
            self.ring[ring_index(tick)] = next;
            self.occupied -= usize::from(next == NIL);
        } else if next != NIL {
            self.beyond.insert(tick, next);
        } else {
            self.beyond.remove(&tick);
        }
    }

    fn take_slot(&mut self, key: K) -> u32 {
        let slot = Slot {
            tick: 0,
            prev: NIL,
            next: NIL,
            key: Some(key),
        };
        if self.free != NIL {
            let id = self.free;
            self.free = self.slot(id).next;
            *self.slot_mut(id) = slot;
            return id;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("pushed above");
        chunk.push(slot);
        // Four billion entries would be 128 GB of slots, far past what a server can hold.
        (full + chunk.len() - 1) as u32
    }

    /// With nothing left, all but the first chunk goes.
    fn give_back_memory(&mut self) {
        if self.chunks.len() > 1 {
            self.chunks.truncate(1);
            self.chunks[0].clear();
            self.free = NIL;
        }
    }

    fn slot(&self, id: u32) -> &Slot<K> {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }

    fn slot_mut(&mut self, id: u32) -> &mut Slot<K> {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

fn tick(at: Instant) -> u64 {
    at.as_millis() >> TICK_BITS
}

fn ring_index(tick: u64) -> usize {
    (tick % RING) as usize
}
