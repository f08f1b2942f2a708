//! Which lock of each database loses its first hold next, and how many hold: kept in step with the
//! locks by whoever changes them. Primaries act on it; replicas keep it so that promotion costs
//! nothing.

use mortise_core::{Instant, LeaseId, LeaseOrder};

use crate::keys::name::ShortName;
use crate::keys::remains;
use crate::keys::value::Value;
use crate::state::{State, Swap};

/// The locks of one database.
#[derive(Debug)]
pub(crate) struct Table {
    order: LeaseOrder<ShortName>,
    holders: u64,
}

impl Table {
    const fn new() -> Self {
        Self {
            order: LeaseOrder::new(),
            holders: 0,
        }
    }

    /// How many locks are held.
    pub(crate) fn locks(&self) -> u64 {
        self.order.len() as u64
    }

    /// How many holds there are, all locks together.
    pub(crate) fn holders(&self) -> u64 {
        self.holders
    }

    /// A lock whose first lease is over: its entry, and its name copied into `name`.
    pub(crate) fn due(&mut self, now: Instant, name: &mut Vec<u8>) -> Option<LeaseId> {
        let (id, due) = self.order.due(now)?;
        name.clear();
        name.extend_from_slice(due);
        Some(id)
    }

    /// Looks at an entry that could not be settled again in `ms`.
    pub(crate) fn put_off(&mut self, id: LeaseId, now: Instant, ms: u64) {
        self.order.reschedule(id, now.after(ms));
    }

    /// Drops an entry that no key belongs to.
    pub(crate) fn drop_stale(&mut self, id: LeaseId) {
        self.order.remove(id);
    }

    /// Drops some entries of a table that is not used any more. False if none is left.
    pub(crate) fn drop_some(&mut self) -> bool {
        self.order.drop_some()
    }
}

/// Bytes of an entry whose key has a name of `name_len` bytes.
pub(crate) const fn entry_size(name_len: usize) -> usize {
    LeaseOrder::<ShortName>::ENTRY_SIZE + ShortName::heap_size(name_len)
}

/// Brings the table in step with a lock that somebody holds.
pub(crate) fn follow(state: &State, db: i32, name: &[u8], value: &Value, now: Instant) {
    let Some(mut deadline) = value.lock.next_deadline() else {
        return;
    };
    if deadline <= now
        && state.primary.get()
        && let Some(live) = value.lock.next_live_deadline(now)
    {
        // The rest of a crowd that has ended is dropped a few at a time, and others are not to wait for it.
        state.crowded.borrow_mut().insert((db, name.into()));
        deadline = live;
    }
    with_table(state, db, |table| {
        // An entry that is not of this name would be another lock's by now.
        let mine = |id: &LeaseId| table.order.get(*id).is_some_and(|entry| **entry == *name);
        match value.lease.get().filter(mine) {
            Some(id) => table.order.reschedule(id, deadline),
            None => {
                let id = table.order.insert(now, deadline, name.into());
                value.lease.set(Some(id));
                value.counted.set(0);
            }
        }
        let holders = value.lock.len() as u32;
        let counted = value.counted.replace(holders);
        table.holders = (table.holders + u64::from(holders)).saturating_sub(counted.into());
    });
}

/// The lock has left the key: takes it out of the table.
pub(crate) fn forget(state: &State, db: i32, name: &[u8], value: &Value) {
    if let Some(deadline) = value.lock.last_deadline() {
        let last = state.last_stray_deadline.get().max(deadline);
        state.last_stray_deadline.set(last);
    }
    let Some(id) = value.lease.take() else { return };
    let counted = u64::from(value.counted.take());
    with_table(state, db, |table| {
        if table.order.get(id).is_some_and(|entry| **entry == *name) {
            table.order.remove(id);
            table.holders = table.holders.saturating_sub(counted);
        }
    });
}

/// The table of database `db`.
pub(crate) fn with_table<T>(state: &State, db: i32, act: impl FnOnce(&mut Table) -> T) -> T {
    let db = usize::try_from(db).unwrap_or(0);
    let mut tables = state.leases.borrow_mut();
    if tables.len() <= db {
        tables.resize_with(db + 1, Table::new);
    }
    act(&mut tables[db])
}

/// The database, or every one, is emptied.
pub(crate) fn clear(state: &State, db: Option<u32>) {
    let mut tables = state.leases.borrow_mut();
    match db {
        None => {
            remains::keep_tables(state, tables.drain(..));
            state.last_stray_deadline.set(Instant::default());
        }
        Some(db) => {
            if let Some(table) = tables.get_mut(db as usize) {
                remains::keep_tables(state, [std::mem::replace(table, Table::new())]);
            }
        }
    }
}

/// Two databases have changed places.
pub(crate) fn swap(state: &State, Swap(one, other): Swap) {
    with_table(state, one.max(other), |_| ());
    let index = |db: i32| usize::try_from(db).unwrap_or(0);
    state.leases.borrow_mut().swap(index(one), index(other));
}
