//! Connections: one server, a primary that Sentinel names, or the nodes of a cluster. Sending never waits: a request is
//! written into its connection's buffer, and the caller awaits the answer. Nothing here knows what a lock is.

pub(crate) mod connection;
pub(crate) mod dial;
mod drive;
pub(crate) mod peer;
pub(crate) mod server;
pub(crate) mod task;

pub(crate) use connection::Pending;
