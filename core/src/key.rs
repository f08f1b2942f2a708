//! Which key.

use std::rc::Rc;

/// The number of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Db(pub u32);

/// A key, borrowed: its database and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef<'a> {
    /// The database.
    pub db: Db,
    /// Any bytes.
    pub name: &'a [u8],
}

/// A key: its database and its name, which clones share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The database.
    pub db: Db,
    /// Any bytes.
    pub name: Rc<[u8]>,
}

/// The keys of a request. Clones share their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyList {
    /// One key.
    One(KeyId),
    /// Keys that the request takes at once, at least one, in the order in which it names them.
    Several(Rc<[KeyId]>),
}

impl KeyList {
    /// A request takes at most so many keys at once.
    pub const MOST: usize = 16;

    /// All of them.
    pub fn as_slice(&self) -> &[KeyId] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Several(keys) => keys,
        }
    }

    /// The first one, which an answer names.
    pub fn first(&self) -> &KeyId {
        match self {
            Self::One(key) => key,
            Self::Several(keys) => &keys[0],
        }
    }

    /// All of them, if the request takes them at once.
    pub fn several(&self) -> Option<&[KeyId]> {
        match self {
            Self::One(_) => None,
            Self::Several(keys) => Some(keys),
        }
    }

    /// These are the same keys, in whatever order. None is named twice.
    pub fn are(&self, keys: &[KeyId]) -> bool {
        let own = self.as_slice();
        own.len() == keys.len() && own.iter().all(|key| keys.contains(key))
    }
}

impl KeyRef<'_> {
    /// A copy of its own.
    pub fn to_id(self) -> KeyId {
        KeyId {
            db: self.db,
            name: self.name.into(),
        }
    }
}

impl KeyId {
    /// Borrowed.
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef {
            db: self.db,
            name: &self.name,
        }
    }
}
