//! The names of keys.

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
