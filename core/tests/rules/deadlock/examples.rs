//! Situations, each of which is a cycle or is none. Keys are numbers, and [`Story`] says how the steps are written.

use mortise_core::Db;

use super::story::{A, Story};
use crate::queues::server::{Patience, key_id};

/// Cycles of owners.
const CYCLES: &[(&str, &str)] = &[
    (
        "two owners crosswise are a cycle",
        "A takes w0; B takes w1; A waits w1; B closes w0 by 0 1; B closes r0 by 0 1",
    ),
    // Keys 0 and 3 have the same name.
    (
        "two owners crosswise in two databases are a cycle",
        "A takes w0; B takes w3; A waits w3; B closes w0 by 0 3",
    ),
    // A waits for nobody, so it is in no cycle.
    (
        "a cycle through one of several readers is found",
        "A takes r0; B takes r0; C takes w1; B waits r1; C closes w0 by 0 1; A waits w1",
    ),
    // A could read together with D, but B stands ahead and waits for A.
    (
        "a cycle through a place behind a queued writer is found",
        "D takes r0; A takes w1; B waits w0; B waits w1; A closes r0 by 0 1",
    ),
    (
        "a reader behind a queued writer waits for the holder too",
        "D takes r0; A takes w1; B waits w0; D waits w1; A closes r0 by 0 1",
    ),
    // A and C both read, but B between them waits for C.
    (
        "a reader waits for every owner that the writers ahead wait for",
        "D takes w0; A takes w1; C waits r0; B waits w0; C waits w1; A closes r0 by 0 1",
    ),
    // When D releases, A gets its read and its write before C, so C waits for A.
    (
        "the second request of an owner stands ahead of others behind its first",
        "D takes w0; C takes w1; A waits r0; C waits r0; A waits w0; A closes w1 by 1 0",
    ),
    (
        "the second request of an owner closes a cycle with one behind its first",
        "D takes w0; C takes w1; A waits r0; C waits r0; A waits w1; A closes w0 by 0 1",
    ),
    // A would wait for B at key 0, B waits for C at key 1, and C would wait for A at key 0.
    (
        "a cycle that passes a key twice names it once and the key of the request first",
        "D takes w0; C takes w1; B waits r0; A waits r0; C waits r0; B waits w1; A closes w0 by 0 1",
    ),
    (
        "cycles of three and four owners are found",
        "A takes w0; B takes w1; C takes w2; B waits w2; C waits w0; A closes w1 by 1 2 0",
    ),
    (
        "cycles of three and four owners are found",
        "A takes w0; B takes w1; C takes w2; D takes w3; B waits w2; C waits w3; D waits w0; A closes w1 by 1 2 3 0",
    ),
    // A writer of key 0 waits for B, C and D. Only D waits for A directly.
    (
        "the reply names the shorter of two cycles",
        "A takes r0; B takes r0; C takes r0; D takes r0; A takes w1; B takes w2; C takes w3; D takes w4; B waits w3; C waits w4; D waits w1; A closes w0 by 0 1",
    ),
    (
        "two upgrades of the same lock are a cycle",
        "A takes r0; B takes r0; A waits w0; B closes w0 by 0; B frees 0 for 1",
    ),
    (
        "two upgrades that wait during a grace are a cycle",
        "A takes r0; B takes r0; grace begins; A waits w0; B closes w0 by 0; grace ends; B frees 0 for 1",
    ),
];

