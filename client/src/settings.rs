//! What a client is built with.

use std::time::Duration;

use crate::connect::Connect;

/// What applies to all locks and connections of a client.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    /// What connections are called, and owners begin with.
    pub(crate) name: Option<String>,
    /// The lease of locks that set none, and how long these wait.
    pub(crate) lease: Duration,
    /// How long a lock waits that does not set it; without limit if `None`.
    pub(crate) wait: Option<Duration>,
    /// How long opening a connection may take.
    pub(crate) connect: Duration,
    /// How long a reply may take.
    pub(crate) reply: Duration,
    /// How many replicas have to confirm a hold.
    pub(crate) replicas: u32,
}

/// Where the servers of a client are, and what they are to each other.
#[derive(Clone)]
pub(crate) enum Source {
    Server(Connect),
    /// Another node may have the keys of one that is away.
    #[cfg(feature = "cluster")]
    Cluster(Vec<redis::ConnectionInfo>),
    /// Any majority will do.
    Quorum(Vec<Connect>),
}

impl Settings {
    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self.source, Source::Quorum(_))
    }
}
