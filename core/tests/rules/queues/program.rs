//! Random programs: steps of clients, time and the key space.

use proptest::prelude::*;

use super::server::{Asked, DBS, KEYS, Patience};

/// Some of the owners are one task.
const OWNERS: [usize; 5] = [0, 1, 4, 5, 6];

fn owner() -> impl Strategy<Value = usize> {
    prop::sample::select(&OWNERS[..])
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Ask {
        key: usize,
        asked: Asked,
        patience: Patience,
    },
    Release {
        key: usize,
        owner: usize,
        write: bool,
        all: bool,
    },
    Renew {
        key: usize,
        owner: usize,
        lease: u64,
    },
    PassOn {
        key: usize,
        owner: usize,
        new_owner: usize,
        lease: u64,
    },
    Revoke {
        key: usize,
        owner: usize,
    },
    /// Time passes, but no timer fires.
    Pass(u64),
    /// The timers check leases, wait limits and marked keys.
    Timers,
    /// A waiter leaves.
    Leave(usize),
    /// A waiter repeats its request.
    TakeOver(usize, Asked, Patience),
    /// One of the last grants to waiters could not be delivered.
    Undo(usize),
    /// A change of the key space, which only marks keys.
    KeySpace(KeySpace),
    Grace(bool),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum KeySpace {
    Delete(usize),
    Rename { from: usize, to: usize },
    Copy { from: usize, to: usize },
    SwapDb,
    Flush(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) ignore_cycles: bool,
    /// How many waiters a settle decides in one step, if not all.
    pub(crate) slice: Option<usize>,
    pub(crate) ops: Vec<Op>,
}

pub(crate) fn programs() -> impl Strategy<Value = Program> {
    // More requests meet on fewer keys.
    let slice = prop::option::of(1..4_usize);
    (1..=KEYS, any::<bool>(), slice).prop_flat_map(|(keys, ignore_cycles, slice)| {
        prop::collection::vec(op(keys), 1..100).prop_map(move |ops| Program {
            ignore_cycles,
            slice,
            ops,
        })
    })
}

pub(crate) fn op(keys: usize) -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (0..keys, asked(), patience())
            .prop_map(|(key, asked, patience)| Op::Ask { key, asked, patience }),
        16 => (0..keys, owner(), any::<bool>(), any::<bool>())
            .prop_map(|(key, owner, write, all)| Op::Release { key, owner, write, all }),
        2 => (0..keys, owner(), 1..60_u64)
            .prop_map(|(key, owner, lease)| Op::Renew { key, owner, lease }),
        4 => (0..keys, owner(), owner(), 1..80_u64)
            .prop_map(|(key, owner, new_owner, lease)| Op::PassOn { key, owner, new_owner, lease }),
        2 => (0..keys, owner()).prop_map(|(key, owner)| Op::Revoke { key, owner }),
        6 => (0..20_u64).prop_map(Op::Pass),
        4 => Just(Op::Timers),
        4 => (0..64_usize).prop_map(Op::Leave),
        2 => (0..64_usize, asked(), patience())
            .prop_map(|(nth, asked, patience)| Op::TakeOver(nth, asked, patience)),
        4 => (0..4_usize).prop_map(Op::Undo),
        4 => key_space(keys).prop_map(Op::KeySpace),
        1 => prop::bool::weighted(0.3).prop_map(Op::Grace),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    let lease = prop_oneof![3 => 1..80_u64, 2 => Just(100_000)];
    let holds = prop_oneof![
        6 => Just(None),
        1 => (1..4_u32).prop_map(Some),
        1 => Just(Some((1 << 31) - 1)),
    ];
    let limit = prop_oneof![1 => Just(None), 2 => (1..6_u32).prop_map(Some)];
    let fence = prop_oneof![4 => Just(None), 1 => (1..3_000_000_u64).prop_map(Some)];
    let asked = (owner(), any::<bool>(), lease, holds, limit, fence);
    asked.prop_map(|(owner, write, lease, holds, limit, fence)| Asked {
        owner,
        write,
        lease,
        holds,
        limit: limit
            .filter(|_| !write)
            .map(|limit| limit.max(holds.unwrap_or(1))),
        fence,
        client: 0,
    })
}

fn patience() -> impl Strategy<Value = Patience> {
    prop_oneof![
        1 => Just(Patience::None),
        2 => (1..60_u64).prop_map(Patience::Millis),
        3 => Just(Patience::Endless),
    ]
}

fn key_space(keys: usize) -> impl Strategy<Value = KeySpace> {
    prop_oneof![
        3 => (0..keys).prop_map(KeySpace::Delete),
        3 => (0..keys, 0..keys).prop_map(|(from, to)| KeySpace::Rename { from, to }),
        2 => (0..keys, 0..keys).prop_map(|(from, to)| KeySpace::Copy { from, to }),
        1 => Just(KeySpace::SwapDb),
        1 => (0..DBS).prop_map(KeySpace::Flush),
    ]
}
