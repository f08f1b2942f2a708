//! What a key of the module's type holds.

use std::cell::Cell;

use mortise_core::{Listed, Lock};

/// The value of a key of type `mort-lock`. Plain data: it may be dropped on any thread.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) lock: Lock,
    listed: Cell<Option<Listed>>,
}

// There are a million of them.
const _: () = assert!(size_of::<Value>() <= 64);

impl Value {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            lock,
            listed: Cell::new(None),
        }
    }

    /// How its database's table knows it; `None` while it does not.
    pub(crate) fn listed(&self) -> Option<Listed> {
        self.listed.get()
    }

    /// Records how its database's table knows it, or that it does not.
    pub(crate) fn set_listed(&self, listed: Option<Listed>) {
        self.listed.set(listed);
    }
}
