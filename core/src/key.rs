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

/// The keys that one request takes at once, in the order in which it names them. Clones share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyList(Rc<Vec<KeyId>>);

impl KeyList {
    /// A request takes at most so many keys at once.
    pub const MOST: usize = 16;

    /// These keys, at least one.
    pub fn new(keys: Vec<KeyId>) -> Self {
        Self(Rc::new(keys))
    }

    /// All of them.
    pub fn as_slice(&self) -> &[KeyId] {
        &self.0
    }

    /// The other list names the same keys, in whatever order. None is named twice.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().all(|key| other.0.contains(key))
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
