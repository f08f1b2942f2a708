//! Watches clients while one of them may never read a reply that it was sent: by the server's events for closing clients and for the event
//! loop's sleep.

use crate::ffi::Context;
use crate::waiting::state;

/// Subscribes to events of closing clients and of the event loop. False if the server cannot.
pub(super) fn watch(ctx: &Context<'_>) -> bool {
    let watches = &state::get(ctx).watches_clients;
    if !watches.get() {
        watches.set(ctx.watch_clients());
    }
    state::get(ctx).watching_was_of_use.set(true);
    watches.get()
}

/// From the sweep, every minute or so: stops watching if no client got such a reply.
pub(crate) fn stop_watching(ctx: &Context<'_>) {
    if state::get(ctx).watches_clients.get() && !state::get(ctx).watching_was_of_use.replace(false)
    {
        ctx.unwatch_clients();
        state::get(ctx).watches_clients.set(false);
    }
}
