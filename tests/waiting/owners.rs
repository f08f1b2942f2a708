//! One owner with several requests in one queue: retries, re-entries, upgrades.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, is_nil, queue_of,
    waiter,
};

/// A server on which `a` holds `key` to write, and the connection that was granted.
fn held() -> (Server, Conn) {
    let server = Server::start();
    let mut conn = server.connect();
    int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    (server, conn)
}

#[test]
fn a_retry_behind_its_own_first_request_is_granted_with_it_and_counts_once_with_holds() {
    let (server, mut a) = held();
    let ask = || command!("LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0, "HOLDS", 1);
    let mut first = server.waiter(&ask());
    let mut retry = server.waiter(&ask());
    cmd!(a, "LOCK.RELEASE", "key", "a");
    assert_eq!(granted(&mut first), granted(&mut retry));
    assert_eq!(hold_of(&mut a, "key", "b").unwrap().counts(), (1, 0));
    assert_eq!(int(&cmd!(a, "LOCK.RELEASE", "key", "b")), 0);
}

#[test]
fn a_retry_after_the_first_connection_is_gone_takes_its_turn_once() {
    let (server, mut a) = held();
    let ask = || command!("LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0, "HOLDS", 1);
    let first = server.waiter(&ask());
    let mut other = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 0);
    let mut retry = server.waiter(&ask());
    drop(first);
    eventually("the first request has left", || {
        queue_of(&mut a, "key") == ["c", "b"]
    });
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut other);
    cmd!(other, "LOCK.RELEASE", "key", "c");
    granted(&mut retry);
    assert_eq!(hold_of(&mut a, "key", "b").unwrap().counts(), (1, 0));
}

#[test]
fn a_queued_write_request_becomes_an_upgrade_when_its_owner_is_granted_to_read() {
    let (server, mut a) = held();
    let mut c = waiter!(server, "LOCK.RLOCK", "key", "c", 60_000, "WAIT", 0);
    let mut b = waiter!(server, "LOCK.RLOCK", "key", "b", 60_000, "WAIT", 0);
    let mut other = waiter!(server, "LOCK.WLOCK", "key", "d", 60_000, "WAIT", 0);
    let mut write = waiter!(server, "LOCK.WLOCK", "key", "b", 60_000, "WAIT", 0);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    let token = granted(&mut b);
    granted(&mut c);
    assert_eq!(holders_of(&mut a, "key"), ["b", "c"]);
    assert_eq!(queue_of(&mut a, "key"), ["b", "d"]);
    cmd!(a, "LOCK.RELEASE", "key", "c");
    assert!(granted(&mut write) > token);
    assert_eq!(hold_of(&mut a, "key", "b").unwrap().counts(), (1, 1));
    cmd!(a, "LOCK.RELEASE", "key", "b", "ALL");
    granted(&mut other);
}

#[test]
fn the_queued_request_of_an_owner_that_comes_to_hold_is_decided() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.RLOCK", "key", "a", 60_000);
    let mut upgrade = waiter!(server, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    let mut behind = waiter!(server, "LOCK.RLOCK", "key", "b", 60_000, "WAIT", 0);
    // The writer at the head leaves; `b` is granted its read request, and its later one becomes an upgrade.
    let mut later = waiter!(server, "LOCK.WLOCK", "key", "b", 60_000, "WAIT", 0);
    let id = upgrade.client_id();
    assert_eq!(int(&cmd!(a, "CLIENT", "UNBLOCK", id)), 1);
    assert!(is_nil(&upgrade.recv()));
    granted(&mut behind);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut later);
}

/// `a` and `b` read, and a connection waits for an upgrade of `a`.
fn upgrading(lease: u64) -> (Server, Conn, Conn) {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "key", "a", lease);
    cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000);
    let upgrader = waiter!(server, "LOCK.WLOCK", "key", "a", 60_000, "WAIT", 0);
    (server, conn, upgrader)
}

#[test]
fn an_upgrader_whose_lease_ends_gets_null() {
    let (server, mut conn, mut upgrader) = upgrading(300);
    let mut w = waiter!(server, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    assert!(is_nil(&upgrader.recv()));
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
    assert_eq!(queue_of(&mut conn, "key"), ["w"]);
    cmd!(conn, "LOCK.RELEASE", "key", "b");
    granted(&mut w);
}

#[test]
fn an_upgrader_whose_read_hold_is_released_over_another_connection_gets_null() {
    let (server, mut conn, mut upgrader) = upgrading(60_000);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
    assert!(is_nil(&upgrader.recv()));
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn an_upgrader_whose_lock_is_deleted_gets_null() {
    let (server, mut conn, mut upgrader) = upgrading(60_000);
    let mut w = waiter!(server, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    cmd!(conn, "DEL", "key");
    assert!(is_nil(&upgrader.recv()));
    granted(&mut w);
    assert_eq!(holders_of(&mut conn, "key"), ["w"]);
}

#[test]
fn an_upgrader_that_times_out_keeps_its_read_hold_and_lets_readers_in() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000);
    cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000);
    let mut upgrader = waiter!(server, "LOCK.WLOCK", "key", "a", 60_000, "WAIT", 1_500);
    let mut reader = waiter!(server, "LOCK.RLOCK", "key", "c", 60_000, "WAIT", 0);
    assert!(is_nil(&upgrader.recv()));
    granted(&mut reader);
    assert_eq!(holders_of(&mut conn, "key"), ["a", "b", "c"]);
}
