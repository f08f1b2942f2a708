//! Which owner waits for which, computed from every queue.

use mortise_core::{Mode, Rank};

use super::Op;
use super::server::{KEYS, OWNERS, Server, Waiting, key_id, owner_number};

/// A request in one queue.
#[derive(Clone, Copy, Debug)]
struct Place {
    owner: usize,
    write: bool,
    several: bool,
}

/// By owner, the owners for which it waits.
type Graph = [[bool; OWNERS]; OWNERS];

fn places(server: &Server, key: usize) -> Vec<Place> {
    let id = key_id(key);
    let queue = server.queues.get(id.as_ref()).into_iter();
    let waiters = queue.flat_map(|queue| queue.iter());
    let places = waiters.map(|waiter| Place {
        owner: owner_number(&waiter.owner),
        write: waiter.terms.mode() == Mode::Write,
        several: waiter.terms.sharing.keys().is_some(),
    });
    places.collect()
}

/// "A request waits for every other owner that holds incompatibly, and for every other owner ahead of it in the queue with an
/// incompatible request or a MACQUIRE." `behind_several`: whether a place behind a MACQUIRE counts.
fn add(graph: &mut Graph, server: &Server, key: usize, queue: &[Place], behind_several: bool) {
    for (at, place) in queue.iter().enumerate() {
        for (holder, writes) in server.holders(key) {
            graph[place.owner][holder] |= holder != place.owner && (writes || place.write);
        }
        for ahead in &queue[..at] {
            let waits = match ahead.several {
                true => behind_several,
                false => ahead.write || place.write,
            };
            graph[place.owner][ahead.owner] |= waits;
        }
    }
}

fn reaches(graph: &Graph, from: usize, to: usize) -> bool {
    let mut seen = [false; OWNERS];
    let mut pending = vec![from];
    while let Some(owner) = pending.pop() {
        for next in 0..OWNERS {
            if graph[owner][next] && !std::mem::replace(&mut seen[next], true) {
                pending.push(next);
            }
        }
    }
    seen[to]
}

/// Checks that no owner waits for itself, directly or through others.
pub(super) fn assert_no_cycle(server: &Server, op: Op) {
    let mut graph = Graph::default();
    for key in 0..KEYS {
        add(&mut graph, server, key, &places(server, key), true);
    }
    for owner in 0..OWNERS {
        assert!(
            !reaches(&graph, owner, owner),
            "{op:?}: owner {owner} waits for itself"
        );
    }
}

/// Whether the request would have closed a cycle without a place behind a MACQUIRE.
pub(super) fn closes_cycle(server: &Server, wait: &Waiting) -> bool {
    let mut graph = Graph::default();
    for key in 0..KEYS {
        let mut queue = places(server, key);
        if wait.keys.contains(&key) {
            let place = Place {
                owner: wait.owner,
                write: wait.write,
                several: wait.several,
            };
            match wait.rank {
                Rank::Line => queue.push(place),
                _ => queue.insert(0, place),
            }
        }
        add(&mut graph, server, key, &queue, false);
    }
    reaches(&graph, wait.owner, wait.owner)
}
