//! A key has lost its lock. Nothing here writes, or wakes: it marks.

use mortise_core::KeyRef;

use crate::ffi::{Context, Value};
use crate::keys::{self, arrivals, dirty, evictions, leases};
use crate::waiting::walk::{self, Scope};
use crate::waiting::{self, queue};

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn on_unlinked(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    arrivals::replicate_again_ahead(ctx, key, value);
    leases::forget(keys::state(ctx), key, value);
    evictions::on_unlinked(ctx, key, &value.lock);
    if !value.lock.is_free() {
        // RENAME and MOVE report only the key that a lock leaves: it may be at an awaited key now that was free.
        walk::begin(ctx, Scope::Unheld);
    }
    if queue::wait_at(waiting::state(ctx), key) {
        queue::all(ctx).borrow_mut().forget_holders(key);
        dirty::mark(ctx, key);
    }
}
