//! Every program of a few steps, by three owners at one key, run on the queues and on the model.
//!
//! Random programs find faults that need many steps. This finds all that need few.

use super::program::{Op, Program};
use super::run::run;
use super::server::{Asked, Patience};

const OWNERS: usize = 3;
const STEPS: usize = 4;
const KEY: usize = 0;
const LEASE: u64 = 40;

/// Requests the lock, and waits.
fn ask(owner: usize, write: bool, holds: Option<u32>, limit: Option<u32>) -> Op {
    let asked = Asked {
        owner,
        write,
        lease: LEASE,
        holds,
        limit,
        fence: None,
        client: 0,
    };
    Op::Ask {
        key: KEY,
        asked,
        patience: Patience::Endless,
    }
}

/// The possible steps of one owner.
fn of_owner(owner: usize) -> Vec<Op> {
    let new_owner = (owner + 1) % OWNERS;
    vec![
        ask(owner, false, None, Some(2)),
        ask(owner, false, Some(2), Some(2)),
        ask(owner, false, Some(1), None),
        ask(owner, true, None, None),
        Op::Release {
            key: KEY,
            owner,
            write: false,
            all: false,
        },
        Op::PassOn {
            key: KEY,
            owner,
            new_owner,
            lease: 2 * LEASE,
        },
        Op::Revoke { key: KEY, owner },
    ]
}

#[test]
fn every_short_program_gives_the_same_on_the_queues_and_the_model() {
    let mut ops: Vec<Op> = (0..OWNERS).flat_map(of_owner).collect();
    // Owners are identical, so the first step can be the first owner's.
    let first = ops.len() / OWNERS;
    ops.extend([Op::Pass(LEASE), Op::Undo(0)]);
    let programs = first * ops.len().pow(STEPS as u32 - 1);
    let mut program = Program {
        ignore_cycles: false,
        slice: None,
        ops: vec![ops[0]; STEPS],
    };
    for number in 0..programs {
        let mut rest = number / first;
        program.ops[0] = ops[number % first];
        for step in &mut program.ops[1..] {
            *step = ops[rest % ops.len()];
            rest /= ops.len();
        }
        run(&program);
    }
}
