//! Which lock of each database loses its first hold next, and how many hold: all code that changes a lock keeps this up to date. Primaries
//! act on it; replicas keep it so that promotion costs nothing.

use std::cell::{Cell, RefCell};

use mortise_core::{Db, Instant, KeyRef, LeaseOrder, LeaseTables, ShortBytes, Stake};

use crate::ffi::{Context, MainThread, Value};
use crate::time;
use crate::totals::{self, Total};
use crate::work::queue::{self, Work};

/// The latest end of a lease of a lock that lost its key while it was held.
static UNLISTED_UNTIL: MainThread<Cell<Instant>> =
    MainThread::new(Cell::new(Instant::from_millis(0)));
static TABLES: MainThread<RefCell<LeaseTables>> = MainThread::new(RefCell::new(LeaseTables::new()));

/// How many locks are held, and how many hold them. A lock that came by RENAME or MOVE counts from the first command that
/// names it.
pub(crate) fn count(ctx: &Context<'_>) -> [u64; 2] {
    let tables = TABLES.get(ctx).borrow();
    [tables.locks(), tables.holders()]
}

/// When the last lease ends, as far as it may still be held.
pub(crate) fn last_deadline(ctx: &Context<'_>) -> Instant {
    match count(ctx) {
        // Locks without a key that is known may live on under another name.
        [0, _] => UNLISTED_UNTIL.get(ctx).get(),
        _ => time::last_deadline(ctx),
    }
}

/// Brings the table in step with a lock that is held.
pub(crate) fn follow(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value, now: Instant) {
    let Some(mut deadline) = value.lock.next_deadline() else {
        return;
    };
    if deadline <= now
        && time::is_primary(ctx)
        && let Some(live) = value.lock.next_live_deadline(now)
    {
        // The other holds that have ended are dropped a few at a time, so that nobody waits for it.
        queue::push_key(ctx, key, Work::DropEnded);
        deadline = live;
    }
    let mut tables = TABLES.get(ctx).borrow_mut();
    let holders = value.lock.len() as u32;
    let listed = tables.follow(key, value.listed.get(), holders, deadline);
    value.listed.set(Some(listed));
}

/// The lock has left the key: takes it out of the table. If it is held, it may live on under another name.
pub(crate) fn forget(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    if let Some(listed) = value.listed.get() {
        let mut tables = TABLES.get(ctx).borrow_mut();
        tables.forget(key, listed);
        value.listed.set(None);
    }
    if !value.lock.is_free() {
        UNLISTED_UNTIL.get(ctx).set(time::last_deadline(ctx));
    }
}

/// The order in which locks lose their first hold.
pub(crate) fn tables(ctx: &Context<'_>) -> &'static RefCell<LeaseTables> {
    TABLES.get(ctx)
}

/// The database, or every one, is emptied.
pub(crate) fn clear(ctx: &Context<'_>, db: Option<Db>) {
    if db.is_none() {
        UNLISTED_UNTIL.get(ctx).take();
    }
    let gone = TABLES.get(ctx).borrow_mut().clear(db);
    if !gone.is_empty() {
        queue::push(ctx, Work::FreeTables(gone));
    }
}

/// Counts a hold whose lease was over.
pub(crate) fn count_ended(ctx: &Context<'_>, stake: &Stake) {
    totals::add(ctx, Total::Expiries);
    let held = stake.deadline.millis_since(stake.since);
    totals::hold_times(ctx).borrow_mut().record(held);
}

/// Bytes of the value and of its entry in the lease order, whose key is `name_len` bytes long.
pub(crate) fn memory(value: &Value, name_len: usize) -> usize {
    let entry = LeaseOrder::<ShortBytes>::ENTRY_SIZE + ShortBytes::heap_size_of(name_len);
    let entry = value.listed.get().map_or(0, |_| entry);
    size_of::<Value>() + value.lock.heap_size() + entry
}
