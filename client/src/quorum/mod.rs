//! Locks over a majority of independent servers.

pub(crate) mod ballot;
pub(crate) mod client;
pub(crate) mod nodes;
pub(crate) mod round;
pub(crate) mod votes;
