//! Tasks, which hold and wait by several names. Owners T1 and T2 are of one task, and so on.

use mortise_core::Mode::{Read, Write};

use super::story::{A, B, Story};

const T1: usize = 4;
const T2: usize = 5;
const U1: usize = 6;
const U2: usize = 7;
const V1: usize = 8;
const V2: usize = 9;

#[test]
fn what_one_name_waits_for_the_task_waits_for() {
    let mut story = Story::default();
    story.takes(T1, Write, 0);
    story.takes(U1, Write, 1);
    story.waits(T2, Write, 1);
    story.deadlocks(U2, Write, 0, &[0, 1]);
    story.deadlocks(U2, Read, 0, &[0, 1]);
    story.deadlocks(U1, Write, 0, &[0, 1]);
}

#[test]
fn a_circle_of_three_tasks_and_of_a_task_with_an_owner_by_itself() {
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
fn a_circle_through_one_of_several_readers_of_a_task() {
    let mut story = Story::default();
    for reader in [A, T1, T2, B] {
        story.takes(reader, Read, 0);
    }
    story.takes(U1, Write, 1);
    story.waits(T2, Read, 1);
    story.deadlocks(U2, Write, 0, &[0, 1]);
}

#[test]
fn a_circle_through_a_place_that_a_task_has_in_a_line() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(U1, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(T2, Write, 1);
    // U would stand behind T, who waits for it.
    story.deadlocks(U2, Write, 0, &[0, 1]);
}

#[test]
fn a_task_that_waits_for_itself_at_one_key_simply_waits() {
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
fn tasks_that_want_one_key_by_several_names_are_in_no_circle() {
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
fn readers_of_two_tasks_of_which_one_name_each_asks_for_write_are_in_no_circle() {
    let mut story = Story::default();
    story.takes(T1, Read, 0);
    story.takes(U1, Read, 0);
    story.waits(T2, Write, 0);
    story.waits(U2, Write, 0);
    // But two that wait for each other's holds are, whatever else their tasks have here.
    story.waits(T1, Write, 0);
    story.deadlocks(U1, Write, 0, &[0]);
}

#[test]
fn a_task_in_the_middle_that_holds_a_key_and_wants_it_by_another_name_closes_nothing() {
    let mut story = Story::default();
    story.takes(V1, Write, 0);
    story.takes(T2, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(U1, Write, 0);
    story.waits(V2, Write, 0);
    // U waits for T, and T for V, who also has a request behind U. But V can release when it likes.
    story.waits(U2, Write, 1);
    assert_eq!(story.releases(V1, 0).len(), 1);
}

#[test]
fn owners_without_a_mark_are_no_task() {
    let mut story = Story::default();
    story.takes(A, Write, 0);
    story.takes(B, Write, 1);
    story.waits(T1, Write, 0);
    story.waits(A, Write, 1);
    story.deadlocks(B, Write, 0, &[0, 1]);
}
