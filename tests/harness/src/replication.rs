//! Primaries and replicas.

use std::collections::BTreeMap;

use crate::builder::Builder;
use crate::conn::Conn;
use crate::eventually::eventually;
use crate::link::Link;
use crate::server::Server;
use crate::value::{info, text};

impl Server {
    /// A new replica of this server, in sync with it.
    ///
    /// # Panics
    /// If it does not come up, or is not in sync within 30 seconds.
    #[track_caller]
    pub fn start_replica(&self) -> Server {
        let replica = Server::builder().replica_of(self).start();
        wait_for_sync(self, &replica);
        replica
    }
}

/// A primary and its replica, which is attached. `builder` configures each of them.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn replicated(builder: impl Fn() -> Builder) -> (Server, Server) {
    let primary = builder().start();
    let replica = builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    (primary, replica)
}

/// The same over a link, which may be cut and lose data, or be late.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn replicated_over_link(builder: impl Fn() -> Builder) -> (Server, Server, Link) {
    let primary = builder().start();
    let link = Link::to(&primary);
    let replica = builder().replica_over(&link).start();
    wait_for_sync_over(&link, &primary, &replica);
    (primary, replica, link)
}

/// Waits until `replica` is attached to `primary` and has applied all that `primary` has written up to this call.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn wait_for_sync(primary: &Server, replica: &Server) {
    wait_for_sync_at(primary.port(), primary, replica);
}

/// The same for a replica that is attached over `link`.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn wait_for_sync_over(link: &Link, primary: &Server, replica: &Server) {
    wait_for_sync_at(link.port(), primary, replica);
}

/// The same for a replica that finds its primary on `port`.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn wait_for_sync_at(port: u16, primary: &Server, replica: &Server) {
    let mut primary_conn = primary.connect();
    let mut replica_conn = replica.connect();
    eventually("the replica is attached", || {
        let state = replication(&mut replica_conn);
        let attached = state
            .get("master_link_status")
            .is_some_and(|link| link == "up")
            && state.get("master_port") == Some(&port.to_string());
        if attached { Ok(()) } else { Err(state) }
    });
    // Read only now, because after a full sync the replica counts from the primary's offset.
    let target = offset(&replication(&mut primary_conn), "master_repl_offset");
    eventually("the replica has caught up", || {
        let state = replication(&mut replica_conn);
        let caught_up = state
            .get("master_link_status")
            .is_some_and(|link| link == "up")
            && offset(&state, "slave_repl_offset") >= target;
        if caught_up {
            Ok(())
        } else {
            Err((target, state))
        }
    });
}

impl Server {
    /// A number of bytes of `INFO replication`: `replication_offset("master_repl_offset")`.
    ///
    /// # Panics
    /// If there is no such field.
    #[track_caller]
    pub fn replication_offset(&self, name: &str) -> u64 {
        let state = self.info("replication");
        state[name].parse().expect("a number of bytes")
    }
}

/// Waits until `replica` holds the same keys and values as `primary`, leases and expiry times aside.
///
/// # Panics
/// If that takes more than 30 seconds.
#[track_caller]
pub fn assert_same_data(primary: &Server, replica: &Server) {
    wait_for_sync(primary, replica);
    let (mut here, mut there) = (primary.connect(), replica.connect());
    eventually("the replica's data are the primary's", || {
        let digests = [&mut here, &mut there].map(|conn| text(&conn.cmd(&["DEBUG", "DIGEST"])));
        if digests[0] == digests[1] {
            Ok(())
        } else {
            Err(digests)
        }
    });
}

fn replication(conn: &mut Conn) -> BTreeMap<String, String> {
    info(&conn.cmd(&["INFO", "replication"]))
}

fn offset(state: &BTreeMap<String, String>, name: &str) -> i64 {
    state
        .get(name)
        .and_then(|offset| offset.parse().ok())
        .unwrap_or(-1)
}
