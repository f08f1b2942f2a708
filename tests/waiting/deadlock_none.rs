//! Waits that look like a deadlock but are not one.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, int, is_nil, queue_of, waiter,
};

fn hold(conn: &mut Conn, mode: &str, key: &str, owner: &str) {
    int(&cmd!(conn, mode, key, owner, 60_000));
}

/// `a` holds k1, and `b` holds k2.
fn crosswise() -> (Server, Conn) {
    crosswise_on(Server::start())
}

fn crosswise_on(server: Server) -> (Server, Conn) {
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    (server, conn)
}

/// `a` waits for k2.
fn a_waits(server: &Server, wait: u64) -> Conn {
    waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", wait)
}

/// Checks that `b` can wait for k1, and is granted it when `a` releases.
#[track_caller]
fn b_may_wait(server: &Server, conn: &mut Conn) {
    let mut b = waiter!(server, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "k1", "a");
    granted(&mut b);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_wait_that_timed_out_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    assert!(is_nil(&a_waits(&server, 100).recv()));
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_that_was_unblocked_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    cmd!(conn, "CLIENT", "UNBLOCK", a.client_id());
    assert!(is_nil(&a.recv()));
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_waiter_that_has_disconnected_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    drop(a_waits(&server, 0));
    eventually("a has left", || server.gauge("waiters") == 0);
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_that_was_granted_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    cmd!(conn, "LOCK.RELEASE", "k2", "b");
    granted(&mut a);
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_that_was_granted_after_a_deletion_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    cmd!(conn, "DEL", "k2");
    granted(&mut a);
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_after_the_other_owner_has_released_is_no_deadlock() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    // In one write, b releases what a waits for, and requests what a holds.
    let steps = [
        command!("LOCK.RELEASE", "k2", "b"),
        command!("LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 200),
    ];
    let replies = conn.pipeline(&steps);
    assert!(is_nil(replies[1].as_ref().unwrap()), "{replies:?}");
    granted(&mut a);
}

#[test]
fn an_expired_lease_closes_no_cycle() {
    let server = Server::start();
    let mut conn = server.connect();
    // A sweep would drop the hold, and in a pause, which has no sweep, nobody can wait. So whether the request comes
    // before the sweep is left to chance.
    for _ in 0..10 {
        int(&cmd!(conn, "LOCK.WLOCK", "k1", "a", 60));
        int(&cmd!(conn, "LOCK.WLOCK", "k2", "b", 60_000));
        let mut a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
        eventually("a's lease is over", || {
            hold_of(&mut conn, "k1", "a").is_none()
        });
        int(&cmd!(conn, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0));
        cmd!(conn, "LOCK.RELEASE", "k2", "b");
        granted(&mut a);
        for (key, owner) in [("k1", "b"), ("k2", "a")] {
            cmd!(conn, "LOCK.RELEASE", key, owner);
        }
    }
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn readers_in_one_queue_do_not_wait_for_each_other() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "x");
    hold(&mut conn, "LOCK.WLOCK", "k2", "y");
    // a and b read k1 and k2, in opposite orders in the two queues.
    let mut waiting = [("k1", "a"), ("k1", "b"), ("k2", "b"), ("k2", "a")]
        .map(|(key, owner)| waiter!(server, "LOCK.RLOCK", key, owner, 60_000, "WAIT", 0));
    cmd!(conn, "LOCK.RELEASE", "k1", "x");
    cmd!(conn, "LOCK.RELEASE", "k2", "y");
    for reader in &mut waiting {
        granted(reader);
    }
}

#[test]
fn a_reader_does_not_wait_for_readers_that_hold() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.RLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let mut a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
    hold(&mut conn, "LOCK.RLOCK", "k1", "b");
    cmd!(conn, "LOCK.RELEASE", "k2", "b");
    granted(&mut a);
}

#[test]
fn an_owner_does_not_wait_for_itself() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.RLOCK", "key", "a");
    hold(&mut conn, "LOCK.RLOCK", "key", "b");
    let mut first = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 HOLDS 1");
    let mut second = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 HOLDS 1");
    cmd!(conn, "LOCK.RELEASE", "key", "b");
    assert_eq!(granted(&mut first), granted(&mut second));
}

#[test]
fn a_retry_behind_another_owner_is_no_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "key", "x");
    let mut a = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 HOLDS 1");
    let mut b = waiter!(server, "LOCK.WLOCK key b 60000 WAIT 0 HOLDS 1");
    let mut again = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 HOLDS 1");
    let mut b_again = waiter!(server, "LOCK.RLOCK", "key", "b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "x");
    assert_eq!(granted(&mut a), granted(&mut again));
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    assert_eq!(granted(&mut b), granted(&mut b_again));
}

#[test]
fn two_owners_in_the_same_order_in_two_queues_are_no_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "x");
    hold(&mut conn, "LOCK.WLOCK", "k2", "x");
    let _waiting = [("k1", "a"), ("k1", "b"), ("k2", "a"), ("k2", "b")]
        .map(|(key, owner)| waiter!(server, "LOCK.WLOCK", key, owner, 60_000, "WAIT", 0));
    assert_eq!(queue_of(&mut conn, "k1"), ["a", "b"]);
    assert_eq!(queue_of(&mut conn, "k2"), ["a", "b"]);
}

#[test]
fn a_hold_of_the_same_name_in_another_database_is_another_lock() {
    let (server, mut conn) = crosswise_on(Server::start_alone());
    let _a = a_waits(&server, 0);
    let mut b = server.connect();
    cmd!(b, "SELECT", 1);
    hold(&mut b, "LOCK.WLOCK", "k1", "x");
    b.submit(&command!("LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0));
    server.await_blocked(&b);
    cmd!(conn, "SELECT", 1);
    cmd!(conn, "LOCK.RELEASE", "k1", "x");
    granted(&mut b);
}
