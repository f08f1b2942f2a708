//! Which lock of each database loses its first hold next, and how many hold: all code that changes a lock keeps this up to date. Primaries
//! act on it; replicas keep it so that promotion costs nothing.

use mortise_core::{Db, Instant, KeyId, KeyRef, LeaseId, LeaseOrder, ShortBytes};

use crate::ffi::{Context, Swap, Value};
use crate::keys::remains;
use crate::keys::state::{self, Keys};
use crate::keys::strays;
use crate::time::{self, clock, last_deadline, role};

/// How many locks are held, and how many hold them.
pub(crate) fn count(keys: &Keys) -> [u64; 2] {
    let tables = keys.tables.borrow();
    let [locks, holders] = strays::count(keys);
    [tables.locks() + locks, tables.holders() + holders]
}

/// When the last lease ends, as far as it may still be held.
pub(crate) fn last_deadline(ctx: &Context<'_>) -> Instant {
    match count(state::get(ctx)) {
        [0, _] => Instant::default(),
        _ => last_deadline::get(time::state(ctx)),
    }
}

/// The lock at the key still has holds to drop whose lease is over.
pub(crate) fn mark_crowded(keys: &Keys, key: KeyRef<'_>) {
    let mut crowded = keys.crowded.borrow_mut();
    let key = crowded.homes.home_key(key);
    crowded.keys.insert(key);
}

/// One of the locks that still have holds to drop.
pub(crate) fn take_crowded(keys: &Keys) -> Option<KeyId> {
    let mut crowded = keys.crowded.borrow_mut();
    let first = crowded.keys.pop_first()?;
    Some(crowded.homes.key_of(&first))
}

/// There is no such lock.
pub(crate) fn none_crowded(keys: &Keys) -> bool {
    keys.crowded.borrow().keys.is_empty()
}

/// Bytes of an entry whose key has a name of `name_len` bytes.
const fn entry_size(name_len: usize) -> usize {
    LeaseOrder::<ShortBytes>::ENTRY_SIZE + ShortBytes::heap_size_of(name_len)
}

/// Brings the table in step with a lock that is held.
pub(crate) fn follow(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value, now: Instant) {
    let Some(mut deadline) = value.lock.next_deadline() else {
        return;
    };
    if deadline <= now
        && role::is_primary(time::state(ctx))
        && let Some(live) = value.lock.next_live_deadline(now)
    {
        // The rest of a crowd that has ended is dropped a few at a time, so that nobody waits for it.
        mark_crowded(state::get(ctx), key);
        deadline = live;
    }
    strays::leave(state::get(ctx), value);
    let mut tables = state::get(ctx).tables.borrow_mut();
    let holders = value.lock.len() as u32;
    let listed = tables.follow(key, value.listed(), holders, deadline, now);
    value.set_listed(listed);
}

/// The lock has left the key: takes it out of the table. If it is held, it may live on under another name.
pub(crate) fn forget(keys: &Keys, key: KeyRef<'_>, value: &Value) {
    if let Some(listed) = value.listed() {
        let mut tables = keys.tables.borrow_mut();
        tables.forget(key, listed);
        value.set_stray(None);
    }
    match value.lock.is_free() {
        true => strays::leave(keys, value),
        false => strays::enter(keys, value, clock::now()),
    }
}

/// A lock whose first lease is over: its database and entry, and its name copied into `name`.
pub(crate) fn due(keys: &Keys, now: Instant, name: &mut Vec<u8>) -> Option<(Db, LeaseId)> {
    keys.tables.borrow_mut().due(now, name)
}

/// Retries in `ms` an entry that could not be settled.
pub(crate) fn put_off(keys: &Keys, db: Db, id: LeaseId, now: Instant, ms: u64) {
    let mut tables = keys.tables.borrow_mut();
    tables.put_off(db, id, now.after(ms));
}

/// Drops an entry that was settled and is due nevertheless, so that no key belongs to it.
pub(crate) fn drop_stale(keys: &Keys, db: Db, id: LeaseId, now: Instant) {
    keys.tables.borrow_mut().drop_stale(db, id, now);
}

/// The database, or every one, is emptied.
pub(crate) fn clear(keys: &Keys, db: Option<Db>) {
    if db.is_none() {
        strays::forget_all(keys);
    }
    let gone = keys.tables.borrow_mut().clear(db);
    remains::keep_tables(keys, gone);
}

/// Two databases have changed places.
pub(crate) fn swap(keys: &Keys, Swap(one, other): Swap) {
    keys.tables.borrow_mut().swap(one, other);
    keys.crowded.borrow_mut().homes.swap(one, other);
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
