//! What a key of the module's type holds.

use std::cell::Cell;

use mortise_core::{Listed, Lock, StrayId};

/// The value of a key of type `mort-lock`. Plain data: it may be dropped on any thread.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) lock: Lock,
    place: Cell<Place>,
}

// There are a million of them.
const _: () = assert!(size_of::<Value>() == 64);

/// Which table counts it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In its database's table.
    Table(Listed),
    /// Among the strays, if it is one.
    NoTable(Option<StrayId>),
}

impl Value {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            lock,
            place: Cell::new(Place::NoTable(None)),
        }
    }

    /// How its database's table knows it; `None` while it does not.
    pub(crate) fn listed(&self) -> Option<Listed> {
        match self.place.get() {
            Place::Table(listed) => Some(listed),
            Place::NoTable(_) => None,
        }
    }

    /// Records the id by which its database's table knows it.
    pub(crate) fn set_listed(&self, listed: Listed) {
        self.place.set(Place::Table(listed));
    }

    /// Its id among the strays.
    pub(crate) fn stray(&self) -> Option<StrayId> {
        match self.place.get() {
            Place::NoTable(stray) => stray,
            Place::Table(_) => None,
        }
    }

    /// No table knows it; it may be a stray.
    pub(crate) fn set_stray(&self, stray: Option<StrayId>) {
        self.place.set(Place::NoTable(stray));
    }
}
