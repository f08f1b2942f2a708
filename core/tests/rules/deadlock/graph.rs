//! The graph of all waits, built literally from the contract, section 2, "Deadlock", and searched exhaustively.

use std::collections::BTreeSet;

use crate::queues::server::task;

/// A request that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) owner: usize,
    pub(crate) write: bool,
    /// It stands among the upgrades, ahead of the queue.
    pub(crate) upgrade: bool,
    /// How many permits it takes, and what its limit is.
    pub(crate) permits: u32,
    pub(crate) limit: Option<u32>,
}

/// A key at one moment: holders with a running lease, and waiters in queue order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Owners, and whether each holds write.
    pub(crate) holds: Vec<(usize, bool)>,
    /// The read count of each.
    pub(crate) reads: Vec<u64>,
    pub(crate) queue: Vec<Ask>,
}

impl Scene {
    /// An owner's later requests stand where its first one does: they are decided when that one
    /// is granted.
    fn place(&self, owner: usize) -> Option<usize> {
        self.queue.iter().position(|ask| ask.owner == owner)
    }

    fn is_held_by(&self, owner: usize) -> bool {
        self.holds.iter().any(|(holder, _)| *holder == owner)
    }

    /// Re-entry, which waits only in a grace: it is decided before all other requests.
    fn is_reentry(&self, ask: Ask) -> bool {
        !ask.upgrade && self.is_held_by(ask.owner)
    }

    /// An upgrade whose read hold has ended: it is about to get null.
    fn is_lost(&self, ask: Ask) -> bool {
        ask.upgrade && !self.is_held_by(ask.owner)
    }

    /// "A request waits for every other owner that holds incompatibly, and for every other owner ahead of it in the queue with an
    /// incompatible request. Behind a compatible request that waits for its limit, it waits for whatever owners the compatible
    /// one waits for, but not for the other waits of that one's owner."
    fn waited_for(&self, ask: Ask) -> BTreeSet<usize> {
        if self.is_reentry(ask) {
            return BTreeSet::new();
        }
        let holders = self
            .holds
            .iter()
            .filter(|(_, write)| ask.write || *write)
            .map(|(owner, _)| *owner);
        let ahead = self
            .queue
            .iter()
            .filter(|other| self.place(other.owner) < self.place(ask.owner))
            .filter(|other| ask.write || other.write)
            .map(|other| other.owner);
        let mut all: BTreeSet<usize> = holders.chain(ahead).collect();
        all.extend(self.only_reader().filter(|_| self.waits_for_limit(ask)));
        for other in &self.queue {
            // The owner's first request is ahead, too.
            let is_ahead = self.place(other.owner) <= self.place(ask.owner) && *other != ask;
            let is_compatible = !ask.write && !other.write;
            if is_ahead && is_compatible && self.waits_for_limit(*other) {
                all.extend(self.waited_for(*other));
            }
        }
        all.remove(&ask.owner);
        all
    }

    /// "A request that waits for a limit waits for the reading owner if there is only one."
    fn only_reader(&self) -> Option<usize> {
        match self.holds[..] {
            [(reader, false)] => Some(reader),
            _ => None,
        }
    }

    /// The request is the first of an owner that holds nothing, and the holds leave no room for it. (Later ones are decided
    /// when the first one is granted, and a holder never waits for a limit.)
    fn waits_for_limit(&self, ask: Ask) -> bool {
        let first = self.queue.iter().find(|other| other.owner == ask.owner);
        let reads: u64 = self.reads.iter().sum();
        let is_past = ask
            .limit
            .is_some_and(|limit| reads + u64::from(ask.permits) > u64::from(limit));
        is_past && first == Some(&ask) && !self.is_held_by(ask.owner)
    }

    /// Queues `ask` behind the other upgrades, or behind all.
    pub(crate) fn push(&mut self, ask: Ask) {
        let place = if ask.upgrade {
            self.queue.iter().take_while(|other| other.upgrade).count()
        } else {
            self.queue.len()
        };
        self.queue.insert(place, ask);
    }
}

/// Task `from` waits for task `to` at `key`.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    key: usize,
}

/// "The owners of one task count as one here: what one of them waits for, the task waits for."
fn edges(scenes: &[Scene]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (key, ask) in asks(scenes) {
        for to in scenes[key].waited_for(ask) {
            let (from, to) = (task(ask.owner), task(to));
            edges.push(Edge { from, to, key });
        }
    }
    edges
}

/// Every request, and the key where it waits.
fn asks(scenes: &[Scene]) -> impl Iterator<Item = (usize, Ask)> {
    let scenes = scenes.iter().enumerate();
    scenes.flat_map(|(key, scene)| scene.queue.iter().map(move |ask| (key, *ask)))
}

/// A wait that is about to begin, or a queued one that has become an upgrade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) key: usize,
    pub(crate) ask: Ask,
    pub(crate) is_queued: bool,
}