/// Waits that close no cycle, or no longer close one.
const NO_CYCLES: &[(&str, &str)] = &[
    (
        "a reader does not wait for readers that hold",
        "A takes r0; B takes w1; A waits w1; B takes r0",
    ),
    (
        "readers in one queue do not wait for each other",
        "D takes w0; A takes w1; B waits r0; B waits r1; A waits r0",
    ),
    // C waits for A's write, which waits for D alone: it is decided before B's read. C does not wait for that
    // read either.
    (
        "a later request of an owner does not wait for requests behind its first",
        "D takes w0; C takes w1; A waits r0; B waits r0; A waits w0; B waits w1; C waits r0",
    ),
    (
        "an owner does not wait for itself",
        "A takes w0; A takes w0; A takes r0; B takes w1; A waits w1; A waits r1; A takes w0",
    ),
    (
        "the same request on a second connection is no deadlock",
        "D takes w0; A waits w0; B waits w0; A waits w0; B waits r0; A takes w1; B waits w1; A waits w0",
    ),
    // A stands behind B but does not wait for it: when the grace ends, A's requests are decided first.
    (
        "re-entry that waits during a grace is no deadlock",
        "A takes w0; A takes w1; grace begins; B waits w0; B waits w1; A waits w0; A waits r0; B waits w0; B waits w1; grace ends; key 0 is settled for 2",
    ),
    (
        "the same upgrade on a second connection is no deadlock",
        "A takes r0; B takes r0; C waits w0; A waits w0; A waits w0; B frees 0 for 2",
    ),
    // In the end A's hold is over, but nobody has settled key 0.
    (
        "an expired lease closes no cycle",
        "A takes w0; time passes 1; B takes w1; A waits w1; B closes w0 by 0 1; time passes 999; B takes w0",
    ),
    (
        "an expired lease of a reader in the middle breaks the cycle",
        "A takes r0; time passes 1; D takes r0; B takes w1; C takes w2; A waits w1; B waits w2; C closes w0 by 0 1 2; time passes 999; C waits w0",
    ),
    (
        "a wait that has ended closes no cycle",
        "A takes w0; B takes w1; A waits w1; B closes w0 by 0 1; A leaves 1; B waits w0",
    ),
    (
        "the end of one of two waits leaves the other in the cycle",
        "A takes w0; B takes w1; C takes w2; A waits w1; A waits w1; A waits w2; A leaves 1; B closes w0 by 0 1; C closes w0 by 0 2; A leaves 2; B closes w0 by 0 1; A leaves 1; C waits w0; B waits w0",
    ),
    (
        "a granted wait closes no cycle",
        "A takes w0; B takes w1; A waits w1; B frees 1 for 1; B waits w0",
    ),
];

/// T1 and T2 are one task, and so on.
const TASKS: &[(&str, &str)] = &[
    (
        "a task waits for whatever one of its names waits for",
        "T1 takes w0; U1 takes w1; T2 waits w1; U2 closes w0 by 0 1; U2 closes r0 by 0 1; U1 closes w0 by 0 1",
    ),
    (
        "cycles of three tasks and of a task with a plain owner are found",
        "T1 takes w0; U1 takes w1; V1 takes w2; T2 waits w1; U2 waits w2; V2 closes w0 by 0 1 2",
    ),
    (
        "cycles of three tasks and of a task with a plain owner are found",
        "A takes w0; U1 takes w1; U2 waits w0; A closes w1 by 1 0",
    ),
    // U2 would stand behind T1, whose task waits for U1.
    (
        "a cycle through a place of a task in a queue is found",
        "A takes w0; U1 takes w1; T1 waits w0; T2 waits w1; U2 closes w0 by 0 1",
    ),
    // But two owners that wait for each other's holds are in one, whatever else their tasks have here.
    (
        "two reading tasks that each request write by another name are no deadlock",
        "T1 takes r0; U1 takes r0; T2 waits w0; U2 waits w0; T1 waits w0; U1 closes w0 by 0",
    ),
    // B waits for T2. T1's upgrade waits for A, but not for T1's own hold: else T's request behind B would count, too.
    (
        "an upgrade does not lead back to the task that upgrades",
        "A takes r0; T1 takes r0; T2 takes r1; T1 waits w0; B waits w1; T1 waits w1; B waits w1",
    ),
    (
        "owners without the mark are separate tasks",
        "A takes w0; B takes w1; T1 waits w0; A waits w1; B closes w0 by 0 1",
    ),
    (
        "a cycle through one of several readers of a task is found",
        "A takes r0; T1 takes r0; T2 takes r0; B takes r0; U1 takes w1; T2 waits r1; U2 closes w0 by 0 1",
    ),
    (
        "a task that waits for itself at one key is no deadlock",
        "T1 takes w0; T2 waits w0; T2 waits r0; T1 frees 0 for 2",
    ),
    (
        "a task that waits for itself at one key is no deadlock",
        "T1 takes r0; T2 takes r0; T1 waits w0; T2 waits w0",
    ),
    (
        "tasks that request one key by several names are no deadlock",
        "T1 takes w0; U1 waits w0; T2 waits r0; U2 waits w0; V1 waits r0; V2 waits w0; T1 frees 0 for 1",
    ),
    (
        "tasks that request one key by several names are no deadlock",
        "T1 takes w0; U1 waits w0; T2 waits w0; U2 waits w0; V1 waits w0; V2 waits w0; T1 frees 0 for 1",
    ),
    // U waits for T, and T for V, which also has a request behind U. But V can release at any time.
    (
        "a task in the middle that holds a key and requests it by another name closes no cycle",
        "V1 takes w0; T2 takes w1; T1 waits w0; U1 waits w0; V2 waits w0; U2 waits w1; V1 frees 0 for 1",
    ),
    // At key 1 B waits for V1, but not for V2, which waits for T1. C waits for all that V waits for. And the same with B and C exchanged.
    (
        "a cycle names the key by which a task is met a second time",
        "D takes w1; D takes w3; V1 takes w2; B takes r0; C takes r0; V1 waits w1; B waits w1; T1 waits w1; V2 waits w1; V1 waits w3; C waits w2; T2 closes w0 by 0 2 1",
    ),
    (
        "a cycle names the key by which a task is met a second time",
        "D takes w1; D takes w3; V1 takes w2; B takes r0; C takes r0; V1 waits w1; C waits w1; T1 waits w1; V2 waits w1; V1 waits w3; B waits w2; T2 closes w0 by 0 2 1",
    ),
];

