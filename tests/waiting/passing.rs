//! LOCK.PASS and waiters: it grants none of them, but decides the new owner's own requests.

use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Server, assert_error, cmd, command, eventually, granted, hold_of, holders_of, int,
    is_nil, lock_info, mail, queue, queue_of, waiter,
};

/// A server on which `a` holds `key`, and a connection.
fn held(acquire: &str) -> (Server, Conn) {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "{acquire} key a 60000"));
    (server, conn)
}

#[test]
fn a_waiter_is_granted_when_the_shorter_lease_of_a_pass_is_over() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 86400000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let sent = Instant::now();
    cmd!(conn, "LOCK.PASS key a rests 300");
    granted(&mut b);
    assert!(sent.elapsed() >= Duration::from_millis(299));
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
}

#[test]
fn a_queued_request_of_the_new_owner_is_granted_at_once_by_the_new_token() {
    let (server, mut conn) = held("LOCK.ACQUIRE");
    let mut first = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut read = waiter!(server, "LOCK.RLOCK key b 60000 WAIT 0");
    queue!(conn, "box", "LOCK.RLOCK key b 60000");
    let passed = int(&cmd!(conn, "LOCK.PASS key a b 1000"));
    assert_eq!([granted(&mut b), granted(&mut read)], [passed; 2]);
    let letter = mail!(conn, "box");
    let (token, ..) = letter.only().grant.expect("granted");
    assert_eq!(token, passed);
    let hold = hold_of(&mut conn, "key", "b").unwrap();
    assert_eq!((hold.counts(), hold.token), ((2, 1), passed));
    assert!(hold.lease > 30_000, "re-entry lengthens it: {hold:?}");
    assert_eq!(queue_of(&mut conn, "key"), ["c"]);
    cmd!(conn, "LOCK.RELEASE key b ALL");
    granted(&mut first);
}

#[test]
fn a_waiting_upgrade_of_the_old_owner_gets_null() {
    let (server, mut conn) = held("LOCK.RLOCK");
    cmd!(conn, "LOCK.RLOCK key other 60000");
    let mut upgrade = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
    queue!(conn, "box", "LOCK.WLOCK key a 60000");
    let mut behind = waiter!(server, "LOCK.WLOCK key c 60000 WAIT 0");
    cmd!(conn, "LOCK.PASS key a b 60000");
    assert!(is_nil(&upgrade.recv()));
    assert_eq!(mail!(conn, "box").only().result, "denied");
    assert_eq!(holders_of(&mut conn, "key"), ["b", "other"]);
    assert_eq!(queue_of(&mut conn, "key"), ["c"]);
    for owner in ["b", "other"] {
        cmd!(conn, "LOCK.RELEASE key {owner}");
    }
    granted(&mut behind);
}

#[test]
fn a_request_that_a_pass_turns_into_an_upgrade_is_refused_if_it_closes_a_cycle() {
    let (server, mut conn) = held("LOCK.RLOCK");
    cmd!(conn, "LOCK.RLOCK key other 60000");
    let mut upgrade = waiter!(server, "LOCK.WLOCK key other 60000 WAIT 0");
    let mut b = waiter!(server, "LOCK.WLOCK key b 60000 WAIT 0");
    cmd!(conn, "LOCK.PASS key a b 60000");
    assert_error(b.try_recv(), "DEADLOCK ");
    cmd!(conn, "LOCK.RELEASE key b");
    granted(&mut upgrade);
}

#[test]
fn a_pass_while_a_crowd_is_being_granted_decides_the_new_owners_request_too() {
    const CROWD: usize = 1_000;
    let (server, mut conn) = held("LOCK.ACQUIRE");
    let crowd = (0..CROWD).map(|n| command!("LOCK.RLOCK key r{n} 60000 WAIT 0"));
    let mut crowd = server.waiters(crowd);
    let mut writer = waiter!(server, "LOCK.WLOCK key w 60000 WAIT 0");
    let mut own = waiter!(server, "LOCK.RLOCK key late 60000 WAIT 0");
    // The release grants a part of the crowd; the pass comes before the rest.
    let replies = conn.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("LOCK.PASS key r0 late 60000"),
    ]);
    let passed = int(replies[1].as_ref().unwrap());
    assert_eq!(granted(&mut own), passed);
    for reader in &mut crowd {
        granted(reader);
    }
    assert_eq!(queue_of(&mut conn, "key"), ["w"]);
    assert_eq!(hold_of(&mut conn, "key", "late").unwrap().counts(), (0, 2));
    cmd!(conn, "DEL key");
    granted(&mut writer);
}

/// `a` holds `key`, and `b` waits. In one turn `a` releases, `steps` pass `b`'s hold on, and `b`'s connection is closed before
/// its reply.
fn passed_before_the_grant_is_lost(steps: &[[&str; 2]]) -> (Conn, i64) {
    let (server, mut conn) = held("LOCK.ACQUIRE");
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut behind = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let mut turn = vec![command!("LOCK.RELEASE key a")];
    for [old, new] in steps {
        turn.push(command!("LOCK.PASS key {old} {new} 50000"));
    }
    turn.push(command!("CLIENT", "KILL", "ID", b.client_id()));
    let replies = conn.pipeline(&turn);
    let passed = int(replies[steps.len()].as_ref().unwrap());
    eventually("the lost grant would have been undone", || {
        server.gauge("blocked_clients") == 1 && server.gauge("marked") == 0
    });
    assert_eq!(queue_of(&mut conn, "key"), ["c"]);
    let [_, last] = steps[steps.len() - 1];
    let hold = hold_of(&mut conn, "key", last).expect("it was passed on");
    assert_eq!((hold.counts(), hold.token), ((1, 0), passed));
    cmd!(conn, "LOCK.RELEASE key {last}");
    granted(&mut behind);
    (conn, passed)
}

#[test]
fn undoing_a_lost_grant_does_not_affect_the_owner_that_its_hold_was_passed_to() {
    passed_before_the_grant_is_lost(&[["b", "d"]]);
}

#[test]
fn undoing_a_lost_grant_does_not_affect_its_owner_after_the_hold_came_back_by_a_pass() {
    passed_before_the_grant_is_lost(&[["b", "d"], ["d", "b"]]);
}

#[test]
fn undoing_a_lost_re_entry_leaves_the_hold_that_came_by_a_pass() {
    let (server, mut conn) = held("LOCK.ACQUIRE");
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let replies = conn.pipeline(&[
        command!("LOCK.PASS key a b 50000"),
        command!("CLIENT", "KILL", "ID", b.client_id()),
    ]);
    let passed = int(replies[0].as_ref().unwrap());
    eventually("the re-entry is undone", || {
        let hold = hold_of(&mut conn, "key", "b");
        hold.is_some_and(|hold| (hold.counts(), hold.token) == ((1, 0), passed))
    });
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key b")), 0);
    assert!(lock_info(&mut conn, "key").is_none());
}
