//! Connections: one server, a primary that Sentinel names, or the nodes of a cluster. Sending never waits: a request is
//! written into its connection's buffer, and the caller awaits the answer. Nothing here knows what a lock is.

pub(crate) mod address;
#[cfg(not(simulated))]
mod alarm;
mod awaiting;
pub(crate) mod connect;
pub(crate) mod connection;
mod drive;
pub(crate) mod endpoint;
mod in_flight;
mod link;
pub(crate) mod peer;
pub(crate) mod schedule;
mod sleep;
pub(crate) mod task;

pub(crate) use address::{IntoServer, Server};
#[cfg(not(simulated))]
pub(crate) use alarm::Alarm;
pub(crate) use connect::Identities;
pub(crate) use connection::{Pending, Timeouts, WhileClosed};
pub(crate) use endpoint::Endpoint;
pub(crate) use peer::{Peer, Route};
pub(crate) use sleep::sleep_until;

#[cfg(simulated)]
pub(crate) use crate::simulated::Alarm;
