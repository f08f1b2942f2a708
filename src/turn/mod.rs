//! The turn of the event loop: what callbacks saw change, the timers, and the one place that settles.
//!
//! Callbacks only mark keys as dirty; the timer at the end of the turn settles them. What has no hurry comes behind that,
//! a slice at a time.

pub(crate) mod arrivals;
pub(crate) mod dirty;
pub(crate) mod dismissals;
pub(crate) mod events;
pub(crate) mod relook;
pub(crate) mod settle;
pub(crate) mod slice;
pub(crate) mod slots;
pub(crate) mod timers;
mod undo;
