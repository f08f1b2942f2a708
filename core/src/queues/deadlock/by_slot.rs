//! Tables by slot. The server gives the slots out itself, one after the other, so nobody can make them
//! collide, and a multiplication scatters them well enough.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type BySlot<T> = HashMap<u32, T, BuildHasherDefault<SlotHasher>>;
pub(super) type Slots = HashSet<u32, BuildHasherDefault<SlotHasher>>;

#[derive(Default)]
pub(super) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, slot: u32) {
        // Two to the 64th by the golden ratio (Knuth, volume 3, section 6.4).
        let product = (self.0 ^ u64::from(slot)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
