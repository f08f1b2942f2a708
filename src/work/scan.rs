//! A scan over the keys with waiters, a few keys at a time. It remembers the last key that it visited and goes on behind it,
//! whatever came or went meanwhile.

use mortise_core::{Db, KeyId, Queues, SlotKey, slot_of};

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
    last: Option<SlotKey>,
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
        let Some(next) = self.next(queues) else {
            return Step::End;
        };
        self.last = Some(next.clone());
        match &self.scope {
            Scope::Database(db) if next.key.db != *db => Step::Passed,
            _ => Step::Key(next.key),
        }
    }

    fn next(&self, queues: &Queues) -> Option<SlotKey> {
        let (keys, last) = (queues.waiting_keys(), self.last.as_ref());
        match &self.scope {
            Scope::All | Scope::Database(_) => keys.after(last),
            Scope::Unheld => keys.unheld_after(last),
            Scope::Slot(slot) => {
                let next = match last {
                    None => keys.first_of(*slot),
                    Some(_) => keys.after(last),
                };
                next.filter(|next| next.slot == *slot)
            }
            Scope::Key(key) => {
                let is_new = last.is_none() && queues.get(key.as_ref()).is_some();
                is_new.then(|| SlotKey {
                    slot: slot_of(&key.name),
                    key: key.clone(),
                })
            }
        }
    }
}
