//! A scan over the keys with waiters, a few keys at a time. It remembers the last key that it visited and goes on behind it,
//! whatever came or went meanwhile.

use mortise_core::{Db, KeyId, Queues, Visited};

/// Some of the keys with waiters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    All,
    /// The keys that nobody holds, as far as is known.
    Unheld,
    Database(Db),
    Slot(u16),
    Key(KeyId),
}

/// A scan that is under way.
#[derive(Debug)]
pub(crate) struct Scan {
    scope: Scope,
    /// The last key that was visited.
    last: Option<Visited>,
}

/// One step of a scan.
#[derive(Debug)]
pub(crate) enum Step {
    /// To this key.
    Key(KeyId),
    /// Past a key that is out of scope.
    Passed,
    /// There are no more keys.
    End,
}

impl Scan {
    pub(crate) const fn over(scope: Scope) -> Self {
        Self { scope, last: None }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Goes one key on.
    pub(crate) fn step(&mut self, queues: &Queues) -> Step {
        let (keys, last) = (queues.waiting_keys(), self.last);
        let next = match &self.scope {
            Scope::All | Scope::Database(_) => keys.after(last),
            Scope::Unheld => keys.unheld_after(last),
            Scope::Slot(slot) => keys.in_slot_after(*slot, last),
            Scope::Key(key) => keys.find(key.as_ref()).filter(|_| last.is_none()),
        };
        let Some((visited, key)) = next else {
            return Step::End;
        };
        self.last = Some(visited);
        match &self.scope {
            Scope::Database(db) if key.db != *db => Step::Passed,
            _ => Step::Key(key.clone()),
        }
    }
}
