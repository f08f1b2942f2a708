//! How long a guard may be believed: renewal, loss, caps, and clocks that step or stand.

mod caps;
mod clocks;
mod lost_holds;
mod renewal;
mod stopped;

#[path = "../support/mod.rs"]
mod support;
