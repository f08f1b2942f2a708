//! A key has lost its lock. Nothing here writes, or wakes: it marks.

use mortise_core::KeyRef;

use crate::ffi::{Context, Value};
use crate::keys::{arrivals, leases};
use crate::waiting::{self, queue as queues};
use crate::work::queue;
use crate::work::scan::Scope;

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn on_unlinked(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    arrivals::replicate_again_ahead(ctx, key, value);
    leases::forget(ctx, key, value);
    let any_unheld = || {
        let queues = queues::all(ctx).borrow();
        queues.waiting_keys().unheld_after(None).is_some()
    };
    if !value.lock.is_free() && any_unheld() {
        // RENAME and MOVE report only the key that a lock leaves: it may be at an awaited key now that was free.
        queue::scan(ctx, Scope::Unheld);
    }
    if queues::wait_at(waiting::state(ctx), key) {
        queues::all(ctx).borrow_mut().forget_holders(key);
        queue::settle(ctx, key);
    }
}
