//! A replica has the same locks as its primary, and grants, ends and changes nothing by itself.

mod confirming;
mod following;
mod links;
mod passing;
mod passive;
mod roles;
mod several;

use mortise_harness::{Server, Snapshot, assert_same_data, wait_for_sync};

fn replica_of(primary: &Server) -> Server {
    let replica = Server::builder().replica_of(primary).start();
    wait_for_sync(primary, &replica);
    replica
}

/// Fails unless the replica has the primary's holds, and none ends earlier there.
#[track_caller]
fn assert_same_holds(primary: &Server, replica: &Server) {
    assert_same_data(primary, replica);
    let here = Snapshot::take(primary);
    Snapshot::take(replica).assert_no_lease_is_shorter(&here);
}

fn stat(server: &Server, name: &str) -> i64 {
    server.info("stats")[name].parse().unwrap()
}
