//! A replica has every hold, however it received them, and so do its own files.

use mortise_harness::{
    HISTORY, Server, Shutdown, Snapshot, assert_same_data, cmd, hold_of, holders_of, int,
    make_history, wait_for_sync, waiter, wall_micros,
};

use super::{assert_same_holds, replica_of};

#[test]
fn a_replica_that_attaches_later_has_every_hold() {
    for diskless in ["yes", "no"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        make_history(&mut primary.connect());
        let replica = replica_of(&primary);
        assert_same_holds(&primary, &replica);
        assert_eq!(Snapshot::take(&replica).facts().len(), HISTORY);
    }
}

#[test]
fn a_replica_that_is_attached_follows_every_change() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    make_history(&mut conn);
    cmd!(conn, "SWAPDB 9 3");
    assert_same_holds(&primary, &replica);
    assert_eq!(replica.gauge("locks"), HISTORY as i64);
    assert_eq!(replica.gauge("last_token"), primary.gauge("last_token"));
}

#[test]
fn readers_who_are_let_in_together_are_all_on_the_replica() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "writer", 600_000);
    let mut readers = ["a", "b", "c"]
        .map(|owner| waiter!(primary, "LOCK.RLOCK", "key", owner, 600_000, "WAIT", 0));
    cmd!(conn, "LOCK.RELEASE", "key", "writer");
    for reader in &mut readers {
        assert!(int(&reader.recv()) > 0);
    }
    assert_same_holds(&primary, &replica);
    assert_eq!(holders_of(&mut replica.connect(), "key"), ["a", "b", "c"]);
}

#[test]
fn a_refused_request_is_not_replicated() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000);
    wait_for_sync(&primary, &replica);
    let before = replica.calls("LOCK.APPLY");
    assert!(before > 0);
    for _ in 0..50 {
        cmd!(conn, "LOCK.ACQUIRE", "key", "b", 600_000);
        cmd!(conn, "LOCK.RELEASE", "key", "b");
        cmd!(conn, "LOCK.RENEW", "key", "b", 600_000);
        cmd!(conn, "LOCK.INFO", "key");
    }
    wait_for_sync(&primary, &replica);
    assert_eq!(replica.calls("LOCK.APPLY"), before);
}

#[test]
fn a_replica_accepts_leases_beyond_its_own_bounds() {
    let primary = Server::start();
    let replica = Server::builder()
        .replica_of(&primary)
        .config("lock.max-lease", "1000")
        .config("lock.grace", "60000")
        .start();
    let ahead = wall_micros() + 1_800_000_000;
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 86400000 FENCE {ahead}");
    assert_same_holds(&primary, &replica);
    let hold = hold_of(&mut replica.connect(), "key", "a").unwrap();
    assert_eq!(hold.token, ahead);
}

#[test]
fn a_replicas_own_append_only_file_has_the_effects() {
    for preamble in ["yes", "no"] {
        let mut primary = Server::start();
        let mut replica = Server::builder()
            .appending()
            .replica_of(&primary)
            .config("aof-use-rdb-preamble", preamble)
            .start();
        wait_for_sync(&primary, &replica);
        make_history(&mut primary.connect());
        cmd!(primary.connect(), "LOCK.RELEASE", "upgraded", "a", "ALL");
        assert_same_data(&primary, &replica);
        replica.await_rewrite();
        let before = Snapshot::take(&primary);
        replica.shutdown(Shutdown::NoSave);
        primary.sigkill();
        replica.start_again();
        Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
        assert_eq!(before.facts().len(), HISTORY - 1);
    }
}
