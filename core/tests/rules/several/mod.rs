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

fn read(owner: usize, key: usize) -> Op {
    let write = false;
    Op::Ask { owner, key, write }
}

fn write(owner: usize, key: usize) -> Op {
    let write = true;
    Op::Ask { owner, key, write }
}

fn several(owner: usize, keys: u8) -> Op {
    Op::Several { owner, keys }
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
        let mut server = Server::default();
        server.ignore_cycles = true;
        let mut model = Reference::default();
        for op in ops {
            let expected = model.run(op);
            assert_eq!(server.run(op), expected, "{op:?}");
            for key in 0..KEYS {
                assert_eq!(server.holders(key), model.holders(key), "{op:?}: who holds {key}");
                assert_eq!(server.queue(key), model.queue(key), "{op:?}: who waits at {key}");
            }
            assert_eq!(server.queues.len(), model.waiting());
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
    let programs = [
        // A move at one key closes a cycle through another one.
        vec![
            read(3, 2),
            read(1, 1),
            read(2, 0),
            write(1, 2),
            several(0, 0b1001),
            read(3, 1),
            several(2, 0b1110),
        ],
        // A request moves, and then the wait is still refused: its keys have to be settled.
        vec![
            read(3, 0),
            several(0, 0b0100),
            several(1, 0b1011),
            several(0, 0b1001),
            several(3, 0b0110),
        ],
        // A request has to move twice.
        vec![
            read(3, 1),
            read(1, 0),
            several(0, 0b1001),
            read(2, 0),
            several(1, 0b1010),
            several(4, 0b0100),
            read(4, 3),
            Op::Release { owner: 1, key: 0 },
            several(3, 0b1100),
        ],
        // Cycles through places behind other requests hide a deadlock.
        vec![
            several(0, 0b1000),
            read(0, 0),
            read(3, 3),
            Op::Del { key: 3 },
            read(2, 0),
            several(3, 0b0111),
            several(2, 0b1110),
        ],
    ];
    for program in programs {
        Run::new(true).check(&program);
    }
}
