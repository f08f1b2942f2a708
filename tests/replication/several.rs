//! A grant of several keys reaches replicas as one change.

use mortise_harness::{Bundles, Server, cmd, eventually, holders_of, int, queued, try_cmd, waiter};

use super::{assert_same_holds, replica_of};

#[test]
fn a_replica_never_shows_a_part_of_a_grant_of_several_keys() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut there = replica.connect();
    let bundles = Bundles::start(primary.port(), 24);
    let mut holding = 0;
    while bundles.grants() < 2_000 {
        holding += Bundles::assert_whole(&mut there);
    }
    bundles.stop();
    assert!(holding > 0, "the replica has shown no hold");
    assert_same_holds(&primary, &replica);
    assert_eq!(Bundles::assert_whole(&mut there), 0);
}

#[test]
fn a_replica_promoted_while_keys_are_granted_has_no_part_of_a_grant() {
    let primary = Server::start_alone();
    for _ in 0..5 {
        let replica = replica_of(&primary);
        let bundles = Bundles::start(primary.port(), 24);
        let before = bundles.grants();
        eventually("the clients are at work", || bundles.grants() > before + 50);
        let mut there = replica.connect();
        cmd!(there, "REPLICAOF", "NO", "ONE");
        let holding = Bundles::assert_whole(&mut there);
        // The promoted server discards what still arrives from its old primary.
        assert_eq!(Bundles::assert_whole(&mut there), holding);
        bundles.stop();
    }
}

#[test]
fn a_replica_follows_a_grant_from_the_queues_its_repeat_and_its_undo() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    let (a, b) = ("{k}a", "{k}b");
    cmd!(conn, "LOCK.ACQUIRE", a, "h", 60_000);
    let mut waiter = waiter!(primary, "LOCK.MACQUIRE m 60000 2 {a} {b} WAIT 0");
    cmd!(conn, "LOCK.RELEASE", a, "h");
    let token = int(&waiter.recv());
    assert_same_holds(&primary, &replica);
    let repeat = cmd!(conn, "LOCK.MACQUIRE", "m", 600_000, 2, b, a);
    assert_eq!(int(&repeat), token);
    assert_same_holds(&primary, &replica);
    let mut there = replica.connect();
    assert_eq!(holders_of(&mut there, a), ["m"]);
    let refused = try_cmd!(there, "LOCK.MACQUIRE", "n", 1_000, 2, a, b).unwrap_err();
    assert!(refused.starts_with("READONLY "), "{refused}");
    // By mail, to a box that closes: the grant is never delivered.
    cmd!(conn, "CONFIG", "SET", "lock.mail-timeout", 500);
    queued(&cmd!(
        conn,
        "LOCK.MACQUIRE n 60000 2 {a} {b} WAIT 0 MAIL {{k}}box"
    ));
    for key in [a, b] {
        cmd!(conn, "LOCK.RELEASE", key, "m");
    }
    eventually("the grant is given back", || {
        int(&cmd!(conn, "DBSIZE")) == 0
    });
    assert_same_holds(&primary, &replica);
}
