//! The locks of each database in the order of their leases, and how many hold them.
//!
//! A database has a table while it has locks, so empty databases cost nothing, however many there are.

use std::collections::BTreeMap;

use super::{LeaseId, LeaseOrder};
use crate::key::{Db, KeyRef};
use crate::short::ShortBytes;
use crate::slab::Slab;
use crate::types::Instant;

/// This many tables are kept even if they are empty, and are built for many locks from the start: locks come and go, and most servers use
/// no more databases.
const KEPT: usize = 16;

/// The locks of all databases.
#[derive(Debug)]
pub struct LeaseTables {
    tables: Slab<Table>,
    by_db: BTreeMap<Db, u32>,
    /// The database of the last call and the place of its table: mostly the next call is for the same one.
    last: Option<(Db, u32)>,
    /// The database in which a lease was last found to be over.
    swept: Db,
    locks: u64,
    holders: u64,
}

#[derive(Debug)]
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

impl Default for LeaseTables {
    fn default() -> Self {
        Self::new()
    }
}

impl LeaseTables {
    /// No locks.
    pub const fn new() -> Self {
        Self {
            tables: Slab::new(),
            by_db: BTreeMap::new(),
            last: None,
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
        if let Some(table) = self.find(db) {
            self.tables[table].order.reschedule(id, until);
        }
    }

    /// SWAPDB has exchanged two databases.
    pub fn swap(&mut self, one: Db, other: Db) {
        let (first, second) = (self.take(one), self.take(other));
        if let Some(table) = first {
            self.put(other, table);
        }
        if let Some(table) = second {
            self.put(one, table);
        }
    }

    /// FLUSHDB or FLUSHALL has emptied the database, or all. Returns the locks, for the caller to drop a few at a time.
    #[must_use]
    pub fn clear(&mut self, db: Option<Db>) -> Self {
        let Some(db) = db else {
            return std::mem::take(self);
        };
        let mut gone = Self::new();
        if let Some(table) = self.take(db) {
            let (locks, holders) = (table.order.len() as u64, table.holders);
            (gone.locks, gone.holders) = (locks, holders);
            self.locks -= locks;
            self.holders -= holders;
            gone.put(db, table);
        }
        gone
    }

    /// Drops some of the locks of tables that are no longer used. False if none is left.
    pub fn drop_some(&mut self) -> bool {
        let Some(first) = self.by_db.first_entry() else {
            return false;
        };
        if !self.tables[*first.get()].order.drop_some() {
            self.tables.remove(first.remove());
        }
        true
    }

    /// Where the table of the database is.
    fn find(&mut self, db: Db) -> Option<u32> {
        match self.last {
            Some((last, table)) if last == db => Some(table),
            _ => self.find_uncached(db),
        }
    }

    #[cold]
    fn find_uncached(&mut self, db: Db) -> Option<u32> {
        let table = *self.by_db.get(&db)?;
        self.last = Some((db, table));
        Some(table)
    }

    #[cold]
    fn create(&mut self, db: Db) -> u32 {
        let for_many = self.tables.len() < KEPT;
        self.put(db, Table::new(for_many))
    }

    fn take(&mut self, db: Db) -> Option<Table> {
        let table = self.tables.remove(self.by_db.remove(&db)?)?;
        self.last = None;
        Some(table)
    }

    fn put(&mut self, db: Db, table: Table) -> u32 {
        let table = self.tables.insert(table);
        self.by_db.insert(db, table);
        self.last = Some((db, table));
        table
    }

    /// The lock at the key has `holders`, and loses the first at `deadline`. `listed` is what the last call for it
    /// returned.
    pub fn follow(
        &mut self,
        key: KeyRef<'_>,
        listed: Option<Listed>,
        holders: u32,
        deadline: Instant,
        now: Instant,
    ) -> Listed {
        let table = match self.find(key.db) {
            Some(table) => table,
            None => self.create(key.db),
        };
        let table = &mut self.tables[table];
        let listed = listed.filter(|listed| table.is_of(listed.id, key.name));
        let id = match listed {
            Some(listed) => {
                table.order.reschedule(listed.id, deadline);
                listed.id
            }
            None => {
                self.locks += 1;
                table.order.insert(now, deadline, key.name.into())
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
        for (&db, &table) in ahead.chain(behind) {
            if let Some((id, key)) = self.tables[table].order.due(now) {
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

    fn drop_entry(&mut self, db: Db, listed: Listed, goes: impl FnOnce(&mut Table) -> bool) {
        let Some(table) = self.find(db) else {
            return;
        };
        let table = &mut self.tables[table];
        if !goes(table) || table.order.remove(listed.id).is_none() {
            return;
        }
        self.locks -= 1;
        let counted = table.holders.min(listed.holders.into());
        table.holders -= counted;
        self.holders -= counted;
        if table.order.is_empty() {
            // It is unknown how many held the lock of an entry without a key.
            self.holders = self
                .holders
                .saturating_sub(std::mem::take(&mut table.holders));
            if self.by_db.len() > KEPT {
                self.take(db);
            }
        }
    }
}

impl Table {
    fn new(for_many: bool) -> Self {
        Self {
            order: match for_many {
                true => LeaseOrder::new(),
                false => LeaseOrder::sparse(),
            },
            holders: 0,
        }
    }

    /// The entry is that of the key. Otherwise it is another lock's by now.
    fn is_of(&self, id: LeaseId, name: &[u8]) -> bool {
        self.order.get(id).is_some_and(|entry| **entry == *name)
    }
}
