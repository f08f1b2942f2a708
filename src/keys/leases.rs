//! Which lock of each database loses its first hold next, and how many hold: kept in step with the
//! locks by those who change them. Primaries act on it; replicas keep it so that promotion costs
//! nothing.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use mortise_core::{Instant, LeaseId, LeaseOrder};

use crate::ffi::{Context, MainThread, Swap, Value};
use crate::keys::name::{Name, ShortName};
use crate::keys::remains;
use crate::keys::table::Table;
use crate::time::{last_deadline, role};

/// By database.
static TABLES: MainThread<RefCell<Vec<Table>>> = MainThread::new(RefCell::new(Vec::new()));

/// The latest end of a lease of a lock that lost its key while it was held. RENAME and MOVE look like that, too, so the
/// lock may be held on where no table knows of it.
static LAST_STRAY_DEADLINE: MainThread<Cell<Instant>> =
    MainThread::new(Cell::new(Instant::from_millis(0)));

/// Locks with holds whose lease is over, too many to have been dropped at once.
static CROWDED: MainThread<RefCell<BTreeSet<(i32, Name)>>> =
    MainThread::new(RefCell::new(BTreeSet::new()));

pub(crate) fn tables(ctx: &Context<'_>) -> &'static RefCell<Vec<Table>> {
    TABLES.get(ctx)
}

/// How many locks are held, and how many hold them.
pub(crate) fn count(ctx: &Context<'_>) -> [u64; 2] {
    let tables = TABLES.get(ctx).borrow();
    let locks = tables.iter().map(Table::locks).sum();
    [locks, tables.iter().map(Table::holders).sum()]
}

/// When the last lease ends, as far as it may still be held.
pub(crate) fn last_deadline(ctx: &Context<'_>) -> Instant {
    let held = TABLES
        .get(ctx)
        .borrow()
        .iter()
        .any(|table| table.locks() > 0);
    match held {
        true => last_deadline::get(ctx),
        false => LAST_STRAY_DEADLINE.get(ctx).get(),
    }
}

pub(crate) fn crowded(ctx: &Context<'_>) -> &'static RefCell<BTreeSet<(i32, Name)>> {
    CROWDED.get(ctx)
}

/// Bytes of an entry whose key has a name of `name_len` bytes.
const fn entry_size(name_len: usize) -> usize {
    LeaseOrder::<ShortName>::ENTRY_SIZE + ShortName::heap_size(name_len)
}

/// Brings the table in step with a lock that is held.
pub(crate) fn follow(ctx: &Context<'_>, db: i32, name: &[u8], value: &Value, now: Instant) {
    let Some(mut deadline) = value.lock.next_deadline() else {
        return;
    };
    if deadline <= now
        && role::is_primary(ctx)
        && let Some(live) = value.lock.next_live_deadline(now)
    {
        // The rest of a crowd that has ended is dropped a few at a time, and others are not to wait for it.
        CROWDED.get(ctx).borrow_mut().insert((db, name.into()));
        deadline = live;
    }
    with_table(ctx, db, |table| {
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
pub(crate) fn forget(ctx: &Context<'_>, db: i32, name: &[u8], value: &Value) {
    if let Some(deadline) = value.lock.last_deadline() {
        let last = LAST_STRAY_DEADLINE.get(ctx).get().max(deadline);
        LAST_STRAY_DEADLINE.get(ctx).set(last);
    }
    let Some(id) = value.lease.take() else { return };
    let counted = u64::from(value.counted.take());
    with_table(ctx, db, |table| {
        if table.order.get(id).is_some_and(|entry| **entry == *name) {
            table.order.remove(id);
            table.holders = table.holders.saturating_sub(counted);
        }
    });
}

/// The table of database `db`.
pub(crate) fn with_table<T>(ctx: &Context<'_>, db: i32, act: impl FnOnce(&mut Table) -> T) -> T {
    let db = usize::try_from(db).unwrap_or(0);
    let mut tables = TABLES.get(ctx).borrow_mut();
    if tables.len() <= db {
        tables.resize_with(db + 1, Table::new);
    }
    act(&mut tables[db])
}

/// The database, or every one, is emptied.
pub(crate) fn clear(ctx: &Context<'_>, db: Option<u32>) {
    let mut tables = TABLES.get(ctx).borrow_mut();
    match db {
        None => {
            remains::keep_tables(ctx, tables.drain(..));
            LAST_STRAY_DEADLINE.get(ctx).set(Instant::default());
        }
        Some(db) => {
            if let Some(table) = tables.get_mut(db as usize) {
                remains::keep_tables(ctx, [std::mem::replace(table, Table::new())]);
            }
        }
    }
}

/// Two databases have changed places.
pub(crate) fn swap(ctx: &Context<'_>, Swap(one, other): Swap) {
    with_table(ctx, one.max(other), |_| ());
    let index = |db: i32| usize::try_from(db).unwrap_or(0);
    TABLES.get(ctx).borrow_mut().swap(index(one), index(other));
}

/// Bytes of the value and of its entry in the lease order, whose key is `name_len` bytes long.
pub(crate) fn memory(value: &Value, name_len: usize) -> usize {
    let entry = if value.lease.get().is_some() {
        entry_size(name_len)
    } else {
        0
    };
    size_of::<Value>() + value.lock.heap_size() + entry
}
