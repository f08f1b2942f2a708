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
