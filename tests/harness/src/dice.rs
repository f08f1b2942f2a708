//! Random choices that can be repeated.

/// Random numbers that are the same in every run: SplitMix64, by Sebastiano Vigna.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that return the same numbers as all others of this `seed`.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `sides`.
    ///
    /// # Panics
    /// If there are no sides.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut face = self.0;
        face = (face ^ (face >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        face = (face ^ (face >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (face ^ (face >> 31)) % sides
    }

    /// One of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len() as u64) as usize]
    }
}
