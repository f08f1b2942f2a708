//! Leases that run out while others wait.

use std::time::{Duration, Instant};

use mortise_harness::{
    Server, cmd, eventually, granted, hold_of, holders_of, int, is_nil, queue_of, waiter,
};

#[test]
fn an_expired_lease_lets_the_next_in_long_before_its_own_wait_ends() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 1_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 60_000);
    let reply = b.recv_within(Duration::from_secs(2));
    let token = int(&reply.expect("granted once the lease was over").unwrap());
    assert_eq!(hold_of(&mut a, "key", "b").unwrap().token, token);
    assert_eq!(server.gauge("total_expiries"), 1);
}

#[test]
fn an_expired_lease_lets_the_next_in_within_milliseconds() {
    let server = Server::start();
    let mut a = server.connect();
    // The median of many, so that a busy machine does not matter; a sweep every 100 ms would be late by 50 ms.
    let mut late: Vec<i64> = (0..15)
        .map(|_| {
            cmd!(a, "LOCK.ACQUIRE", "key", "a", 600);
            let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
            let left = hold_of(&mut a, "key", "a").map_or(0, |hold| hold.lease);
            let asked = Instant::now();
            granted(&mut b);
            let waited = i64::try_from(asked.elapsed().as_millis()).unwrap();
            cmd!(a, "LOCK.RELEASE", "key", "b");
            waited - left
        })
        .collect();
    late.sort_unstable();
    assert!(late[late.len() / 2] < 20, "late by milliseconds: {late:?}");
}

#[test]
fn a_renewed_lease_keeps_the_queue_waiting() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 1_500);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(a, "LOCK.RENEW", "key", "a", 60_000);
    let mut other = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 2_500);
    assert!(is_nil(&other.recv()));
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut b);
}

#[test]
fn one_expired_reader_of_two_does_not_let_a_writer_in() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.RLOCK", "key", "a", 60_000);
    cmd!(a, "LOCK.RLOCK", "key", "b", 1_000);
    let mut w = waiter!(server, "LOCK.WLOCK", "key", "w", 60_000, "WAIT", 0);
    eventually("b's lease is over", || {
        hold_of(&mut a, "key", "b").is_none()
    });
    eventually("it was swept", || server.gauge("holders") == 1);
    assert_eq!(queue_of(&mut a, "key"), ["w"]);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    granted(&mut w);
}
