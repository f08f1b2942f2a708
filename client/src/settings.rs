//! What a client is built with.

use std::time::Duration;

/// What applies to all locks and connections of a client.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) servers: Kind,
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

/// What the servers of a client are to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    One,
    /// Another node may have the keys of one that is away.
    #[cfg(feature = "cluster")]
    Cluster,
    /// Any majority will do.
    Quorum,
}

impl Settings {
    pub(crate) fn is_quorum(&self) -> bool {
        self.servers == Kind::Quorum
    }
}
