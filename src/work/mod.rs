//! What happens without a command: one queue of deferred work, timers, and the one place that settles.
//!
//! `queue` is what commands, callbacks and the rooms below put work into; it knows none of them. Everything else here uses all
//! rooms but `command`, and is called by the server's events and timers, and by `command`.

pub(crate) mod events;
pub(crate) mod grant;
mod holds;
pub(crate) mod open_lock;
pub(crate) mod queue;
pub(crate) mod refuse;
pub(crate) mod settle;
pub(crate) mod settle_key;
pub(crate) mod slice;
pub(crate) mod slots;
pub(crate) mod timers;
