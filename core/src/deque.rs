//! A queue that grows and shrinks by chunks, so that no step copies a long queue.

use std::collections::VecDeque;

/// Elements in a chunk.
const CHUNK: usize = 256;

/// A double-ended queue in which no push stalls the server, however many elements clients have put there.
#[derive(Debug)]
pub struct Deque<T> {
    /// A chunk is empty only if it is the only one.
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
}

impl<T> Default for Deque<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deque<T> {
    /// It is empty.
    pub const fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            len: 0,
        }
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// It is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first one.
    pub fn front(&self) -> Option<&T> {
        self.chunks.front()?.front()
    }

    /// The first one, to be changed.
    pub fn front_mut(&mut self) -> Option<&mut T> {
        self.chunks.front_mut()?.front_mut()
    }

    /// The last one.
    pub fn back(&self) -> Option<&T> {
        self.chunks.back()?.back()
    }

    /// The last one, to be changed.
    pub fn back_mut(&mut self) -> Option<&mut T> {
        self.chunks.back_mut()?.back_mut()
    }

    /// All elements, from the first to the last.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Appends `thing`.
    pub fn push_back(&mut self, thing: T) {
        self.len += 1;
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK => last.push_back(thing),
            last => {
                // A short queue takes no more memory than it needs.
                let room = if last.is_some() { CHUNK } else { 0 };
                let mut chunk = VecDeque::with_capacity(room);
                chunk.push_back(thing);
                self.chunks.push_back(chunk);
            }
        }
    }

    /// Removes the first one.
    pub fn pop_front(&mut self) -> Option<T> {
        let first = self.chunks.front_mut()?;
        let thing = first.pop_front()?;
        self.len -= 1;
        if first.is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_front();
            self.give_room_back();
        }
        Some(thing)
    }

    /// Removes the last one.
    pub fn pop_back(&mut self) -> Option<T> {
        let last = self.chunks.back_mut()?;
        let thing = last.pop_back()?;
        self.len -= 1;
        if last.is_empty() && self.chunks.len() > 1 {
            self.chunks.pop_back();
            self.give_room_back();
        }
        Some(thing)
    }

    fn give_room_back(&mut self) {
        if self.chunks.capacity() > 4 * self.chunks.len().max(CHUNK) {
            self.chunks.shrink_to(2 * self.chunks.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_out_in_order_from_either_end() {
        let mut deque = Deque::new();
        for n in 0..10_000 {
            deque.push_back(n);
            assert_eq!((deque.back(), deque.len()), (Some(&n), n + 1));
        }
        assert!(deque.iter().copied().eq(0..10_000));
        for n in 0..5_000 {
            assert_eq!(deque.front(), Some(&n));
            assert_eq!(deque.pop_front(), Some(n));
            assert_eq!(deque.pop_back(), Some(9_999 - n));
        }
        assert!(deque.is_empty());
        assert_eq!((deque.pop_front(), deque.pop_back()), (None, None));
        deque.push_back(1);
        assert_eq!((deque.front(), deque.back()), (Some(&1), Some(&1)));
    }

    #[test]
    fn a_crowd_that_has_left_frees_its_memory() {
        let mut deque = Deque::new();
        for n in 0..1_000_000 {
            deque.push_back(n);
        }
        assert!(!deque.is_empty());
        assert_eq!(deque.chunks.len(), 1_000_000_usize.div_ceil(CHUNK));
        while deque.pop_front().is_some() {}
        assert_eq!(deque.chunks.len(), 1);
        assert!(deque.chunks.capacity() <= 4 * CHUNK);
        assert!(deque.chunks[0].capacity() <= CHUNK);
    }
}
