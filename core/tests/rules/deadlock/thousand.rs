//! Among a thousand owners the search misses no cycle and invents none: random graphs of that size, compared with an exhaustive
//! search of the whole graph.
//!
//! Each owner reads one lock at most, in crowds of every size, and holds any number alone. How much more an owner may have
//! before the search gives up is in `docs/waiting.md`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use mortise_core::{Mode, Owner};

use super::crowd::{Crowd, key, owner, wait};

/// A thousand with the requesters.
const WAITING: usize = 960;
const ASKING: usize = 40;

/// Where an owner waits, and where it reads.
#[derive(Clone, Copy, Debug)]
struct Place {
    waits: (u32, Mode),
    reads: Option<u32>,
}

#[derive(Clone, Debug)]
struct Plan {
    keys: usize,
    /// One key in this many is read, by the owners that choose it; the others have one holder each.
    shared: usize,
    owners: Vec<Place>,
    /// The holders of the other keys.
    alone: Vec<u32>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let mode = prop::bool::weighted(0.7).prop_map(|write| match write {
        true => Mode::Write,
        false => Mode::Read,
    });
    let reads = prop::option::weighted(0.6, any::<u32>());
    let place = (any::<u32>(), mode, reads).prop_map(|(key, mode, reads)| Place {
        waits: (key, mode),
        reads,
    });
    (
        prop::sample::select(&[12, 60, 300, 700][..]),
        2..=6_usize,
        prop::collection::vec(place, WAITING + ASKING),
        prop::collection::vec(any::<u32>(), 700),
    )
        .prop_map(|(keys, shared, owners, alone)| Plan {
            keys,
            shared,
            owners,
            alone,
        })
}

/// The holders and waiters of each key, and where each owner waits.
#[derive(Default)]
struct Graph {
    holders: Vec<Vec<(usize, Mode)>>,
    queues: Vec<Vec<(usize, Mode)>>,
    waits: Vec<Option<usize>>,
}

fn conflict(one: Mode, other: Mode) -> bool {
    one == Mode::Write || other == Mode::Write
}

impl Graph {
    /// The owners for which the owner's request for `mode` waits at the key, standing behind `ahead`.
    fn waited_for(
        &self,
        asker: usize,
        key: usize,
        mode: Mode,
        ahead: &[(usize, Mode)],
    ) -> Vec<usize> {
        let holders = self.holders[key].iter();
        let all = holders.chain(ahead);
        all.filter(|(other, held)| *other != asker && conflict(mode, *held))
            .map(|(other, _)| *other)
            .collect()
    }

    /// All owners that `asker`'s wait at the end of the queue leads to.
    fn reached(&self, asker: usize, key: usize, mode: Mode) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut pending = self.waited_for(asker, key, mode, &self.queues[key]);
        while let Some(owner) = pending.pop() {
            if !reached.insert(owner) {
                continue;
            }
            let Some(key) = self.waits[owner] else {
                continue;
            };
            let queue = &self.queues[key];
            let at = queue.iter().position(|(other, _)| *other == owner);
            let at = at.expect("it waits there");
            pending.extend(self.waited_for(owner, key, queue[at].1, &queue[..at]));
        }
        reached
    }
}

fn name(number: usize) -> Owner {
    owner("owner", number)
}

fn build(plan: &Plan) -> (Crowd, Graph) {
    let (mut crowd, mut graph) = (Crowd::default(), Graph::default());
    graph.holders = vec![Vec::new(); plan.keys];
    graph.queues = vec![Vec::new(); plan.keys];
    graph.waits = vec![None; plan.owners.len()];
    let is_shared = |key: usize| key.is_multiple_of(plan.shared);
    let shared = plan.keys.div_ceil(plan.shared);
    for (number, place) in plan.owners.iter().enumerate() {
        if let Some(reads) = place.reads {
            let at = reads as usize % shared * plan.shared;
            crowd.hold(key(at), &name(number), Mode::Read);
            graph.holders[at].push((number, Mode::Read));
        }
    }
    for at in (0..plan.keys).filter(|at| !is_shared(*at)) {
        let holder = plan.alone[at] as usize % plan.owners.len();
        crowd.hold(key(at), &name(holder), Mode::Write);
        graph.holders[at].push((holder, Mode::Write));
    }
    for (number, place) in plan.owners[..WAITING].iter().enumerate() {
        let (at, mode) = (place.waits.0 as usize % plan.keys, place.waits.1);
        if graph.holders[at]
            .iter()
            .any(|(holder, _)| *holder == number)
        {
            continue;
        }
        crowd.push(wait(key(at), name(number), mode));
        graph.queues[at].push((number, mode));
        graph.waits[number] = Some(at);
    }
    (crowd, graph)
}

proptest! {
    #![proptest_config(super::config_of(40))]

    #[test]
    fn the_search_misses_and_invents_no_cycle_among_a_thousand_owners(plan in plans()) {
        let (mut crowd, graph) = build(&plan);
        for (asker, place) in plan.owners.iter().enumerate().skip(WAITING) {
            let (at, mode) = (place.waits.0 as usize % plan.keys, place.waits.1);
            if graph.holders[at].iter().any(|(holder, _)| *holder == asker) {
                continue;
            }
            let reached = graph.reached(asker, at, mode);
            let closes = crowd.closes(&wait(key(at), name(asker), mode));
            prop_assert_eq!(closes, reached.contains(&asker), "{} reached", reached.len());
        }
    }
}
