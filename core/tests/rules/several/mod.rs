//! Requests for several keys at once, together with requests for one: random programs on the queues, compared with a naive model
//! ([`reference`]), and judged ([`check`]) by a graph of all waits that is built by walking all queues ([`scene`]).

mod check;
mod crowded;
mod large;
mod moved;
mod ranks;
mod reference;
mod scene;
mod server;

use std::ops::Range;

use proptest::prelude::*;

use crate::queues::config;
use check::Run;
use reference::Reference;
use server::{ALONE, KEYS, OF_TASKS, Server};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Ask {
        owner: usize,
        key: usize,
        write: bool,
    },
    Several {
        owner: usize,
        keys: u8,
    },
    Release {
        owner: usize,
        key: usize,
    },
    /// The owner's request leaves.
    Leave {
        owner: usize,
    },
    Pass {
        owner: usize,
        new_owner: usize,
        key: usize,
    },
    /// The key is deleted.
    Del {
        key: usize,
    },
}

fn op(owner: Range<usize>) -> impl Strategy<Value = Op> {
    let key = 0..KEYS;
    let ask = (owner.clone(), key.clone(), any::<bool>());
    let several = (owner.clone(), 1..1_u8 << KEYS);
    prop_oneof![
        4 => ask.prop_map(|(owner, key, write)| Op::Ask { owner, key, write }),
        4 => several.prop_map(|(owner, keys)| Op::Several { owner, keys }),
        6 => (owner.clone(), key.clone()).prop_map(|(owner, key)| Op::Release { owner, key }),
        1 => owner.clone().prop_map(|owner| Op::Leave { owner }),
        1 => (owner.clone(), owner, key.clone())
            .prop_map(|(owner, new_owner, key)| Op::Pass { owner, new_owner, key }),
        1 => key.prop_map(|key| Op::Del { key }),
    ]
}

/// A program as text, its steps separated by `; `. Owners and keys are numbers of one digit or two, and `wants` names several keys:
/// `0 wants 13`.
fn program_of(text: &str) -> Vec<Op> {
    let number = |word: &str| word.parse().expect("a number");
    let mask = |keys: &str| {
        keys.chars()
            .map(|key| 1 << key.to_digit(10).expect("a key"))
            .sum()
    };
    let step = |step: &str| match step.split(' ').collect::<Vec<_>>()[..] {
        [owner, verb @ ("reads" | "writes"), key] => Op::Ask {
            owner: number(owner),
            key: number(key),
            write: verb == "writes",
        },
        [owner, "wants", keys] => Op::Several {
            owner: number(owner),
            keys: mask(keys),
        },
        [owner, "releases", key] => Op::Release {
            owner: number(owner),
            key: number(key),
        },
        [owner, "passes", key, "to", new_owner] => Op::Pass {
            owner: number(owner),
            new_owner: number(new_owner),
            key: number(key),
        },
        [key, "is", "deleted"] => Op::Del { key: number(key) },
        _ => panic!("{step} is no step"),
    };
    text.split("; ").map(step).collect()
}

/// Runs each program. Owners of one task do not meet at a key.
fn check(programs: &[&str]) {
    for program in programs {
        println!("{program}");
        Run::new(true).check(&program_of(program));
    }
}

/// The numbers of the keys in the mask.
pub(crate) fn keys_of(mask: u8) -> Vec<usize> {
    (0..KEYS).filter(|key| mask & 1 << key != 0).collect()
}

fn program(owners: Range<usize>, most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(owners), 1..most)
}

/// By owners without a task, or by those of tasks.
fn any_program(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![program(ALONE, most), program(OF_TASKS, most)]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_program_grants_what_the_model_grants(ops in any_program(40)) {
        let mut server = Server::new(true);
        let mut model = Reference::default();
        for op in ops {
            let expected = model.run(op);
            assert_eq!(server.run(op), expected, "{op:?}");
            for key in 0..KEYS {
                assert_eq!(server.holders(key), model.holders(key), "{op:?}: who holds {key}");
                assert_eq!(server.queue(key), model.queue(key), "{op:?}: who waits at {key}");
            }
            assert_eq!(server.queues().len(), model.waiting());
        }
    }

    #[test]
    fn no_owner_waits_for_itself_and_each_reported_deadlock_is_one(ops in program(ALONE, 60)) {
        Run::new(true).check(&ops);
    }

    #[test]
    fn no_task_waits_for_itself_and_each_reported_deadlock_is_one(
        ops in program(OF_TASKS, 60),
        apart in prop::bool::weighted(0.8),
    ) {
        Run::new(apart).check(&ops);
    }
}

/// Programs that once found faults.
#[test]
fn programs_that_once_found_faults_pass() {
    check(&[
        // A move at one key closes a cycle through another one.
        "3 reads 2; 1 reads 1; 2 reads 0; 1 writes 2; 0 wants 03; 3 reads 1; 2 wants 123",
        // A request moves, and then the wait is still refused: its keys have to be settled.
        "3 reads 0; 0 wants 2; 1 wants 013; 0 wants 03; 3 wants 12",
        // A request has to move twice.
        "3 reads 1; 1 reads 0; 0 wants 03; 2 reads 0; 1 wants 13; 4 wants 2; 4 reads 3; 1 releases 0; 3 wants 23",
        // Cycles through places behind other requests hide a deadlock.
        "0 wants 3; 0 reads 0; 3 reads 3; 3 is deleted; 2 reads 0; 3 wants 012; 2 wants 123",
        // A reader has become a writer while requests wait, and closes a cycle through another key.
        "4 writes 3; 0 reads 1; 1 wants 012; 4 reads 0; 0 reads 0; 0 writes 0; 0 reads 3",
    ]);
}
