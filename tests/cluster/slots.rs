//! Cluster: holds move with their slots, and waiters are redirected.

use std::time::{Duration, Instant};

use mortise_harness::{
    Resharding, Server, asking, cmd, command, eventually, granted, hold_of, int, node_id, try_cmd,
    waiter, wall_micros,
};

use crate::{SOON, assert_unblocked};

/// Moves the slot of a lock by `step`, while `a` holds it and others wait. Afterwards it is like any other lock.
fn lock_moves(step: impl FnOnce(&Resharding)) {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    let mut conn = from.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let mut b = waiter!(from, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(from, "LOCK.RLOCK key c 60000 WAIT 0");
    let before = (Instant::now(), hold_of(&mut conn, "key", "a").unwrap());
    step(&moving);
    assert_unblocked(&mut b, SOON);
    assert_unblocked(&mut c, SOON);
    let mut there = to.connect();
    let hold = hold_of(&mut there, "key", "a").unwrap();
    assert_eq!((hold.counts(), hold.token), ((2, 1), token));
    let gone = i64::try_from(before.0.elapsed().as_millis()).unwrap() + 1;
    let left = before.1.lease - gone..=60_000;
    assert!(left.contains(&hold.lease), "{hold:?}");
    let mut b = waiter!(to, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(there, "LOCK.RELEASE key a ALL");
    assert!(granted(&mut b) > token);
    assert_eq!((from.gauge("waiters"), from.gauge("locks")), (0, 0));
}

#[test]
fn a_hold_moves_with_its_slot_and_its_waiters_are_redirected() {
    lock_moves(|moving| {
        moving.begin();
        // The key is still here, so they keep waiting.
        std::thread::sleep(Duration::from_millis(400));
        assert_eq!(moving.from().gauge("waiters"), 2);
        moving.migrate();
        let slot = moving.slot;
        let error = try_cmd!(moving.from().connect(), "LOCK.ACQUIRE key b 60000").unwrap_err();
        assert!(error.starts_with(&format!("ASK {slot} ")), "{error}");
        let renewal = command!("LOCK.RENEW key a 1");
        int(&asking(&mut moving.to().connect(), &renewal).unwrap());
        moving.end();
    });
}

#[test]
fn holds_move_with_an_atomic_slot_migration_and_waiters_are_redirected() {
    if Server::start().version().is_valkey_from(9, 0) {
        lock_moves(|moving| {
            let (slot, node) = (moving.slot, node_id(moving.to()));
            let mut conn = moving.from().connect();
            cmd!(
                conn,
                "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {node}"
            );
            let mut there = moving.to().connect();
            let moved = || try_cmd!(there, "LOCK.INFO", "key").is_ok();
            eventually("the slot has moved", moved);
        });
    }
}

#[test]
fn a_release_in_a_migrating_slot_grants_no_waiter_there() {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    let mut conn = from.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    moving.begin();
    // A new request finds no key and is redirected, so a waiter may be granted here only at once, or not at all.
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    let answer = b.recv_within(Duration::from_secs(2)).expect("answered");
    match answer {
        Ok(token) => {
            moving.migrate();
            moving.end();
            let hold = hold_of(&mut to.connect(), "key", "b").unwrap();
            assert_eq!(hold.token, int(&token));
        }
        Err(error) => {
            assert!(error.starts_with("UNBLOCKED "), "{error}");
            let again = command!("LOCK.ACQUIRE key b 60000");
            int(&asking(&mut to.connect(), &again).unwrap());
            moving.end();
        }
    }
    assert_eq!(from.gauge("waiters"), 0);
}

#[test]
fn a_lease_that_ends_in_a_migrating_slot_grants_no_waiter_there() {
    let moving = Resharding::of("key");
    let from = moving.from();
    let mut conn = from.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    moving.begin();
    // The key is gone, though nobody sent a command of the module.
    cmd!(conn, "DEL", "key");
    assert_unblocked(&mut b, SOON);
    moving.end();
}

#[test]
fn a_waiter_of_a_slot_that_was_given_away_is_unblocked() {
    let moving = Resharding::of("key");
    let from = moving.from();
    cmd!(from.connect(), "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(from.connect(), "DEBUG", "SLEEP", 0);
    moving.begin();
    moving.migrate();
    moving.end();
    assert_unblocked(&mut b, SOON);
    let error = try_cmd!(b, "LOCK.ACQUIRE", "key", "b", 1_000).unwrap_err();
    assert!(error.starts_with("MOVED "), "{error}");
}

#[test]
fn a_waiter_of_a_slot_that_is_claimed_while_replicas_are_too_few_is_unblocked() {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    let (mut conn, mut there) = (from.connect(), to.connect());
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    let error = try_cmd!(conn, "LOCK.RELEASE", "key", "a").unwrap_err();
    assert!(error.starts_with("NOREPLICAS "), "{error}");
    let (slot, node) = (moving.slot, node_id(to));
    cmd!(there, "CLUSTER SETSLOT {slot} NODE {node}");
    cmd!(there, "CLUSTER", "BUMPEPOCH");
    eventually("the old home knows", || {
        let asked = try_cmd!(conn, "LOCK.INFO", "key");
        asked.is_err_and(|error| error.starts_with("MOVED "))
    });
    assert_unblocked(&mut b, SOON);
    assert_eq!(from.gauge("waiters"), 0);
}

#[test]
fn tokens_grow_over_a_migration_to_a_node_that_has_granted_nothing() {
    let moving = Resharding::of("key");
    let (from, to) = (moving.from(), moving.to());
    let ahead = wall_micros() + 1_000_000_000;
    let mut conn = from.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000 FENCE {ahead}"));
    moving.begin();
    moving.migrate();
    moving.end();
    let mut conn = to.connect();
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000)) > token);
}