impl Wait {
    /// The scenes after it has begun.
    pub(crate) fn added_to(self, scenes: &[Scene]) -> Vec<Scene> {
        let mut scenes = scenes.to_vec();
        if !self.is_queued {
            scenes[self.key].push(self.ask);
        }
        scenes
    }

    /// Whether it closes a cycle: an owner that it waits for waits, through any chain, for its task.
    /// "But its own holds and requests on the same key are no deadlock": at its own key the chain has
    /// to lead back to its own owner.
    ///
    /// If its owner waits already, it stands ahead of others, which then wait for it: there, a chain
    /// also counts that begins with any wait of its task and ends with this one.
    pub(crate) fn closes_a_cycle(self, scenes: &[Scene]) -> bool {
        let owner = self.ask.owner;
        let stood = scenes[self.key].place(owner).is_some();
        let scenes = self.added_to(scenes);
        let at_own = |(key, waited_for): (usize, usize)| key == self.key && waited_for == owner;
        let own = vec![(self.key, self.ask)];
        if self.leads_back(&scenes, own, |at| at.0 != self.key || at_own(at)) {
            return true;
        }
        let others = asks(&scenes)
            .filter(|(key, ask)| stood && *key != self.key && task(ask.owner) == task(owner));
        let others = others.collect();
        self.leads_back(&scenes, others, at_own)
    }

    /// Whether a chain from one of `waits` leads through another task back to its own, at a key and for an
    /// owner that count as `back`.
    fn leads_back(
        self,
        scenes: &[Scene],
        waits: Vec<(usize, Ask)>,
        back: impl Fn((usize, usize)) -> bool,
    ) -> bool {
        let own = task(self.ask.owner);
        let starts = waits.into_iter().map(|(key, ask)| (key, ask, false));
        let (mut pending, mut reached) = (starts.collect::<Vec<_>>(), BTreeSet::new());
        // The last field: whether the chain has passed another task.
        while let Some((key, ask, left)) = pending.pop() {
            for other in scenes[key].waited_for(ask) {
                let is_own = task(other) == own;
                if is_own && left && back((key, other)) {
                    return true;
                }
                let left = left || !is_own;
                if !reached.insert((key, other, left)) {
                    continue;
                }
                // At one key each name of a task counts by itself. And the requester's task waits elsewhere with or without this wait.
                let next = asks(scenes).filter(|(at, ask)| {
                    let elsewhere = *at != key && !is_own && task(ask.owner) == task(other);
                    elsewhere || *at == key && ask.owner == other
                });
                pending.extend(next.map(|(key, ask)| (key, ask, left)));
            }
        }
        false
    }
}

/// Checks that `keys` names a cycle that `wait` closes in `scenes`, or none if there is none. During
/// a grace a deadlock may be reported falsely, but none may be missed.
pub(crate) fn check_answer(scenes: &[Scene], wait: Wait, keys: Option<&[usize]>) {
    let any = |is: fn(&Scene, Ask) -> bool| {
        let mut scenes = scenes.iter();
        scenes.any(|scene| scene.queue.iter().any(|ask| is(scene, *ask)))
    };
    let closes = wait.closes_a_cycle(scenes);
    if any(Scene::is_lost) {
        return;
    }
    if any(Scene::is_reentry) {
        assert!(keys.is_some() || !closes, "{wait:?} in {scenes:?}");
        return;
    }
    assert_eq!(keys.is_some(), closes, "{wait:?} in {scenes:?}: {keys:?}");
    let Some(keys) = keys else { return };
    let with = edges(&wait.added_to(scenes));
    let owner = task(wait.ask.owner);
    assert!(
        is_cycle(&with, owner, keys),
        "{keys:?} for {wait:?} in {scenes:?}"
    );
    assert_eq!(keys[0], wait.key, "{keys:?} for {wait:?}");
}

/// Whether a closed walk through `owner` meets exactly `keys`, each first in this order. It may begin anywhere on the cycle.
fn is_cycle(edges: &[Edge], owner: usize, keys: &[usize]) -> bool {
    let distinct: BTreeSet<&usize> = keys.iter().collect();
    distinct.len() == keys.len()
        && edges
            .iter()
            .any(|edge| walks(edges, edge.from, owner, keys))
}

/// Whether a walk leads from `start` through `owner` back to `start`.
fn walks(edges: &[Edge], start: usize, owner: usize, keys: &[usize]) -> bool {
    // Where the walk is, how many of the keys it has met, and whether it has met `owner`.
    let mut states = vec![(start, 0, start == owner)];
    let mut next = 0;
    while let Some(&(at, seen, met)) = states.get(next) {
        next += 1;
        for edge in edges.iter().filter(|edge| edge.from == at) {
            let seen = match keys.iter().position(|key| *key == edge.key) {
                Some(index) if index <= seen => seen.max(index + 1),
                _ => continue,
            };
            let state = (edge.to, seen, met || edge.to == owner);
            if state == (start, keys.len(), true) {
                return true;
            }
            if !states.contains(&state) {
                states.push(state);
            }
        }
    }
    false
}
