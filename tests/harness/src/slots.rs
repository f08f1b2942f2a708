//! Moving a slot of a cluster from one node to another, step by step.

use crate::cluster::{Cluster, node_id};
use crate::server::Server;
use crate::value::text;

/// Begins to move `slot`: the source redirects clients that ask for a key that it lacks, and the target accepts them.
///
/// # Panics
/// If a node refuses.
#[track_caller]
pub fn begin_migration(slot: u16, from: &Server, to: &Server) {
    set_slot(to, slot, "IMPORTING", &node_id(from));
    set_slot(from, slot, "MIGRATING", &node_id(to));
}

/// Moves `key`, if it is there.
///
/// # Panics
/// If a node refuses.
#[track_caller]
pub fn migrate(key: &str, from: &Server, to: &Server) {
    let (mut conn, port) = (from.connect(), to.port());
    let reply = crate::cmd!(conn, "MIGRATE", "127.0.0.1", port, key, 0, 5_000);
    let reply = text(&reply);
    assert!(reply == "OK" || reply == "NOKEY", "{reply}");
}

/// Both nodes know that the slot has moved.
///
/// # Panics
/// If a node refuses.
#[track_caller]
pub fn end_migration(slot: u16, from: &Server, to: &Server) {
    for server in [to, from] {
        set_slot(server, slot, "NODE", &node_id(to));
    }
}

#[track_caller]
fn set_slot(server: &Server, slot: u16, state: &str, node: &str) {
    crate::cmd!(server.connect(), "CLUSTER", "SETSLOT", slot, state, node);
}

/// A cluster in which the slot of a key moves from the node that has it to another one.
#[derive(Debug)]
pub struct Resharding {
    pub cluster: Cluster,
    pub slot: u16,
    key: String,
    home: usize,
}

impl Resharding {
    /// In a cluster of two nodes.
    ///
    /// # Panics
    /// If they do not agree in time.
    #[track_caller]
    pub fn of(key: &str) -> Resharding {
        Resharding::within(Cluster::start(2, Server::builder), key)
    }

    /// In this cluster, to the primary that comes after the one that has the slot.
    ///
    /// # Panics
    /// If a node does not answer.
    #[track_caller]
    pub fn within(cluster: Cluster, key: &str) -> Resharding {
        let (home, slot) = (cluster.home_of(key), cluster.slot_of(key));
        Resharding {
            cluster,
            slot,
            key: key.to_owned(),
            home,
        }
    }

    /// The node that has the slot before.
    pub fn from(&self) -> &Server {
        &self.cluster.primaries[self.home]
    }

    /// The node that has the slot afterwards.
    pub fn to(&self) -> &Server {
        let primaries = &self.cluster.primaries;
        &primaries[(self.home + 1) % primaries.len()]
    }

    /// [`begin_migration`].
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn begin(&self) {
        begin_migration(self.slot, self.from(), self.to());
    }

    /// [`migrate`]s the key.
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn migrate(&self) {
        migrate(&self.key, self.from(), self.to());
    }

    /// [`end_migration`].
    ///
    /// # Panics
    /// If a node refuses.
    #[track_caller]
    pub fn end(&self) {
        end_migration(self.slot, self.from(), self.to());
    }
}
