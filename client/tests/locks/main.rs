//! The whole API where no server and no network fails, its futures dropped at any point, and the examples.

mod cancellation;
mod cancellation_points;
mod changes;
mod closing;
mod examples;
#[cfg(unix)]
mod forking;
mod guarding;
mod inspection;
mod limits;
mod modes;
mod one_server;
mod passing;
mod permits;
mod rights;
mod several;
#[cfg(feature = "tracing")]
mod tracing;
mod upgrades;

#[path = "../support/mod.rs"]
mod support;
