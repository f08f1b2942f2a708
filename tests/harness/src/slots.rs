//! Moving a slot of a cluster from one node to another, step by step.

use crate::cluster::node_id;
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
