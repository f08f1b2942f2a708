//! How clients connect to servers, and what goes wrong: slow or dead connections, late requests, hanging servers, and
//! failovers.

mod absent;
mod busy_client;
#[cfg(feature = "cluster")]
mod cluster_hanging;
#[cfg(feature = "cluster")]
mod cluster_moves;
mod connections;
mod crowd;
mod dead_connections;
mod demoted;
mod failover;
mod hanging;
mod late;
mod no_module;
mod slow_network;
#[cfg(feature = "tls")]
mod tls;

#[path = "../support/mod.rs"]
mod support;
