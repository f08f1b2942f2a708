//! Waiters of a server that stops being a primary.

use std::time::{Duration, Instant};

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, assert_error, assert_same_data, cmd, command, eventually, granted,
    hold_of, holders_of, int, lock_info, queue_of, refused, text, try_cmd, wait_for_sync, waiter,
};

#[track_caller]
fn unblocked(conn: &mut Conn) {
    assert_error(conn.try_recv(), "UNBLOCKED ");
    nothing_more(conn);
}

/// Checks that no second reply comes. (Servers close such a connection after the error.)
#[track_caller]
fn nothing_more(conn: &mut Conn) {
    match try_cmd!(conn, "PING") {
        Ok(reply) => assert_eq!(text(&reply), "PONG"),
        Err(error) => assert!(error.starts_with("connection closed"), "{error}"),
    }
}

#[track_caller]
fn nobody_waits(server: &Server) {
    server.await_gauge("blocked_clients", 0);
    assert_eq!(server.gauge("waiters"), 0);
}

fn role(conn: &mut Conn) -> String {
    let reply = cmd!(conn, "ROLE");
    text(&array(&reply)[0])
}

#[test]
fn a_primary_that_becomes_a_replica_unblocks_every_waiter() {
    let (server, other) = (Server::start_alone(), Server::start_alone());
    let mut a = server.connect();
    cmd!(a, "LOCK.RLOCK key a 60000");
    cmd!(a, "LOCK.RLOCK key b 60000");
    let mut waiting = [
        waiter!(server, "LOCK.WLOCK key c 60000 WAIT 0"),
        waiter!(server, "LOCK.RLOCK key d 60000 WAIT 60000"),
        waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0"),
    ];
    cmd!(a, "REPLICAOF", "127.0.0.1", other.port());
    waiting.iter_mut().for_each(unblocked);
    nobody_waits(&server);
    refused!(a, "READONLY", "LOCK.ACQUIRE key c 60000 WAIT 0");
}

#[test]
fn a_server_that_is_a_primary_again_grants_and_queues_as_before() {
    let (server, other) = (Server::start_alone(), Server::start_alone());
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "REPLICAOF", "127.0.0.1", other.port());
    unblocked(&mut b);
    wait_for_sync(&other, &server);
    cmd!(a, "REPLICAOF NO ONE");
    // The other server's empty data has replaced its own.
    assert!(lock_info(&mut a, "key").is_none());
    cmd!(a, "LOCK.ACQUIRE key a 1000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    granted(&mut b);
}

#[test]
fn a_grant_in_one_write_with_a_change_of_role_gets_one_reply() {
    let (server, other) = (Server::start_alone(), Server::start_alone());
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let port = other.port();
    a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("REPLICAOF 127.0.0.1 {port}"),
    ]);
    match b.try_recv() {
        Ok(Value::Int(_)) => {}
        Err(error) => assert!(error.starts_with("UNBLOCKED "), "{error}"),
        other => panic!("{other:?}"),
    }
    nothing_more(&mut b);
    unblocked(&mut c);
    nobody_waits(&server);
}

#[test]
fn replicaof_no_one_on_a_primary_does_not_affect_its_waiters() {
    let (server, mut a) = Server::builder().alone().start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "REPLICAOF NO ONE");
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut b);
}

/// A primary with a replica, `a` holding `key` there for `lease`, and `b` waiting.
fn pair(lease: u64) -> (Server, Server, Conn, Conn) {
    let primary = Server::start_alone();
    let replica = primary.start_replica();
    let mut a = primary.connect();
    cmd!(a, "LOCK.ACQUIRE key a {lease}");
    let b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    wait_for_sync(&primary, &replica);
    (primary, replica, a, b)
}

#[test]
fn a_failover_unblocks_the_waiters_and_keeps_the_locks() {
    let (primary, replica, mut a, mut b) = pair(60_000);
    cmd!(a, "FAILOVER");
    unblocked(&mut b);
    let mut there = replica.connect();
    eventually("the replica is the primary", || {
        role(&mut there) == "master"
    });
    assert_eq!(holders_of(&mut there, "key"), ["a"]);
    nobody_waits(&primary);
    let mut b = waiter!(replica, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert_eq!(int(&cmd!(there, "LOCK.RELEASE key a")), 0);
    granted(&mut b);
    assert_same_data(&replica, &primary);
}

/// The pair after the end of `a`'s lease: the replica cannot catch up, so a failover goes on until it is aborted or the replica continues.
fn lease_over_in_a_failover() -> (Server, Server, Conn, Conn) {
    let (primary, replica, mut a, b) = pair(2_500);
    replica.stop_signal();
    cmd!(a, "SET unheard of");
    cmd!(a, "FAILOVER");
    eventually("the lease is over", || {
        hold_of(&mut a, "key", "a").is_none()
    });
    (primary, replica, a, b)
}

#[test]
fn a_lease_that_ends_in_an_aborted_failover_lets_the_next_in() {
    let (_primary, replica, mut a, mut b) = lease_over_in_a_failover();
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "FAILOVER ABORT");
    replica.cont_signal();
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_lease_that_ends_in_a_failover_that_succeeds_unblocks_the_waiter() {
    let (_primary, replica, _a, mut b) = lease_over_in_a_failover();
    // The replica counts from when it received the hold, so its lease lasts that much longer.
    let over = Instant::now();
    eventually("it is over on the replica", || {
        over.elapsed() > Duration::from_millis(1_500)
    });
    replica.cont_signal();
    unblocked(&mut b);
    let mut there = replica.connect();
    eventually("the replica is the primary", || {
        role(&mut there) == "master"
    });
    assert!(holders_of(&mut there, "key").is_empty());
    int(&cmd!(there, "LOCK.ACQUIRE key b 60000"));
}
