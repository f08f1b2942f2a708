//! A replica comes back after its link was cut. For links that are lost amid changes see `tests/load/disturbances.rs`.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Server, Snapshot, cmd, eventually, replicated_over_link, wait_for_sync_over,
};

use super::stat;

/// While no replica is attached, its primary still keeps the stream for it.
#[test]
fn a_replica_that_comes_back_by_a_partial_sync_has_what_was_decided_while_none_was_attached() {
    let (primary, replica, link) = replicated_over_link(Server::builder);
    let [full, partial] = ["sync_full", "sync_partial_ok"].map(|name| stat(&primary, name));
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE released a 600000");
    link.cut();
    cmd!(conn, "CLIENT KILL TYPE replica");
    eventually("no replica is attached", || {
        primary.info("replication")["connected_slaves"] == "0"
    });
    // The server looks for replicas once a second.
    let since = Instant::now();
    for n in 0.. {
        cmd!(conn, "LOCK.ACQUIRE lock:{n} a 600000");
        if since.elapsed() > Duration::from_secs(3) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    cmd!(conn, "LOCK.RELEASE released a");
    link.mend();
    eventually("the replica is back", || {
        stat(&primary, "sync_partial_ok") > partial
    });
    wait_for_sync_over(&link, &primary, &replica);
    assert_eq!(stat(&primary, "sync_full"), full, "nothing but the stream");
    let here = Snapshot::take(&primary);
    Snapshot::take(&replica).assert_no_lease_is_shorter(&here);
}
