//! Deadlocks among requests that wait for a limit.

use mortise_harness::{Conn, Server, cmd, eventually, granted, int, queue_of, try_cmd, waiter};

const LEASE: u64 = 60_000;

fn hold(conn: &mut Conn, key: &str, owner: &str) {
    int(&cmd!(conn, "LOCK.ACQUIRE", key, owner, LEASE));
}

fn take_permit(conn: &mut Conn, owner: &str, limit: u32) {
    int(&cmd!(conn, "LOCK.RLOCK pool {owner} {LEASE} LIMIT {limit}"));
}

/// Checks that the request is refused as a deadlock through these keys.
#[track_caller]
fn refused(reply: Result<mortise_harness::redis::Value, String>, cycle: [&str; 2]) {
    let error = reply.unwrap_err();
    let named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    assert!(error.starts_with("DEADLOCK ") && named == cycle, "{error}");
}

#[test]
fn a_request_waits_for_the_only_owner_that_has_permits() {
    let server = Server::start();
    let mut conn = server.connect();
    take_permit(&mut conn, "a", 1);
    hold(&mut conn, "key", "b");
    let a = waiter!(server, "LOCK.ACQUIRE", "key", "a", LEASE, "WAIT", 0);
    refused(
        try_cmd!(conn, "LOCK.RLOCK pool b {LEASE} LIMIT 1 WAIT 0"),
        ["pool", "key"],
    );
    // A permit is free for b, so it need not wait.
    take_permit(&mut conn, "b", 2);
    cmd!(conn, "LOCK.RELEASE", "pool", "b");
    drop(a);
    eventually("a has left", || server.gauge("waiters") == 0);
    let mut b = waiter!(server, "LOCK.RLOCK pool b {LEASE} LIMIT 1 WAIT 0");
    refused(
        try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", LEASE, "WAIT", 0),
        ["key", "pool"],
    );
    cmd!(conn, "LOCK.RELEASE", "pool", "a");
    granted(&mut b);
}

#[test]
fn a_request_waits_for_none_of_several_owners_that_have_permits() {
    let server = Server::start();
    let mut conn = server.connect();
    take_permit(&mut conn, "a", 2);
    take_permit(&mut conn, "c", 2);
    hold(&mut conn, "key", "b");
    let mut a = waiter!(server, "LOCK.ACQUIRE", "key", "a", LEASE, "WAIT", 0);
    let mut b = waiter!(server, "LOCK.RLOCK pool b {LEASE} LIMIT 2 WAIT 0");
    // It is enough that the other owner releases its permit.
    cmd!(conn, "LOCK.RELEASE", "pool", "c");
    granted(&mut b);
    cmd!(conn, "LOCK.RELEASE", "key", "b");
    granted(&mut a);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_request_behind_one_that_waits_for_its_limit_waits_for_the_same_owner() {
    let server = Server::start();
    let mut conn = server.connect();
    take_permit(&mut conn, "a", 1);
    hold(&mut conn, "key", "b");
    let mut c = waiter!(server, "LOCK.RLOCK pool c {LEASE} LIMIT 1 WAIT 0");
    let a = waiter!(server, "LOCK.ACQUIRE", "key", "a", LEASE, "WAIT", 0);
    // Without a limit it could read together with a, but c is ahead.
    refused(
        try_cmd!(conn, "LOCK.RLOCK", "pool", "b", LEASE, "WAIT", 0),
        ["pool", "key"],
    );
    drop(a);
    cmd!(conn, "LOCK.RELEASE", "pool", "a");
    granted(&mut c);
}

#[test]
fn a_request_behind_one_that_waits_for_its_limit_does_not_wait_for_that_ones_owner() {
    let server = Server::start();
    let mut conn = server.connect();
    take_permit(&mut conn, "a", 1);
    hold(&mut conn, "key", "b");
    let mut c = waiter!(server, "LOCK.RLOCK pool c {LEASE} LIMIT 1 WAIT 0");
    let mut other = waiter!(server, "LOCK.ACQUIRE", "key", "c", LEASE, "WAIT", 0);
    let mut b = waiter!(server, "LOCK.RLOCK", "pool", "b", LEASE, "WAIT", 0);
    assert_eq!(queue_of(&mut conn, "pool"), ["c", "b"]);
    // c gets its permit though it waits for b, and b with it.
    cmd!(conn, "LOCK.RELEASE", "pool", "a");
    granted(&mut c);
    granted(&mut b);
    cmd!(conn, "LOCK.RELEASE", "key", "b");
    granted(&mut other);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}
