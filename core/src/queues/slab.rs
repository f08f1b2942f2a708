//! Room for many things of one kind, each in a slot whose number stays its own until it is taken
//! out.
//!
//! It grows and shrinks by small chunks: nothing is ever copied because there are many, and what
//! a crowd needed is given back though a few of it stay.

use std::ops::{Index, IndexMut};

/// Slots in a chunk: as many as a word has bits.
const CHUNK: u32 = 32;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Chunk<T>>,
    /// Chunks that have, or had, free slots: a search for one checks.
    roomy: Vec<u32>,
    /// Chunks that were given back.
    gone: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
struct Chunk<T> {
    /// Empty if it was given back.
    slots: Vec<Option<T>>,
    /// One bit for each slot that is taken.
    taken: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            roomy: Vec::new(),
            gone: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot of `value` from now on.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let at = self.chunk_with_room();
        let chunk = &mut self.chunks[at as usize];
        let free = chunk.taken.trailing_ones();
        chunk.slots[free as usize] = Some(value);
        chunk.taken |= 1 << free;
        if chunk.taken == u32::MAX {
            self.roomy.pop();
        }
        self.len += 1;
        at * CHUNK + free
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let at = slot / CHUNK;
        let chunk = self.chunks.get_mut(at as usize)?;
        let value = chunk.slots.get_mut((slot % CHUNK) as usize)?.take()?;
        if chunk.taken == u32::MAX {
            self.roomy.push(at);
        }
        chunk.taken &= !(1 << (slot % CHUNK));
        let emptied = chunk.taken == 0;
        self.len -= 1;
        // A single chunk stays, because mostly one waits after the other.
        if self.len == 0 && self.chunks.len() > 1 {
            *self = Self::default();
        } else if emptied && self.chunks.len() > 1 {
            self.chunks[at as usize].slots = Vec::new();
            self.gone.push(at);
            self.shrink();
        }
        Some(value)
    }

    /// The first thing in slot `from` or behind it, and its slot.
    pub(crate) fn first_from(&self, from: u32) -> Option<(u32, &T)> {
        let mut slot = from;
        while let Some(chunk) = self.chunks.get((slot / CHUNK) as usize) {
            let behind = chunk.taken & (u32::MAX << (slot % CHUNK));
            let first = slot / CHUNK * CHUNK;
            if behind != 0 {
                let found = first + behind.trailing_zeros();
                return self.get(found).map(|value| (found, value));
            }
            slot = first + CHUNK;
        }
        None
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let (slot, value) = self.first_from(from)?;
            from = slot + 1;
            Some((slot, value))
        })
    }

    fn get(&self, slot: u32) -> Option<&T> {
        let chunk = self.chunks.get((slot / CHUNK) as usize)?;
        chunk.slots.get((slot % CHUNK) as usize)?.as_ref()
    }

    /// A chunk that has a free slot. It is the last one of those.
    fn chunk_with_room(&mut self) -> u32 {
        while let Some(&at) = self.roomy.last() {
            let chunk = self.chunks.get(at as usize);
            if chunk.is_some_and(|chunk| !chunk.slots.is_empty() && chunk.taken != u32::MAX) {
                return at;
            }
            self.roomy.pop();
        }
        let mut slots = Vec::new();
        slots.resize_with(CHUNK as usize, || None);
        let chunk = Chunk { slots, taken: 0 };
        let at = loop {
            match self.gone.pop() {
                Some(at) if (at as usize) < self.chunks.len() => {
                    self.chunks[at as usize] = chunk;
                    break at;
                }
                Some(_) => {}
                None => {
                    self.chunks.push(chunk);
                    // Four billion things would be 600 GB, far past what a server can hold.
                    break (self.chunks.len() - 1) as u32;
                }
            }
        };
        self.roomy.push(at);
        at
    }

    /// Chunks that were given back at the end need no place in the list.
    fn shrink(&mut self) {
        if self.gone.len() * 2 < self.chunks.len() {
            return;
        }
        while self.chunks.last().is_some_and(|last| last.slots.is_empty()) {
            self.chunks.pop();
        }
        let len = self.chunks.len() as u32;
        self.gone.retain(|at| *at < len);
        self.roomy.retain(|at| *at < len);
        if self.chunks.capacity() > 4 * self.chunks.len() {
            self.chunks.shrink_to(2 * self.chunks.len());
            self.gone.shrink_to(2 * self.gone.len());
            self.roomy.shrink_to(2 * self.roomy.len());
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
        let chunk = &mut self.chunks[(slot / CHUNK) as usize];
        let value = chunk.slots[(slot % CHUNK) as usize].as_mut();
        value.expect("a slot that is taken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_stay_where_they_are_whatever_comes_and_goes() {
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
        assert_eq!(slab.iter().count(), slab.len());
    }

    #[test]
    fn what_a_crowd_took_is_given_back_though_a_few_of_it_stay() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..10_000).map(|n| slab.insert(n)).collect();
        for slot in slots.iter().filter(|slot| **slot % 5_000 != 7) {
            slab.remove(*slot);
        }
        let kept = slab.chunks.iter().filter(|chunk| !chunk.slots.is_empty());
        assert_eq!(kept.count(), 2);
        for slot in slots {
            slab.remove(slot);
        }
        assert_eq!((slab.len(), slab.chunks.capacity()), (0, 0));
    }

    #[test]
    fn a_free_slot_is_used_again_before_more_room_is_made() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..320).map(|n| slab.insert(n)).collect();
        for round in 0..100 {
            for slot in slots.iter().skip(round % 7).step_by(7) {
                slab.remove(*slot);
            }
            while slab.len() < 320 {
                slab.insert(0);
            }
            assert_eq!(slab.chunks.len(), 10);
            assert!(slab.roomy.len() <= 20);
        }
    }
}
