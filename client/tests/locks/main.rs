//! The whole API where no server and no network fails, its futures dropped at any point, and the examples.

#[cfg(feature = "blocking")]
mod blocking;
mod cancellation;
mod cancellation_points;
mod changes;
mod closing;
#[cfg(feature = "metrics")]
mod counters;
mod examples;
#[cfg(all(feature = "blocking", unix))]
mod forking;
mod guarding;
mod inspection;
mod limits;
mod modes;
mod one_server;
mod owners;
mod passing;
mod permits;
mod rights;
mod several;
#[cfg(feature = "tracing")]
mod tracing;
mod upgrades;

#[path = "../support/mod.rs"]
mod support;
