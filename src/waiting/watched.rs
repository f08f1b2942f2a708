//! Clients are watched while any is told something that it may never read: the server tells when one is closed, and when
//! the event loop has slept.

use std::cell::Cell;

use crate::ffi::{Context, MainThread};

/// The server tells of clients that close,
static WATCHES: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// and that was of use since the last look at it.
static OF_USE: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The server tells of clients that close, and of the event loop, from now on. False if it cannot.
pub(super) fn watch(ctx: &Context<'_>) -> bool {
    let watches = WATCHES.get(ctx);
    if !watches.get() {
        watches.set(ctx.watch_clients());
    }
    OF_USE.get(ctx).set(true);
    watches.get()
}

/// From the sweep, every minute or so: stops watching where no client was told anything.
pub(crate) fn stop_watching(ctx: &Context<'_>) {
    if WATCHES.get(ctx).get() && !OF_USE.get(ctx).replace(false) {
        ctx.unwatch_clients();
        WATCHES.get(ctx).set(false);
    }
}
