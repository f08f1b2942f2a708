//! The locks of each database in the order of their leases, and how many hold them.

use std::collections::BTreeMap;

use super::{LeaseId, LeaseOrder};
use crate::key::{Db, KeyRef};
use crate::short::ShortBytes;
use crate::types::Instant;

/// So many databases keep their table when they have no lock left: locks come and go, and most servers use no more databases.
const KEPT: usize = 16;

/// The locks of all databases.
#[derive(Debug, Default)]
pub struct LeaseTables {
    by_db: BTreeMap<Db, Table>,
    /// The database in which a lease was last found to be over.
    swept: Db,
    locks: u64,
    holders: u64,
}

#[derive(Debug, Default)]
struct Table {
    order: LeaseOrder<ShortBytes>,
    holders: u64,
}

/// A lock's place in the table of its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its entry.
    pub id: LeaseId,
    /// With how many holders it is counted.
    pub holders: u32,
}

impl LeaseTables {
    /// No locks.
    pub const fn new() -> Self {
        Self {
            by_db: BTreeMap::new(),
            swept: Db(0),
            locks: 0,
            holders: 0,
        }
    }

    /// How many locks there are.
    pub fn locks(&self) -> u64 {
        self.locks
    }

    /// How many holds there are, all locks together.
    pub fn holders(&self) -> u64 {
        self.holders
    }

    /// No database has a table.
    pub fn is_empty(&self) -> bool {
        self.by_db.is_empty()
    }

    /// Gives an entry that could not be settled another moment.
    pub fn put_off(&mut self, db: Db, id: LeaseId, until: Instant) {
        if let Some(table) = self.by_db.get_mut(&db) {
            table.order.reschedule(id, until);
        }
    }

    /// SWAPDB has exchanged two databases.
    pub fn swap(&mut self, one: Db, other: Db) {
        let (first, second) = (self.by_db.remove(&one), self.by_db.remove(&other));
        self.by_db.extend(first.map(|table| (other, table)));
        self.by_db.extend(second.map(|table| (one, table)));
    }

    /// FLUSHDB or FLUSHALL has emptied the database, or all. Returns the locks, for the caller to drop a few at a time.
    #[must_use]
    pub fn clear(&mut self, db: Option<Db>) -> Self {
        let Some(db) = db else {
            return std::mem::take(self);
        };
        let mut gone = Self::new();
        if let Some(table) = self.by_db.remove(&db) {
            self.locks -= table.order.len() as u64;
            self.holders -= table.holders;
            gone.by_db.insert(db, table);
        }
        gone
    }

    /// Drops some of the locks of tables that are no longer used. False if none is left.
    pub fn drop_some(&mut self) -> bool {
        let Some(mut first) = self.by_db.first_entry() else {
            return false;
        };
        if !first.get_mut().order.drop_some() {
            first.remove();
        }
        true
    }

    /// The lock at the key has `holders`, and loses the first at `deadline`. `listed` is what the last call for it
    /// returned.
    pub fn follow(
        &mut self,
        key: KeyRef<'_>,
        listed: Option<Listed>,
        holders: u32,
        deadline: Instant,
    ) -> Listed {
        let table = self.by_db.entry(key.db).or_default();
        let listed = listed.filter(|listed| table.is_of(listed.id, key.name));
        let id = match listed {
            Some(listed) => {
                table.order.reschedule(listed.id, deadline);
                listed.id
            }
            None => {
                self.locks += 1;
                table.order.insert(deadline, key.name.into())
            }
        };
        let counted = table
            .holders
            .min(listed.map_or(0, |listed| listed.holders.into()));
        table.holders = table.holders - counted + u64::from(holders);
        self.holders = self.holders - counted + u64::from(holders);
        Listed { id, holders }
    }

    /// The lock has left the key.
    pub fn forget(&mut self, key: KeyRef<'_>, listed: Listed) {
        self.drop_entry(key.db, listed, |table| table.is_of(listed.id, key.name));
    }

    /// A lock whose first lease is over: its database and entry, and its name copied into `name`.
    pub fn due(&mut self, now: Instant, name: &mut Vec<u8>) -> Option<(Db, LeaseId)> {
        let ahead = self.by_db.range(self.swept..);
        let behind = self.by_db.range(..self.swept);
        for (&db, table) in ahead.chain(behind) {
            if let Some((id, key)) = table.order.due(now) {
                name.clear();
                name.extend_from_slice(key);
                self.swept = db;
                return Some((db, id));
            }
        }
        None
    }

    /// Removes an entry that is still due although it was settled: it belongs to no key. (After a settle the entry of a key is gone, or has
    /// another deadline.)
    pub fn drop_stale(&mut self, db: Db, id: LeaseId, now: Instant) {
        self.drop_entry(db, Listed { id, holders: 0 }, |table| {
            table.order.due(now).is_some_and(|(due, _)| due == id)
        });
    }

    fn drop_entry(&mut self, db: Db, listed: Listed, goes: impl FnOnce(&Table) -> bool) {
        let Some(table) = self.by_db.get_mut(&db) else {
            return;
        };
        if !goes(table) || table.order.remove(listed.id).is_none() {
            return;
        }
        self.locks -= 1;
        let counted = table.holders.min(listed.holders.into());
        table.holders -= counted;
        self.holders -= counted;
        if table.order.is_empty() {
            // It is unknown how many held the lock of an entry without a key.
            let unknown = std::mem::take(&mut table.holders);
            self.holders = self.holders.saturating_sub(unknown);
            if self.by_db.len() > KEPT {
                self.by_db.remove(&db);
            }
        }
    }
}

impl Table {
    /// The entry is that of the key. Otherwise it is another lock's by now.
    fn is_of(&self, id: LeaseId, name: &[u8]) -> bool {
        self.order.get(id).is_some_and(|entry| **entry == *name)
    }
}
