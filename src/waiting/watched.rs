//! Clients are watched while any is told something that it may never read: the server tells when one is closed, and when
//! the event loop has slept.

use crate::ffi::Context;
use crate::waiting::state;

/// The server tells of clients that close, and of the event loop, from now on. False if it cannot.
pub(super) fn watch(ctx: &Context<'_>) -> bool {
    let watches = &state::get(ctx).watches_clients;
    if !watches.get() {
        watches.set(ctx.watch_clients());
    }
    state::get(ctx).watching_was_of_use.set(true);
    watches.get()
}

/// From the sweep, every minute or so: stops watching where no client was told anything.
pub(crate) fn stop_watching(ctx: &Context<'_>) {
    if state::get(ctx).watches_clients.get() && !state::get(ctx).watching_was_of_use.replace(false)
    {
        ctx.unwatch_clients();
        state::get(ctx).watches_clients.set(false);
    }
}
