//! Who holds and who waits at every key, and which task waits for which: found by walking every queue.

use mortise_core::Mode;

use super::Op;
use super::server::{KEYS, Server, Waiting, key_id, owner_number, task_of};

/// A request in one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: usize,
    pub(super) write: bool,
    pub(super) several: bool,
    pub(super) upgrade: bool,
}

/// A key at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyScene {
    /// Owners, and whether each holds write.
    pub(super) holders: Vec<(usize, bool)>,
    /// The next one first.
    pub(super) queue: Vec<Place>,
}

/// All keys at one moment.
#[derive(Clone, Debug)]
pub(super) struct Scene(pub(super) Vec<KeyScene>);

/// Which waits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    All,
    /// Not those for a MACQUIRE ahead: "a cycle through a place behind a MACQUIRE is no deadlock."
    Real,
}

/// A request of owner `from` waits for owner `to` at `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: usize,
    key: usize,
    to: usize,
}

impl Edge {
    /// "The owners of one task count as one in the search: what one of them waits for, the task waits for. But a task's own holds and
    /// requests on the same key are no deadlock."
    fn leads_to(self, next: Edge) -> bool {
        task_of(self.to) == task_of(next.from) && (self.key != next.key || self.to == next.from)
    }
}

impl Scene {
    pub(super) fn of(server: &Server) -> Self {
        let scene = |key: usize| {
            let id = key_id(key);
            let holders = server.holders(key);
            let queue = server.queues().get(id.as_ref()).into_iter();
            let waiters = queue.flat_map(|queue| queue.iter());
            let places = waiters.map(|waiter| {
                let owner = owner_number(&waiter.owner);
                Place {
                    owner,
                    write: waiter.terms.mode() == Mode::Write,
                    several: waiter.terms.sharing.keys().is_some(),
                    upgrade: holders.contains(&(owner, false)),
                }
            });
            let queue = places.collect();
            KeyScene { holders, queue }
        };
        Self((0..KEYS).map(scene).collect())
    }

    /// The same once `op` has passed a hold on, or a request has begun to wait. Nobody has been granted anything.
    pub(super) fn with(self, op: Op, wait: Option<&Waiting>) -> Self {
        match (op, wait) {
            (
                Op::Pass {
                    owner,
                    new_owner,
                    key,
                },
                _,
            ) => self.passed(owner, new_owner, key),
            (_, Some(wait)) => self.waiting(wait),
            (_, None) => self,
        }
    }

    fn waiting(mut self, wait: &Waiting) -> Self {
        for key in &wait.keys {
            let queue = &mut self.0[*key].queue;
            let at = match wait.upgrade {
                true => queue.iter().take_while(|other| other.upgrade).count(),
                false => queue.len(),
            };
            let place = Place {
                owner: wait.owner,
                write: wait.write,
                several: wait.several,
                upgrade: wait.upgrade,
            };
            queue.insert(at, place);
        }
        self
    }

    /// "If the owner comes to hold one of the keys in another way (PASS, RESTORE,
    /// RENAME), the waiting request is answered with an error."
    fn passed(mut self, owner: usize, new_owner: usize, key: usize) -> Self {
        let is_several = |place: &Place| place.owner == new_owner && place.several;
        if self.0[key].queue.iter().any(is_several) {
            for key in &mut self.0 {
                key.queue.retain(|place| !is_several(place));
            }
        }
        for (holder, _) in &mut self.0[key].holders {
            if *holder == owner {
                *holder = new_owner;
            }
        }
        self
    }

    /// "A request waits for every other owner that holds incompatibly, and for every other owner ahead of it in the queue with an
    /// incompatible request or a MACQUIRE."
    fn edges(&self, waits: Waits) -> Vec<Edge> {
        let mut edges = Vec::new();
        for (key, KeyScene { holders, queue }) in self.0.iter().enumerate() {
            for (at, place) in queue.iter().enumerate() {
                let holders = holders.iter().filter(|(_, writes)| *writes || place.write);
                let holders = holders.map(|(holder, _)| *holder);
                let ahead = queue[..at].iter().filter(|ahead| match ahead.several {
                    true => waits == Waits::All,
                    false => ahead.write || place.write,
                });
                let ahead = ahead.map(|ahead| ahead.owner);
                let from = place.owner;
                let others = holders.chain(ahead).filter(|to| *to != from);
                edges.extend(others.map(|to| Edge { from, key, to }));
            }
        }
        edges
    }

    /// A task waits for itself through other tasks, of which each is there once.
    pub(super) fn cycle(&self, waits: Waits) -> Option<Edge> {
        let edges = self.edges(waits);
        let mut starts = edges.iter();
        let found = starts.find(|start| {
            is_closed(&edges, **start) && {
                let mut tasks = vec![task_of(start.from)];
                is_closed_by(&edges, **start, **start, &mut tasks)
            }
        });
        found.copied()
    }

    /// A chain of waits leads from some request to itself.
    pub(super) fn any_closed(&self, waits: Waits) -> bool {
        let edges = self.edges(waits);
        edges.iter().any(|start| is_closed(&edges, *start))
    }
}

/// A chain of waits leads from `start` back to it.
fn is_closed(edges: &[Edge], start: Edge) -> bool {
    let (mut seen, mut pending) = (vec![false; edges.len()], vec![start]);
    while let Some(edge) = pending.pop() {
        for (at, next) in edges.iter().enumerate() {
            if edge.leads_to(*next) && !std::mem::replace(&mut seen[at], true) {
                if *next == start {
                    return true;
                }
                pending.push(*next);
            }
        }
    }
    false
}

/// The same for a chain that goes on from `edge`, and meets none of these tasks before.
fn is_closed_by(edges: &[Edge], start: Edge, edge: Edge, tasks: &mut Vec<usize>) -> bool {
    if edge.leads_to(start) {
        return true;
    }
    let task = task_of(edge.to);
    if tasks.contains(&task) {
        return false;
    }
    tasks.push(task);
    let mut next = edges.iter().filter(|next| edge.leads_to(**next));
    let closed = next.any(|next| is_closed_by(edges, start, *next, tasks));
    tasks.pop();
    closed
}
