//! Tasks that hold and wait by several names. Owners T1 and T2 are of one task, and so on.

use mortise_core::Mode::{Read, Write};

use super::story::{A, B, C, D, Story};

const T1: usize = 4;
const T2: usize = 5;
const U1: usize = 6;
const U2: usize = 7;
const V1: usize = 8;
const V2: usize = 9;

#[test]
fn a_task_waits_for_whatever_one_of_its_names_waits_for() {
    let mut story = Story::default();
    story.takes(T1, Write, 0);
    story.takes(U1, Write, 1);
    story.waits(T2, Write, 1);
    story.deadlocks(U2, Write, 0, &[0, 1]);
    story.deadlocks(U2, Read, 0, &[0, 1]);
    story.deadlocks(U1, Write, 0, &[0, 1]);
}

#[test]
fn cycles_of_three_tasks_and_of_a_task_with_a_plain_owner_are_found() {
    let mut story = Story::default();
    story.takes(T1, Write, 0);
    story.takes(U1, Write, 1);
    story.takes(V1, Write, 2);
    story.waits(T2, Write, 1);
    story.waits(U2, Write, 2);
    story.deadlocks(V2, Write, 0, &[0, 1, 2]);

    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(U1, Write, 1);
    story.waits(U2, Write, 0);
    story.deadlocks(A, Write, 1, &[1, 0]);
}

#[test]
fn a_cycle_through_one_of_several_readers_of_a_task_is_found() {
    let mut story = Story::default();
    for reader in [A, T1, T2, B] {
        story.takes(reader, Read, 0);
    }
    story.takes(U1, Write, 1);
    story.waits(T2, Read, 1);
    story.deadlocks(U2, Write, 0, &[0, 1]);
}

#[test]
fn a_cycle_through_a_place_of_a_task_in_a_queue_is_found() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(U1, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(T2, Write, 1);
    // U2 would stand behind T1, whose task waits for U1.
    story.deadlocks(U2, Write, 0, &[0, 1]);
}

#[test]
fn a_task_that_waits_for_itself_at_one_key_is_no_deadlock() {
    let mut story = Story::default();
    story.takes(T1, Write, 0);
    story.waits(T2, Write, 0);
    story.waits(T2, Read, 0);
    assert_eq!(story.releases(T1, 0).len(), 2);

    let mut story = Story::default();
    story.takes(T1, Read, 0);
    story.takes(T2, Read, 0);
    story.waits(T1, Write, 0);
    story.waits(T2, Write, 0);
}

#[test]
fn tasks_that_request_one_key_by_several_names_are_no_deadlock() {
    for mode in [Read, Write] {
        let mut story = Story::default();
        story.takes(T1, Write, 0);
        story.waits(U1, Write, 0);
        story.waits(T2, mode, 0);
        story.waits(U2, Write, 0);
        story.waits(V1, mode, 0);
        story.waits(V2, Write, 0);
        assert!(!story.releases(T1, 0).is_empty());
    }
}

#[test]
fn two_reading_tasks_that_each_request_write_by_another_name_are_no_deadlock() {
    let mut story = Story::default();
    story.takes(T1, Read, 0);
    story.takes(U1, Read, 0);
    story.waits(T2, Write, 0);
    story.waits(U2, Write, 0);
    // But two owners that wait for each other's holds are in one, whatever else their tasks have here.
    story.waits(T1, Write, 0);
    story.deadlocks(U1, Write, 0, &[0]);
}

#[test]
fn a_task_in_the_middle_that_holds_a_key_and_requests_it_by_another_name_closes_no_cycle() {
    let mut story = Story::default();
    story.takes(V1, Write, 0);
    story.takes(T2, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(U1, Write, 0);
    story.waits(V2, Write, 0);
    // U waits for T, and T for V, which also has a request behind U. But V can release at any time.
    story.waits(U2, Write, 1);
    assert_eq!(story.releases(V1, 0).len(), 1);
}

#[test]
fn an_upgrade_does_not_lead_back_to_the_task_that_upgrades() {
    let mut story = Story::default();
    story.takes(A, Read, 0);
    story.takes(T1, Read, 0);
    story.takes(T2, Read, 1);
    story.waits(T1, Write, 0);
    story.waits(B, Write, 1);
    story.waits(T1, Write, 1);
    // B waits for T2. T1's upgrade waits for A, but not for T1's own hold: else T's request behind B would count, too.
    story.waits(B, Write, 1);
}

#[test]
fn a_cycle_names_the_key_by_which_a_task_is_met_a_second_time() {
    for (first, second) in [(B, C), (C, B)] {
        let mut story = Story::default();
        story.takes(D, Write, 1);
        story.takes(D, Write, 3);
        story.takes(V1, Write, 2);
        story.takes(first, Read, 0);
        story.takes(second, Read, 0);
        for who in [V1, first, T1, V2] {
            story.waits(who, Write, 1);
        }
        story.waits(V1, Write, 3);
        story.waits(second, Write, 2);
        // At key 1 `first` waits for V1, but not for V2, which waits for T1. `second` waits for all that V waits for.
        story.deadlocks(T2, Write, 0, &[0, 2, 1]);
    }
}

#[test]
fn owners_without_the_mark_are_separate_tasks() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(A, Write, 1);
    story.deadlocks(B, Write, 0, &[0, 1]);
}
