//! Who waits, and how a waiter is answered.
//!
//! Used by `turn` and `command`. It grants nothing: only `turn::settle` does.

pub(crate) mod blocking;
pub(crate) mod undelivered;
pub(crate) mod waiters;
