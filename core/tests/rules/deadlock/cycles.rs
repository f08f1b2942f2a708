//! Cycles, one in each test. Owners are A to D, keys are numbers.

use mortise_core::Mode::{Read, Write};

use super::story::{A, B, C, D, Story};
use crate::queues::server::key_id;

#[test]
fn two_owners_crosswise_are_a_cycle() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.waits(A, Write, 1);
    story.deadlocks(B, Write, 0, &[0, 1]);
    story.deadlocks(B, Read, 0, &[0, 1]);
}

#[test]
fn two_owners_crosswise_in_two_databases_are_a_cycle() {
    let mut story = Story::default();
    // Keys 0 and 3 have the same name.
    story.takes(A, Write, 0);
    story.takes(B, Write, 3);
    story.waits(A, Write, 3);
    story.deadlocks(B, Write, 0, &[0, 3]);
}

#[test]
fn cycles_of_three_and_four_owners_are_found() {
    for size in [3, 4] {
        let mut story = Story::default();
        for who in 0..size {
            story.takes(who, Write, who);
        }
        for who in 1..size {
            story.waits(who, Write, (who + 1) % size);
        }
        let keys: Vec<usize> = (1..size).chain([0]).collect();
        story.deadlocks(A, Write, 1, &keys);
    }
}

#[test]
fn the_reply_names_the_shorter_of_two_cycles() {
    let mut story = Story::default();
    for who in [A, B, C, D] {
        story.takes(who, Read, 0);
        story.takes(who, Write, who + 1);
    }
    // A writer of key 0 waits for B, C and D. Only D waits for A directly.
    story.waits(B, Write, C + 1);
    story.waits(C, Write, D + 1);
    story.waits(D, Write, A + 1);
    story.deadlocks(A, Write, 0, &[0, 1]);
}

#[test]
fn two_upgrades_of_the_same_lock_are_a_cycle() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(B, Read, 0);
    story.waits(A, Write, 0);
    story.deadlocks(B, Write, 0, &[0]);
    let decided = story.releases(B, 0);
    assert_eq!(decided.len(), 1, "A's upgrade is granted");
}

#[test]
fn a_cycle_through_one_of_several_readers_is_found() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(B, Read, 0);
    story.takes(C, Write, 1);
    story.waits(B, Read, 1);
    story.deadlocks(C, Write, 0, &[0, 1]);
    // A waits for nobody, so it is in no cycle.
    story.waits(A, Write, 1);
}

#[test]
fn a_cycle_through_a_place_behind_a_queued_writer_is_found() {
    let mut story = Story::default();
    story.takes(D, Read, 0);
    story.takes(A, Write, 1);
    story.waits(B, Write, 0);
    story.waits(B, Write, 1);
    // A could read together with D, but B stands ahead and waits for A.
    story.deadlocks(A, Read, 0, &[0, 1]);
}

#[test]
fn a_reader_behind_a_queued_writer_waits_for_the_holder_too() {
    let mut story = Story::default();
    story.takes(D, Read, 0);
    story.takes(A, Write, 1);
    story.waits(B, Write, 0);
    story.waits(D, Write, 1);
    story.deadlocks(A, Read, 0, &[0, 1]);
}

#[test]
fn a_reader_waits_for_every_owner_that_the_writers_ahead_wait_for() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(A, Write, 1);
    story.waits(C, Read, 0);
    story.waits(B, Write, 0);
    story.waits(C, Write, 1);
    // A and C both read, but B between them waits for C.
    story.deadlocks(A, Read, 0, &[0, 1]);
}

#[test]
fn the_second_request_of_an_owner_stands_ahead_of_others_behind_its_first() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(C, Write, 1);
    story.waits(A, Read, 0);
    story.waits(C, Read, 0);
    story.waits(A, Write, 0);
    // When D releases, A gets its read and its write before C, so C waits for A.
    story.deadlocks(A, Write, 1, &[1, 0]);
}

#[test]
fn the_second_request_of_an_owner_closes_a_cycle_with_one_behind_its_first() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(C, Write, 1);
    story.waits(A, Read, 0);
    story.waits(C, Read, 0);
    story.waits(A, Write, 1);
    story.deadlocks(A, Write, 0, &[0, 1]);
}

#[test]
fn a_cycle_that_passes_a_key_twice_names_it_once_and_the_key_of_the_request_first() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(C, Write, 1);
    story.waits(B, Read, 0);
    story.waits(A, Read, 0);
    story.waits(C, Read, 0);
    story.waits(B, Write, 1);
    // A would wait for B at key 0, B waits for C at key 1, and C would wait for A at key 0.
    story.deadlocks(A, Write, 0, &[0, 1]);
}

#[test]
fn a_queued_request_that_becomes_an_upgrade_closes_a_cycle() {
    let mut story = Story::default();
    story.takes(D, Write, 0);
    story.takes(A, Write, 1);
    let id = story.waits(A, Write, 0);
    story.waits(B, Write, 1);
    // Another lock, which A and B read, is renamed to key 0.
    story.takes(A, Read, 2);
    story.takes(B, Read, 2);
    let lock = story.server.locks.remove(&2).expect("a lock");
    story.server.locks.insert(0, lock);
    let key = key_id(0);
    story.server.queues.recheck_holders(key.as_ref());
    assert_eq!(story.server.settle(0).upgrading, [id]);
    assert_eq!(story.server.cycle_of(id), Some(vec![0, 1]));
}

#[test]
fn upgrades_that_wait_during_a_grace_close_a_cycle_when_it_ends() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(B, Read, 0);
    story.server.grace = true;
    let first = story.waits(A, Write, 0);
    let second = story.waits(B, Write, 0);
    story.server.grace = false;
    assert_eq!(story.server.settle(0).upgrading, [first, second]);
    assert_eq!(story.server.cycle_of(first), Some(vec![0]));
    story.leaves(first);
    assert_eq!(story.server.cycle_of(second), None);
}
