//! How long a guard is valid: renewal, loss, `max_hold`, and clocks that step or stop.

mod caps;
mod clocks;
mod holder;
mod renewal;
mod replicas;
mod stopped;

#[path = "../support/mod.rs"]
mod support;
