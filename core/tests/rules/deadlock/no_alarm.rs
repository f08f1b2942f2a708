//! Waits that close no cycle, or no longer close one. Owners are A to D, keys are numbers.

use mortise_core::Mode::{Read, Write};
use mortise_core::{Db, Instant, Lock, Verdict};

use super::story::{A, B, C, D, Story};
use crate::queues::server::{Patience, owner};

#[test]
fn a_reader_does_not_wait_for_readers_that_hold() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    story.takes(B, Read, 0);
}

#[test]
fn readers_in_one_queue_do_not_wait_for_each_other() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(A, Write, 1);
    story.waits(B, Read, 0);
    story.waits(B, Read, 1);
    story.waits(A, Read, 0);
}

#[test]
fn a_later_request_of_an_owner_does_not_wait_for_requests_behind_its_first() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(C, Write, 1);
    story.waits(A, Read, 0);
    story.waits(B, Read, 0);
    story.waits(A, Write, 0);
    story.waits(B, Write, 1);
    // C waits for A's write, which waits for D alone: it is decided before B's read. C does not wait for that
    // read either.
    story.waits(C, Read, 0);
}

#[test]
fn re_entry_that_waits_during_a_grace_is_no_deadlock() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(A, Write, 1);
    story.server.grace = true;
    story.waits(B, Write, 0);
    story.waits(B, Write, 1);
    story.waits(A, Write, 0);
    story.waits(A, Read, 0);
    // A stands behind B but does not wait for it: when the grace ends, A's requests are decided first.
    story.waits(B, Write, 0);
    story.waits(B, Write, 1);
    story.server.grace = false;
    assert_eq!(story.server.settle(0).decided.len(), 2, "A's");
}

#[test]
fn an_owner_does_not_wait_for_itself() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(A, Write, 0);
    story.takes(A, Read, 0);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    story.waits(A, Read, 1);
    story.takes(A, Write, 0);
}

#[test]
fn the_same_request_on_a_second_connection_is_no_deadlock() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.waits(A, Write, 0);
    story.waits(B, Write, 0);
    story.waits(A, Write, 0);
    story.waits(B, Read, 0);
    story.takes(A, Write, 1);
    story.waits(B, Write, 1);
    story.waits(A, Write, 0);
}

#[test]
fn the_same_upgrade_on_a_second_connection_is_no_deadlock() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(B, Read, 0);
    story.waits(C, Write, 0);
    story.waits(A, Write, 0);
    story.waits(A, Write, 0);
    assert_eq!(story.releases(B, 0).len(), 2);
}

#[test]
fn an_expired_lease_closes_no_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.pass(1);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    story.deadlocks(B, Write, 0, &[0, 1]);
    story.pass(999);
    // A's hold is over, but nobody has settled key 0.
    assert_eq!(story.server.now, Instant::from_millis(1_000));
    story.takes(B, Write, 0);
}

#[test]
fn an_expired_lease_of_a_reader_in_the_middle_breaks_the_cycle() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.pass(1);
    story.takes(D, Read, 0);
    story.takes(B, Write, 1);
    story.takes(C, Write, 2);
    story.waits(A, Write, 1);
    story.waits(B, Write, 2);
    story.deadlocks(C, Write, 0, &[0, 1, 2]);
    story.pass(999);
    story.waits(C, Write, 0);
}

#[test]
fn a_wait_that_has_ended_closes_no_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    let id = story.waits(A, Write, 1);
    story.deadlocks(B, Write, 0, &[0, 1]);
    story.leaves(id);
    story.waits(B, Write, 0);
}

#[test]
fn the_end_of_one_of_two_waits_leaves_the_other_in_the_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.takes(C, Write, 2);
    let first = story.waits(A, Write, 1);
    let second = story.waits(A, Write, 1);
    let other = story.waits(A, Write, 2);
    story.leaves(first);
    story.deadlocks(B, Write, 0, &[0, 1]);
    story.deadlocks(C, Write, 0, &[0, 2]);
    story.leaves(other);
    story.deadlocks(B, Write, 0, &[0, 1]);
    story.leaves(second);
    story.waits(C, Write, 0);
    story.waits(B, Write, 0);
}

#[test]
fn a_wait_that_has_timed_out_closes_no_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.patience = Patience::Millis(10);
    story.waits(A, Write, 1);
    story.pass(10);
    let id = story.server.queues.timed_out(story.server.now);
    story.leaves(id.expect("its time is up"));
    story.patience = Patience::Endless;
    story.waits(B, Write, 0);
}

#[test]
fn a_granted_wait_closes_no_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    let decided = story.releases(B, 1);
    assert!(matches!(decided[0].verdict, Verdict::Granted { .. }));
    story.waits(B, Write, 0);
}

#[test]
fn a_wait_stays_at_its_key_when_the_lock_is_replaced() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    // Key 1 is deleted, taken by A's queued request, and no longer B's.
    story.server.locks.insert(1, Lock::free());
    assert_eq!(story.server.settle(1).decided.len(), 1);
    story.waits(B, Write, 0);
    let lock = &story.server.locks[&1];
    assert!(lock.hold(owner(A).as_ref()).is_some());
}

#[test]
fn holders_that_a_flush_has_ended_close_no_cycle_before_their_keys_are_settled() {
    for (db, is_over) in [(None, true), (Some(Db(0)), true), (Some(Db(1)), false)] {
        let mut story = Story::default();
        story.takes(B, Write, 1);
        story.waits(A, Write, 1);
        story.server.queues.forget_all_holders(db);
        if is_over {
            story.server.locks.clear();
        }
        story.takes(A, Write, 2);
        match is_over {
            true => drop(story.waits(B, Write, 2)),
            false => story.deadlocks(B, Write, 2, &[2, 1]),
        }
    }
}
