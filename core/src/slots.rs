//! The slots of a cluster, and keys in the order of their slots.

use crate::key::KeyId;

/// How many slots a cluster has.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: CRC16 (XMODEM) of its name, or of the first `{tag}` in it that is not empty,
/// as the Redis Cluster specification says.
pub fn slot_of(name: &[u8]) -> u16 {
    crc16(tag(name).unwrap_or(name)) % SLOTS
}

fn tag(name: &[u8]) -> Option<&[u8]> {
    let open = name.iter().position(|byte| *byte == b'{')? + 1;
    let len = name[open..].iter().position(|byte| *byte == b'}')?;
    (len > 0).then(|| &name[open..open + len])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = usize::from((crc >> 8) as u8 ^ byte);
        crc << 8 ^ CRC16[index]
    })
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// A key in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotKey {
    /// Its slot.
    pub slot: u16,
    /// Which.
    pub key: KeyId,
}

/// A set of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet(Vec<u64>);

impl SlotSet {
    const WORDS: usize = SLOTS as usize / 64;

    /// Adds `slot`; one out of range is left out.
    pub fn insert(&mut self, slot: u16) {
        self.0.resize(Self::WORDS, 0);
        if let Some(word) = self.0.get_mut(usize::from(slot) / 64) {
            *word |= 1 << (slot % 64);
        }
    }

    pub(crate) fn remove(&mut self, slot: u16) {
        if let Some(word) = self.0.get_mut(usize::from(slot) / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// It is one of them.
    pub fn contains(&self, slot: u16) -> bool {
        self.word(usize::from(slot) / 64) >> (slot % 64) & 1 == 1
    }

    fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Those that are not in `other`, in ascending order.
    pub fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u16> + 'a {
        let words = self.0.iter().enumerate();
        let words = words.map(|(index, word)| word & !other.word(index));
        (0..).step_by(64).zip(words).flat_map(|(first, word)| {
            let mut word = word;
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as u16)?;
                word &= word - 1;
                Some(first + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(
            slot_of(b"{user1000}.following"),
            slot_of(b"{user1000}.followers")
        );
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
    }

    #[test]
    fn a_set_knows_its_slots() {
        let (mut all, mut some) = (SlotSet::default(), SlotSet::default());
        for slot in [0, 63, 64, 5_000, SLOTS - 1] {
            all.insert(slot);
        }
        all.insert(SLOTS);
        some.insert(64);
        assert_eq!(
            all.without(&some).collect::<Vec<_>>(),
            [0, 63, 5_000, SLOTS - 1]
        );
        assert!(all.contains(63) && !all.contains(62) && !all.contains(SLOTS));
        for slot in [63, 5_000, 5_001, SLOTS] {
            all.remove(slot);
        }
        let left = all.without(&SlotSet::default()).collect::<Vec<_>>();
        assert_eq!(left, [0, 64, SLOTS - 1]);
    }
}
