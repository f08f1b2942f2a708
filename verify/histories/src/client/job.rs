//! The job of a client, passed to its process as JSON.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) place: Place,
    /// The file to write.
    pub(crate) history: PathBuf,
    /// Milliseconds.
    pub(crate) lease: u64,
    /// How many tasks of one process work side by side.
    pub(crate) tasks: u64,
    /// The locks that tasks acquire to read and to write.
    pub(crate) locks: Vec<String>,
    /// The pools, of which tasks take up to [`LIMIT`] permits at a time.
    pub(crate) pools: Vec<String>,
    /// The locks that tasks acquire together, all or none; in one slot.
    pub(crate) bundle: Vec<String>,
    /// Whether tasks mostly stay inside for long, so that a failure ends many holds.
    pub(crate) lingers: bool,
    /// Whether writes under a lock are guarded.
    pub(crate) guards: bool,
    /// How clients confirm their holds, if they do; the Rust client knows only renewals.
    pub(crate) confirming: Option<Confirming>,
}

/// How a client confirms its holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirming {
    /// How many replicas have to have a hold.
    pub(crate) replicas: i64,
    pub(crate) marker: Marker,
}

/// What a client writes before WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Marker {
    /// The renewals themselves.
    Renewal,
    /// PING, after which WAIT counts nothing from Redis 7.2 on and on Valkey.
    Ping,
}

/// How many permits a pool has.
pub(crate) const LIMIT: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Plain commands, on connections that wait.
    Blocked,
    /// Plain commands, by mail.
    Mail,
    /// The Rust client.
    Library,
    /// `SET NX PX` and a compare-and-delete script, on a majority of the servers. On one server, that is what most people use.
    Plain,
    /// The crate `rslock`.
    #[cfg(feature = "peers")]
    Rslock,
    /// The crate `redlock`.
    #[cfg(feature = "peers")]
    Redlock,
}

/// Where the locks are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Place {
    One(u16),
    /// Sentinels that watch the primary under the name `locks`.
    Sentinels(Vec<u16>),
    Cluster(Vec<u16>),
    Quorum(Vec<u16>),
}

impl Place {
    /// The address of each server or Sentinel.
    pub(crate) fn urls(&self) -> Vec<String> {
        let ports = self.ports().iter();
        ports
            .map(|port| format!("redis://127.0.0.1:{port}/"))
            .collect()
    }

    pub(crate) fn ports(&self) -> &[u16] {
        match self {
            Place::One(port) => std::slice::from_ref(port),
            Place::Sentinels(ports) | Place::Cluster(ports) | Place::Quorum(ports) => ports,
        }
    }
}

/// The name by which Sentinels know the primary.
pub(crate) const PRIMARY: &str = "locks";

impl Job {
    /// How long a lease lasts for certain after its request, in nanoseconds.
    pub(crate) fn certain(&self) -> u64 {
        (self.lease - self.lease / 100 - 2) * 1_000_000
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease)
    }

    /// The key for guarded writes to a lock's data, in the lock's slot.
    pub(crate) fn list(key: &str) -> String {
        format!("list:{{{key}}}")
    }
}
