//! Key-space commands that move or remove the locks for which a LOCK.MACQUIRE waits.

use mortise_harness::{
    Conn, Server, bytes, cmd, command, eventually, granted, hold_of, holders_of, int, queue_of,
    try_cmd, waiter,
};

use super::{A, B, C, nobody_waits};

/// `h` holds `a` and `b` by two requests, and `m` waits for both and `c`.
fn scene() -> (Server, Conn, Conn) {
    let (server, mut conn) = Server::builder().alone().start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let waiter = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    (server, conn, waiter)
}

#[track_caller]
fn is_let_in(server: &Server, conn: &mut Conn, m: &mut Conn) {
    let token = granted(m);
    for key in [A, B, C] {
        assert_eq!(holders_of(conn, key), ["m"]);
        assert_eq!(hold_of(conn, key, "m").unwrap().token, token);
    }
    nobody_waits(server, &[A, B, C]);
}

#[test]
fn removing_all_locks_grants_the_request() {
    for flush in [
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB",
        "DEL {k}a {k}b",
        "UNLINK {k}a {k}b",
    ] {
        let (server, mut conn, mut m) = scene();
        cmd!(conn, "{flush}");
        is_let_in(&server, &mut conn, &mut m);
    }
}

#[test]
fn removing_one_lock_is_not_enough() {
    for gone in [
        "DEL {k}a",
        "RENAME {k}a {k}other",
        "MOVE {k}a 1",
        "PEXPIRE {k}a 1",
    ] {
        let (server, mut conn, mut m) = scene();
        cmd!(conn, "{gone}");
        eventually("a is free", || holders_of(&mut conn, A).is_empty());
        for key in [A, B, C] {
            assert_eq!(queue_of(&mut conn, key), ["m"], "{gone}");
        }
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {B} h")), 0);
        is_let_in(&server, &mut conn, &mut m);
    }
}

#[test]
fn a_lock_that_comes_to_a_free_key_keeps_the_request_waiting() {
    let moves: [fn(&mut Conn); 3] = [
        |conn| drop(cmd!(conn, "COPY {A} {C}")),
        |conn| {
            let dump = bytes(&cmd!(conn, "DUMP {A}"));
            cmd!(conn, "RESTORE", C, 0, dump);
        },
        |conn| drop(cmd!(conn, "RENAME {A} {C}")),
    ];
    for change in moves {
        let (server, mut conn, mut m) = scene();
        change(&mut conn);
        cmd!(conn, "LOCK.RELEASE {A} h");
        cmd!(conn, "LOCK.RELEASE {B} h");
        assert_eq!(queue_of(&mut conn, B), ["m"]);
        assert!(holders_of(&mut conn, B).is_empty());
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {C} h")), 0);
        is_let_in(&server, &mut conn, &mut m);
    }
}

#[test]
fn swapdb_does_not_move_the_request() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "SELECT 1");
    cmd!(conn, "LOCK.ACQUIRE {C} x 60000");
    cmd!(conn, "SWAPDB 0 1");
    cmd!(conn, "SELECT 0");
    assert_eq!(queue_of(&mut conn, A), ["m"]);
    assert_eq!(holders_of(&mut conn, C), ["x"]);
    let mut w = waiter!(server, "LOCK.ACQUIRE {B} w 60000 WAIT 0");
    cmd!(conn, "LOCK.RELEASE {C} x");
    is_let_in_ahead_of(&mut conn, &mut m, &mut w);
    cmd!(conn, "SELECT 1");
    assert_eq!(holders_of(&mut conn, A), ["h"]);
}

#[track_caller]
fn is_let_in_ahead_of(conn: &mut Conn, m: &mut Conn, w: &mut Conn) {
    granted(m);
    cmd!(conn, "LOCK.RELEASE {B} m");
    granted(w);
}

#[test]
fn a_grant_clears_a_ttl_on_its_keys() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "PEXPIRE {A} 100000");
    cmd!(conn, "LOCK.RELEASE {A} h");
    cmd!(conn, "LOCK.RELEASE {B} h");
    is_let_in(&server, &mut conn, &mut m);
    for key in [A, B, C] {
        assert_eq!(int(&cmd!(conn, "PTTL {key}")), -1);
    }
    // The same with a lock whose lease ends while its key is still there.
    cmd!(conn, "FLUSHALL");
    cmd!(conn, "LOCK.ACQUIRE {A} h 300");
    cmd!(conn, "PEXPIRE {A} 100000");
    let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    is_let_in(&server, &mut conn, &mut m);
    assert_eq!(int(&cmd!(conn, "PTTL {A}")), -1);
}