#[test]
fn every_cycle_is_found_and_no_other() {
    for (what, steps) in [CYCLES, NO_CYCLES, TASKS].concat() {
        println!("{what}");
        Story::default().tell(steps);
    }
}

#[test]
fn a_queued_request_that_becomes_an_upgrade_closes_a_cycle() {
    let mut story = Story::default();
    story.tell("D takes w0; A takes w1; A waits w0; B waits w1; A takes r2; B takes r2");
    let upgrade = story.request("A", 0);
    // The lock that A and B read is renamed to key 0.
    let lock = story.server.locks.remove(&key_id(2));
    story.server.replace(0, lock);
    assert_eq!(story.server.settle(0).upgrading, [upgrade]);
    assert_eq!(story.server.cycle_of(upgrade), Some(vec![0, 1]));
}

#[test]
fn a_wait_that_has_timed_out_closes_no_cycle() {
    let mut story = Story {
        patience: Patience::Millis(10),
        ..Story::default()
    };
    story.tell("A takes w0; B takes w1; A waits w1; time passes 10");
    let over = story.server.queues.timed_out(story.server.now);
    assert_eq!(over, Some(story.request("A", 1)));
    story.tell("A leaves 1; B waits w0");
}

#[test]
fn a_wait_stays_at_its_key_when_the_lock_is_replaced() {
    let mut story = Story::default();
    story.tell("A takes w0; B takes w1; A waits w1");
    // Key 1 is deleted, taken by A's queued request, and no longer B's.
    story.server.locks.remove(&key_id(1));
    story.tell("key 1 is settled for 1; B waits w0");
    assert!(story.server.hold_of(1, A).is_some());
}

#[test]
fn holders_that_a_flush_has_ended_close_no_cycle_before_their_keys_are_settled() {
    for (db, is_over) in [(None, true), (Some(Db(0)), true), (Some(Db(1)), false)] {
        let mut story = Story::default();
        story.tell("B takes w1; A waits w1");
        story.server.queues.forget_all_holders(db);
        if is_over {
            story.server.locks.clear();
        }
        story.tell("A takes w2");
        story.tell(match is_over {
            true => "B waits w2",
            false => "B closes w2 by 2 1",
        });
    }
}
