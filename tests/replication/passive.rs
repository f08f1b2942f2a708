//! A replica changes nothing by itself: it refuses commands, and waits for its primary to replicate the end of a hold.

use std::time::{Duration, Instant};

use mortise_harness::{
    Server, Snapshot, cmd, command_of, eventually, int, lock_info, wait_for_sync,
};

use super::{assert_same_holds, replica_of};

#[test]
fn a_replica_refuses_every_change_even_if_it_is_writable() {
    for read_only in ["yes", "no"] {
        let primary = Server::start();
        let replica = Server::builder()
            .replica_of(&primary)
            .config("replica-read-only", read_only)
            .start();
        cmd!(primary.connect(), "LOCK.ACQUIRE", "key", "a", 600_000);
        wait_for_sync(&primary, &replica);
        let before = Snapshot::take(&replica);
        let mut conn = replica.connect();
        for command in [
            "LOCK.ACQUIRE key a 600000",
            "LOCK.ACQUIRE free a 600000",
            "LOCK.WLOCK key b 600000",
            "LOCK.RLOCK key b 600000 WAIT 0",
            "LOCK.MACQUIRE a 600000 2 key free",
            "LOCK.MACQUIRE b 600000 2 free other WAIT 0",
            "LOCK.RELEASE key a",
            "LOCK.RELEASE key b ALL",
            "LOCK.RENEW key a 86400000",
            "LOCK.PASS key a b 600000",
            "LOCK.PASS free a b 600000",
            "LOCK.FENCE key a 1",
            "LOCK.REVOKE key a",
            "LOCK.REVOKE free a",
        ] {
            let error = conn.try_run(&command_of(command)).unwrap_err();
            assert!(error.starts_with("READONLY "), "{command}: {error}");
        }
        for internal in [
            ["LOCK.APPLY", "key", "\x01\x01F"],
            ["LOCK.SETTLE", "key", "x"],
        ] {
            assert!(conn.try_cmd(&internal).is_err(), "{internal:?}");
        }
        Snapshot::take(&replica).assert_continues(&before);
        assert_same_holds(&primary, &replica);
    }
}

#[test]
fn the_end_of_a_lease_is_decided_by_the_primary_and_replicated() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let (mut conn, mut there) = (primary.connect(), replica.connect());
    cmd!(conn, "LOCK.RLOCK", "read", "long", 600_000);
    cmd!(conn, "LOCK.RLOCK", "read", "short", 50);
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 50);
    eventually("the replica has dropped what has ended", || {
        int(&cmd!(there, "EXISTS", "key")) == 0 && replica.gauge("holders") == 1
    });
    assert_same_holds(&primary, &replica);
}

#[test]
fn a_replica_shows_no_hold_whose_lease_is_over_and_drops_none_by_itself() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut there = replica.connect();
    // Repeats this if the machine is too slow to freeze the primary before the end of the lease.
    eventually("the primary is frozen and the lease runs", || {
        cmd!(primary.connect(), "LOCK.ACQUIRE", "key", "a", 300);
        wait_for_sync(&primary, &replica);
        primary.stop_signal();
        let runs = lock_info(&mut there, "key").is_some();
        if !runs {
            primary.cont_signal();
        }
        runs
    });
    eventually("the lease is over there", || {
        lock_info(&mut there, "key").is_none()
    });
    // Long enough for any sweep.
    let over = Instant::now();
    eventually("time passes", || {
        over.elapsed() > Duration::from_millis(400)
    });
    let there_still = int(&cmd!(there, "EXISTS", "key"));
    primary.cont_signal();
    assert_eq!(there_still, 1, "the primary has not replicated it");
    eventually("the primary replicates it", || {
        int(&cmd!(there, "EXISTS", "key")) == 0
    });
}
