//! The turn of the event loop: what callbacks saw change, the timers, and the one place that settles.
//!
//! Callbacks only mark keys as dirty; the timer at the end of the turn settles them.

pub(crate) mod dirty;
pub(crate) mod events;
pub(crate) mod settle;
pub(crate) mod timers;
