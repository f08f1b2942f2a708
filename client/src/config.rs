//! What can be set for a client as a whole.

use std::time::Duration;

/// Settings of a client; each has a method on [`Builder`](crate::Builder) or [`QuorumBuilder`](crate::QuorumBuilder).
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How long opening a connection may take.
    pub(crate) connect_timeout: Duration,
    /// How long one server may take to answer a command that does not wait.
    pub(crate) response_timeout: Duration,
    /// How many requests may wait at once, per server.
    pub(crate) max_waits: usize,
    /// How many connections for waiting are kept open while nobody waits, per server.
    pub(crate) idle_connections: usize,
}

impl Config {
    pub(crate) fn for_one_server() -> Config {
        Config {
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            max_waits: 1000,
            idle_connections: 16,
        }
    }

    /// A server of a quorum is given little time: the others make do without it.
    pub(crate) fn for_a_quorum() -> Config {
        Config {
            connect_timeout: Duration::from_millis(500),
            response_timeout: Duration::from_millis(50),
            ..Config::for_one_server()
        }
    }
}
