//! What happens without a command: timers, deferred work in slices, and the one place that settles.
//!
//! Used by `command`, and called by the server's events and timers; uses all layers but `command`.
//! Callbacks only mark keys as dirty; the timer at the end of the turn settles them. Work of low
//! priority follows, a slice at a time.
//!
//! What the layer has to remember from one turn to the next is in `state`, and nowhere else.

mod aside;
mod dirty_keys;
pub(crate) mod dismissals;
pub(crate) mod events;
mod holds;
pub(crate) mod notices;
pub(crate) mod open_lock;
mod recheck;
pub(crate) mod settle;
pub(crate) mod settle_call;
pub(crate) mod several;
pub(crate) mod slice;
pub(crate) mod slots;
mod state;
pub(crate) mod timers;
pub(crate) mod unlinked;

pub(crate) use state::get as state;
