//! Memory for many values of one type. Each lies in a slot and keeps the slot's number until it is removed. A slab grows and shrinks by
//! small chunks. So no insert copies many values, and the memory of a crowd is freed even if a few of it stay.

use std::ops::{Index, IndexMut};

/// How many slots the first chunk begins with.
const FEW: usize = 4;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// The chunks with free slots, those included whose memory was given back.
    roomy: Vec<u32>,
    /// An empty chunk. One is kept, because mostly another value comes soon.
    spare: Option<u32>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// Fewer than a chunk has where few were ever taken; none if their memory was given back.
    slots: Vec<Option<T>>,
    /// One bit for each slot that is taken.
    taken: u64,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// Bytes of a slot.
    pub(crate) const SLOT_SIZE: usize = size_of::<Option<T>>();

    /// Slots in a chunk: as many as a word has bits, but fewer large ones.
    const CHUNK: u32 = if Self::SLOT_SIZE > 64 { 32 } else { 64 };

    /// All slots of a chunk are taken.
    const FULL: u64 = u64::MAX >> (u64::BITS - Self::CHUNK);

    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            roomy: Vec::new(),
            spare: None,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot of `value` from now on.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = match self.roomy.last() {
            Some(at) => *at,
            None => self.add_chunk(),
        };
        // A few slots are mostly all that the first chunk ever needs.
        let few = if at == 0 { FEW } else { Self::CHUNK as usize };
        let chunk = &mut self.chunks[at as usize];
        let free = chunk.taken.trailing_ones();
        if free as usize == chunk.slots.len() {
            let len = (2 * chunk.slots.len()).clamp(few, Self::CHUNK as usize);
            chunk.slots.resize_with(len, || None);
        }
        if self.spare == Some(at) {
            self.spare = None;
        }
        chunk.taken |= 1 << free;
        if chunk.taken == Self::FULL {
            self.roomy.pop();
        }
        self.len += 1;
        chunk.slots[free as usize] = Some(value);
        at * Self::CHUNK + free
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let at = slot / Self::CHUNK;
        let chunk = self.chunks.get_mut(at as usize)?;
        let value = chunk.slots.get_mut((slot % Self::CHUNK) as usize)?.take()?;
        if chunk.taken == Self::FULL {
            self.roomy.push(at);
        }
        chunk.taken &= !(1 << (slot % Self::CHUNK));
        let emptied = chunk.taken == 0;
        self.len -= 1;
        if emptied {
            self.keep_or_free(at);
        }
        Some(value)
    }

    /// Drops some of the values of a slab that is no longer used. False if none is left.
    pub(crate) fn drop_some(&mut self) -> bool {
        self.chunks.pop().is_some()
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let chunk = self.chunks.get((slot / Self::CHUNK) as usize)?;
        chunk.slots.get((slot % Self::CHUNK) as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let chunk = self.chunks.get_mut((slot / Self::CHUNK) as usize)?;
        chunk.slots.get_mut((slot % Self::CHUNK) as usize)?.as_mut()
    }

    #[cold]
    fn add_chunk(&mut self) -> u32 {
        // Four billion values would be at least 128 GB, far more than a server can hold.
        let at = self.chunks.len() as u32;
        let (slots, taken) = (Vec::new(), 0);
        self.chunks.push(Chunk { slots, taken });
        self.roomy.push(at);
        at
    }

    /// Nothing is left in the chunk.
    fn keep_or_free(&mut self, at: u32) {
        if self.spare.is_none() {
            self.spare = Some(at);
        } else {
            self.chunks[at as usize].slots = Vec::new();
        }
        if self.len == 0 && self.chunks.len() > 1 {
            *self = Self::new();
        }
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        self.get(slot).expect("a slot that is taken")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        self.get_mut(slot).expect("a slot that is taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Slab<T> {
        fn heap_size(&self) -> usize {
            let slots: usize = self.chunks.iter().map(|chunk| chunk.slots.capacity()).sum();
            slots * Self::SLOT_SIZE
                + self.chunks.capacity() * size_of::<Chunk<T>>()
                + self.roomy.capacity() * size_of::<u32>()
        }
    }

    #[test]
    fn entries_stay_in_place_when_others_come_and_go() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..1_000).map(|n| slab.insert(n)).collect();
        for (n, slot) in slots.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
            assert_eq!(slab.remove(*slot), Some(n));
            assert_eq!(slab.remove(*slot), None);
        }
        for n in 1_000..1_500 {
            slab.insert(n);
        }
        for (n, slot) in slots.iter().enumerate().step_by(3) {
            assert_eq!(slab[*slot], n);
        }
        assert_eq!(slab.len(), 334 + 500);
    }

    #[test]
    fn a_crowd_that_has_left_frees_its_memory_though_a_few_entries_stay() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..10_000).map(|n| slab.insert(n)).collect();
        for slot in slots.iter().filter(|slot| **slot % 5_000 != 7) {
            slab.remove(*slot);
        }
        let kept = slab.chunks.iter().filter(|chunk| !chunk.slots.is_empty());
        assert_eq!(kept.count(), 3, "two that are used, and a spare one");
        for slot in slots {
            slab.remove(slot);
        }
        assert_eq!((slab.len(), slab.chunks.len()), (0, 0));
        assert!(slab.heap_size() < 2_048, "{} bytes", slab.heap_size());
    }

    #[test]
    fn repeated_insert_and_remove_allocates_no_chunk() {
        let mut slab = Slab::default();
        for n in 0..3 * Slab::<u32>::CHUNK {
            slab.insert(n);
        }
        let one_more = slab.insert(0);
        for _ in 0..3 {
            let room = slab.heap_size();
            slab.remove(one_more);
            assert_eq!(slab.heap_size(), room);
            assert_eq!(slab.insert(0), one_more);
        }
    }

    #[test]
    fn a_few_entries_take_little_memory() {
        let mut slab = Slab::default();
        slab.insert(1_u64);
        assert!(slab.heap_size() < 256, "{} bytes", slab.heap_size());
    }

    #[test]
    fn a_free_slot_is_reused_before_more_are_allocated() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..320).map(|n| slab.insert(n)).collect();
        for round in 0..100 {
            for slot in slots.iter().skip(round % 7).step_by(7) {
                slab.remove(*slot);
            }
            while slab.len() < 320 {
                slab.insert(0);
            }
            assert_eq!(slab.chunks.len(), 5);
            assert!(slab.roomy.len() <= 5);
        }
    }
}
