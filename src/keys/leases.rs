//! Which lock of each database loses its first hold next, and how many hold: kept in step with the
//! locks by those who change them. Primaries act on it; replicas keep it so that promotion costs
//! nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::{Instant, LeaseId, LeaseOrder, LeaseTables, ShortBytes};

use crate::ffi::{Context, MainThread, Swap, Value};
use crate::keys::name::Name;
use crate::keys::remains;
use crate::keys::strays;
use crate::time::{clock, last_deadline, role};

static TABLES: MainThread<RefCell<LeaseTables>> = MainThread::new(RefCell::new(LeaseTables::new()));

/// Locks with holds whose lease is over, too many to have been dropped at once. By database, for they change places with
/// it.
static CROWDED: MainThread<RefCell<BTreeMap<i32, BTreeSet<Name>>>> =
    MainThread::new(RefCell::new(BTreeMap::new()));

/// How many locks are held, and how many hold them.
pub(crate) fn count(ctx: &Context<'_>) -> [u64; 2] {
    let tables = TABLES.get(ctx).borrow();
    let [locks, holders] = strays::count(ctx);
    [tables.locks() + locks, tables.holders() + holders]
}

/// When the last lease ends, as far as it may still be held.
pub(crate) fn last_deadline(ctx: &Context<'_>) -> Instant {
    match count(ctx) {
        [0, _] => Instant::default(),
        _ => last_deadline::get(ctx),
    }
}

/// Holds of the lock at the key are still to be dropped whose lease is over.
pub(crate) fn mark_crowded(ctx: &Context<'_>, db: i32, name: &[u8]) {
    let mut crowded = CROWDED.get(ctx).borrow_mut();
    crowded.entry(db).or_default().insert(name.into());
}

/// One of the locks of which holds are still to be dropped.
pub(crate) fn take_crowded(ctx: &Context<'_>) -> Option<(i32, Name)> {
    let mut crowded = CROWDED.get(ctx).borrow_mut();
    let mut first = crowded.first_entry()?;
    let (db, name) = (*first.key(), first.get_mut().pop_first());
    if first.get().is_empty() {
        first.remove();
    }
    Some((db, name?))
}

/// There is no such lock.
pub(crate) fn none_crowded(ctx: &Context<'_>) -> bool {
    CROWDED.get(ctx).borrow().is_empty()
}

/// Bytes of an entry whose key has a name of `name_len` bytes.
const fn entry_size(name_len: usize) -> usize {
    LeaseOrder::<ShortBytes>::ENTRY_SIZE + ShortBytes::heap_size_of(name_len)
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
        mark_crowded(ctx, db, name);
        deadline = live;
    }
    strays::leave(ctx, value);
    let mut tables = TABLES.get(ctx).borrow_mut();
    let holders = value.lock.len() as u32;
    let listed = tables.follow(db as u32, name, value.listed(), holders, deadline, now);
    value.set_listed(listed);
}

/// The lock has left the key: takes it out of the table. If it is held, it may live on under another name.
pub(crate) fn forget(ctx: &Context<'_>, db: i32, name: &[u8], value: &Value) {
    if let Some(listed) = value.listed() {
        let mut tables = TABLES.get(ctx).borrow_mut();
        tables.forget(db as u32, name, listed);
        value.set_stray(None);
    }
    match value.lock.is_free() {
        true => strays::leave(ctx, value),
        false => strays::enter(ctx, value, clock::now()),
    }
}

/// A lock whose first lease is over: its database and entry, and its name copied into `name`.
pub(crate) fn due(ctx: &Context<'_>, now: Instant, name: &mut Vec<u8>) -> Option<(i32, LeaseId)> {
    let (db, id) = TABLES.get(ctx).borrow_mut().due(now, name)?;
    Some((db as i32, id))
}

/// Looks again in `ms` at an entry that could not be settled.
pub(crate) fn put_off(ctx: &Context<'_>, db: i32, id: LeaseId, now: Instant, ms: u64) {
    let mut tables = TABLES.get(ctx).borrow_mut();
    tables.put_off(db as u32, id, now.after(ms));
}

/// Drops an entry that was settled and is due nevertheless, so that no key belongs to it.
pub(crate) fn drop_stale(ctx: &Context<'_>, db: i32, id: LeaseId, now: Instant) {
    TABLES.get(ctx).borrow_mut().drop_stale(db as u32, id, now);
}

/// The database, or every one, is emptied.
pub(crate) fn clear(ctx: &Context<'_>, db: Option<u32>) {
    if db.is_none() {
        strays::forget_all(ctx);
    }
    let gone = TABLES.get(ctx).borrow_mut().clear(db);
    remains::keep_tables(ctx, gone);
}

/// Two databases have changed places.
pub(crate) fn swap(ctx: &Context<'_>, Swap(one, other): Swap) {
    TABLES.get(ctx).borrow_mut().swap(one as u32, other as u32);
    let mut crowded = CROWDED.get(ctx).borrow_mut();
    let (first, second) = (crowded.remove(&one), crowded.remove(&other));
    crowded.extend(first.map(|names| (other, names)));
    crowded.extend(second.map(|names| (one, names)));
}

/// Bytes of the value and of its entry in the lease order, whose key is `name_len` bytes long.
pub(crate) fn memory(value: &Value, name_len: usize) -> usize {
    let entry = if value.listed().is_some() {
        entry_size(name_len)
    } else {
        0
    };
    size_of::<Value>() + value.lock.heap_size() + entry
}