/// `h` holds `b`, so `m` waits for `a` and `b`, though nobody holds `a`; `w` waits behind it at `a`.
fn free_key_with_waiters() -> (Server, Conn, [Conn; 2]) {
    let (server, mut conn) = Server::builder().alone().start_connected();
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    let w = waiter!(server, "LOCK.RLOCK {A} w 60000 WAIT 0");
    (server, conn, [m, w])
}

/// Ways in which a lock comes to the free key without a command that changes it there: where it is taken, a command that brings it to that
/// key, and one in the same turn behind that.
const ARRIVALS: [[&str; 3]; 3] = [
    [C, "RENAME {k}c {k}a", "PING"],
    [C, "RENAME {k}c {k}a", "LOCK.INFO {k}a"],
    [A, "MOVE {k}a 0", "PING"],
];

/// Makes a lock that `owner` takes by `take` come there.
fn arrive(server: &Server, [key, change, behind]: [&str; 3], take: &str, owner: &str) {
    let mut conn = server.connect();
    if change.starts_with("MOVE") {
        cmd!(conn, "SELECT 1");
    }
    cmd!(conn, "{take} {key} {owner} 60000");
    conn.pipeline(&[command!("{change}"), command!("{behind}")]);
}

#[test]
fn a_lock_of_its_owner_that_comes_to_a_free_key_ends_a_waiting_request() {
    for arrival in ARRIVALS {
        let (server, mut conn, [mut m, mut w]) = free_key_with_waiters();
        arrive(&server, arrival, "LOCK.RLOCK", "m");
        let error = m.try_recv().expect_err("its owner holds one of the keys");
        assert!(error.starts_with("ERR "), "{error}");
        // Both read.
        granted(&mut w);
        assert_eq!(holders_of(&mut conn, A), ["m", "w"]);
        nobody_waits(&server, &[A, B]);
    }
}

#[test]
fn a_lock_of_another_owner_that_comes_to_a_free_key_decides_its_request() {
    for arrival in ARRIVALS {
        let (server, mut conn, [mut m, mut w]) = free_key_with_waiters();
        arrive(&server, arrival, "LOCK.RLOCK", "w");
        // As re-entry, though `m` stands ahead.
        granted(&mut w);
        assert_eq!(hold_of(&mut conn, A, "w").unwrap().read, 2);
        cmd!(conn, "LOCK.RELEASE {B} h");
        assert_eq!(queue_of(&mut conn, B), ["m"]);
        cmd!(conn, "LOCK.RELEASE {A} w ALL");
        granted(&mut m);
    }
}

#[test]
fn a_deadlock_through_a_lock_that_came_to_a_free_key_is_found() {
    const D: &str = "{k}d";
    for arrival in ARRIVALS {
        let (server, mut conn, [_m, mut w]) = free_key_with_waiters();
        cmd!(conn, "LOCK.ACQUIRE {D} w 60000");
        arrive(&server, arrival, "LOCK.ACQUIRE", "x");
        // In a turn of its own, so that the lock has been noticed.
        cmd!(conn, "PING");
        let error = try_cmd!(conn, "LOCK.ACQUIRE {D} x 60000 WAIT 1").expect_err("a cycle");
        assert!(error.starts_with("DEADLOCK "), "{error}");
        cmd!(conn, "LOCK.RELEASE {A} x");
        cmd!(conn, "LOCK.RELEASE {B} h");
        cmd!(conn, "LOCK.LEAVE {A} m");
        granted(&mut w);
    }
}

#[test]
fn waiters_at_a_free_key_that_becomes_another_type_are_refused() {
    let (server, mut conn, waiters) = free_key_with_waiters();
    cmd!(conn, "SET {A} text");
    for mut waiter in waiters {
        let error = waiter.try_recv().expect_err("no lock can be there");
        assert!(error.starts_with("WRONGTYPE "), "{error}");
    }
    nobody_waits(&server, &[B]);
}
