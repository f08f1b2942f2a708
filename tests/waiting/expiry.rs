//! Leases that run out while others wait.

use std::time::Instant;

use mortise_harness::{
    Server, cmd, command, granted, hold_of, holders_of, is_nil, queue_of, waiter,
};

#[test]
fn an_expired_lease_lets_the_next_in_within_milliseconds() {
    let (server, mut a) = Server::start_connected();
    // The median of many, so that a busy machine does not matter; a sweep every 100 ms would be late by 50 ms.
    let mut late: Vec<i64> = (0..15)
        .map(|_| {
            cmd!(a, "LOCK.ACQUIRE key a 600");
            let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
            let left = hold_of(&mut a, "key", "a").map_or(0, |hold| hold.lease);
            let asked = Instant::now();
            granted(&mut b);
            let waited = i64::try_from(asked.elapsed().as_millis()).unwrap();
            cmd!(a, "LOCK.RELEASE key b");
            waited - left
        })
        .collect();
    late.sort_unstable();
    assert!(late[late.len() / 2] < 20, "late by milliseconds: {late:?}");
}

#[test]
fn a_renewed_lease_keeps_the_queue_waiting() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 1500");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "LOCK.RENEW key a 60000");
    let mut other = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 2500");
    assert!(is_nil(&other.recv()));
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut b);
}

#[test]
fn a_lock_that_becomes_free_after_a_wait_is_over_is_not_granted_to_it() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut late = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 100");
    let mut next = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    // The server reads the release before any timer can fire.
    conn.pipeline(&[command!("DEBUG SLEEP 0.5"), command!("LOCK.RELEASE key a")]);
    assert!(is_nil(&late.recv()));
    granted(&mut next);
    assert_eq!(server.gauge("total_timeouts"), 1);
}
