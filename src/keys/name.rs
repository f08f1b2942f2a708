//! The names of keys.

use std::ops::Deref;

use mortise_core::KeyId;

/// The name of a key.
pub(crate) type Name = Box<[u8]>;

/// A key as the queues know it.
pub(crate) fn key_id(db: i32, name: &[u8]) -> KeyId {
    KeyId {
        db: db as u32,
        name: name.into(),
    }
}

/// The name of a key as the table of locks keeps it. Up to 22 bytes of it live in the value itself, so that most locks
/// need no allocation for theirs.
#[derive(Clone, Debug)]
pub(crate) struct ShortName(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Inline {
        len: u8,
        bytes: [u8; ShortName::INLINE],
    },
    Heap(Box<[u8]>),
}

impl ShortName {
    /// With the length and the tag, three words.
    const INLINE: usize = 22;

    /// Bytes that a name of `len` bytes allocates outside itself.
    pub(crate) const fn heap_size(len: usize) -> usize {
        if len > Self::INLINE { len } else { 0 }
    }
}

impl From<&[u8]> for ShortName {
    fn from(name: &[u8]) -> Self {
        let mut bytes = [0; Self::INLINE];
        Self(match bytes.get_mut(..name.len()) {
            Some(room) => {
                room.copy_from_slice(name);
                // At most INLINE bytes, so the length fits.
                let len = name.len() as u8;
                Repr::Inline { len, bytes }
            }
            None => Repr::Heap(name.into()),
        })
    }
}

impl Deref for ShortName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(bytes) => bytes,
        }
    }
}
