//! Which key.

use std::rc::Rc;

/// A key: its database and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId {
    /// The number of the database.
    pub db: u32,
    /// Any bytes.
    pub name: Rc<[u8]>,
}
