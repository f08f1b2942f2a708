//! All random choices of a run, from its seed.

use std::ops::RangeInclusive;

#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// SplitMix64.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = (*range.start(), *range.end());
        first + self.next() % (last - first + 1)
    }

    /// True this many times in a thousand.
    pub(crate) fn per_mille(&mut self, chances: u64) -> bool {
        self.next() % 1000 < chances
    }

    pub(crate) fn percent(&mut self, chances: u64) -> bool {
        self.per_mille(chances * 10)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }

    /// Another sequence, which later throws of this one do not change.
    pub(crate) fn branch(&mut self) -> Dice {
        Dice(self.next())
    }
}
