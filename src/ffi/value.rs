//! What a key of the module's type holds.

use std::cell::Cell;

use mortise_core::{LeaseId, Lock};

/// The value of a key of type `mort-lock`. Plain data: it may be dropped on any thread.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) lock: Lock,
    /// Where its database's table keeps it; `None` while it does not.
    pub(crate) lease: Cell<Option<LeaseId>>,
    /// With how many holders the table counts it.
    pub(crate) counted: Cell<u32>,
}

impl Value {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            lock,
            lease: Cell::new(None),
            counted: Cell::new(0),
        }
    }
}
