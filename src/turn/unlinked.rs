//! A key has lost its lock. Nothing here writes, or wakes: it marks.

use crate::ffi::{Context, Value};
use crate::keys::{arrivals, dirty, evictions, leases};
use crate::waiting::queue;

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn on_unlinked(ctx: &Context<'_>, db: i32, name: &[u8], value: &Value) {
    arrivals::retell_ahead(ctx, db, name, value);
    leases::forget(ctx, db, name, value);
    evictions::on_unlinked(ctx, db, name, &value.lock);
    if queue::wait_at(ctx, db, name) {
        queue::all(ctx).borrow_mut().forget_holders(db as u32, name);
        dirty::mark(ctx, db, name, true);
    }
}
