//! Byte strings of which most are short: the names of keys and of owners.

use std::ops::Deref;

/// Any bytes. Up to 22 of them live in the value itself, so that a short name needs no allocation.
#[derive(Clone, Debug)]
pub struct ShortBytes(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; ShortBytes::INLINE],
    },
    Heap(Box<[u8]>),
}

// With the length and the tag, three words. An `Owner` puts its own tag beside theirs.
const _: () = assert!(size_of::<ShortBytes>() == 24 && size_of::<Option<ShortBytes>>() == 24);

impl ShortBytes {
    const INLINE: usize = 22;

    /// Bytes it has allocated outside itself.
    pub fn heap_size(&self) -> usize {
        Self::heap_size_of(self.len())
    }

    /// Bytes that one of `len` bytes allocates outside itself.
    pub const fn heap_size_of(len: usize) -> usize {
        if len > Self::INLINE { len } else { 0 }
    }
}

impl From<&[u8]> for ShortBytes {
    fn from(bytes: &[u8]) -> Self {
        let mut room = [0; Self::INLINE];
        Self(match room.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                // At most INLINE bytes, so the length fits.
                let len = bytes.len() as u8;
                Repr::Inline { len, bytes: room }
            }
            None => Repr::Heap(bytes.into()),
        })
    }
}

impl Deref for ShortBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_read_back_unchanged_and_only_long_ones_allocate() {
        for len in 0..=64 {
            let bytes = vec![len as u8; len];
            let short = ShortBytes::from(&*bytes);
            assert_eq!(*short, *bytes);
            assert_eq!(short.heap_size(), if len > 22 { len } else { 0 });
        }
    }
}
