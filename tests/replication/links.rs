//! Replicas connect and disconnect while locks change.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Server, Snapshot, assert_same_data, cmd, eventually, replicated_over_link, send,
    wait_for_sync_over,
};

use super::{assert_same_holds, replica_of, stat};

/// Acquires, re-enters and releases a hundred locks until it is stopped.
fn load(server: &Server, stop: &AtomicBool) {
    let mut conn = server.connect();
    let mut rounds = 0;
    while !stop.load(Relaxed) {
        for n in 0..100_u64 {
            let owner = format!("owner:{}", (rounds * 7 + n) % 5);
            let key = format!("lock:{n}");
            match (rounds + n) % 6 {
                0 => send!(conn, "LOCK.ACQUIRE", key, owner, 600_000),
                1 | 2 => send!(conn, "LOCK.RLOCK", key, owner, 600_000),
                3 => send!(conn, "LOCK.RELEASE", key, owner, "ALL"),
                4 => send!(conn, "LOCK.RLOCK", key, owner, 1),
                _ => send!(conn, "LOCK.RELEASE", key, owner, "HOLDS", 0, "READ"),
            }
        }
        (0..100).for_each(|_| drop(conn.recv()));
        rounds += 1;
    }
}

/// Stops the load even if a test fails. Otherwise the scope would wait for it for ever.
struct StopAtLast<'a>(&'a AtomicBool);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `meanwhile` while locks change, and checks that the two then have the same holds.
#[track_caller]
fn assert_agree_after(primary: &Server, meanwhile: impl FnOnce() -> Server) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| load(primary, &stop));
        let stopped = StopAtLast(&stop);
        let replica = meanwhile();
        drop(stopped);
        load.join().unwrap();
        // Leases of a millisecond still have to be swept.
        eventually("the same holds are left", || {
            assert_same_data(primary, &replica);
            primary.gauge("holders") == replica.gauge("holders")
        });
        assert_same_holds(primary, &replica);
    });
}

#[test]
fn a_replica_attached_during_changes_agrees_in_the_end() {
    for diskless in ["yes", "no"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        assert_agree_after(&primary, || {
            // Long enough that effects have no receiver for a while.
            let started = Instant::now();
            eventually("time passes", || started.elapsed() > Duration::from_secs(2));
            let first = replica_of(&primary);
            drop(first);
            replica_of(&primary)
        });
    }
}

/// The number of partial and full syncs.
fn syncs(primary: &Server) -> i64 {
    stat(primary, "sync_full") + stat(primary, "sync_partial_ok")
}

#[test]
fn a_replica_that_loses_its_link_during_changes_agrees_in_the_end() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    assert_agree_after(&primary, || {
        for _ in 0..5 {
            let (granted, synced) = (primary.gauge("total_grants"), syncs(&primary));
            cmd!(primary.connect(), "CLIENT", "KILL", "TYPE", "slave");
            eventually("the replica is back and much has happened", || {
                syncs(&primary) > synced && primary.gauge("total_grants") > granted + 500
            });
        }
        replica
    });
}

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
