//! Who waits for whom, by the letter of the contract, section 2, "Deadlock": a graph of owners
//! that is built whole and searched by force.

use std::collections::BTreeSet;

/// A request that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) owner: usize,
    pub(crate) write: bool,
    /// It stands among the upgrades, ahead of the line.
    pub(crate) upgrade: bool,
}

/// A key at one moment: who holds with a lease that runs, and who waits, the next one first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Owners, and whether each holds write.
    pub(crate) holds: Vec<(usize, bool)>,
    pub(crate) queue: Vec<Ask>,
}

impl Scene {
    /// An owner's later requests stand where its first one does, because they are decided when
    /// that is granted.
    fn place(&self, owner: usize) -> Option<usize> {
        self.queue.iter().position(|ask| ask.owner == owner)
    }

    fn is_held_by(&self, owner: usize) -> bool {
        self.holds.iter().any(|(holder, _)| *holder == owner)
    }

    /// Re-entry, for which only a grace lets anybody wait: it is decided before anybody else is.
    fn is_reentry(&self, ask: Ask) -> bool {
        !ask.upgrade && self.is_held_by(ask.owner)
    }

    /// An upgrade whose read hold has ended: it is about to be answered.
    fn is_lost(&self, ask: Ask) -> bool {
        ask.upgrade && !self.is_held_by(ask.owner)
    }

    /// "It waits for every other owner that holds incompatibly, and for every other owner that
    /// stands ahead of it in the queue with an incompatible request."
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
        all.remove(&ask.owner);
        all
    }

    /// `ask` begins to wait: behind the other upgrades, or behind all.
    pub(crate) fn push(&mut self, ask: Ask) {
        let place = if ask.upgrade {
            self.queue.iter().take_while(|other| other.upgrade).count()
        } else {
            self.queue.len()
        };
        self.queue.insert(place, ask);
    }
}

/// `from` waits for `to` at `key`.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    key: usize,
}

fn edges(scenes: &[Scene]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (key, scene) in scenes.iter().enumerate() {
        for &ask in &scene.queue {
            for to in scene.waited_for(ask) {
                let from = ask.owner;
                edges.push(Edge { from, to, key });
            }
        }
    }
    edges
}

/// A wait that is about to begin, or that has become an upgrade and stands in the queue already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) key: usize,
    pub(crate) ask: Ask,
    pub(crate) is_queued: bool,
}

impl Wait {
    /// The scenes once it waits.
    pub(crate) fn added_to(self, scenes: &[Scene]) -> Vec<Scene> {
        let mut scenes = scenes.to_vec();
        if !self.is_queued {
            scenes[self.key].push(self.ask);
        }
        scenes
    }

    /// It closes a cycle: somebody whom it waits for waits, through any chain, for its owner.
    ///
    /// Where its owner waits already it stands ahead of others, who come to wait for it: there
    /// every wait of the owner counts.
    pub(crate) fn closes_a_cycle(self, scenes: &[Scene]) -> bool {
        let owner = self.ask.owner;
        let stood = scenes[self.key].place(owner).is_some();
        let scenes = self.added_to(scenes);
        let edges = edges(&scenes);
        let mut reached = if stood {
            let own = edges.iter().filter(|edge| edge.from == owner);
            own.map(|edge| edge.to).collect()
        } else {
            scenes[self.key].waited_for(self.ask)
        };
        loop {
            let more: Vec<usize> = edges
                .iter()
                .filter(|edge| reached.contains(&edge.from) && !reached.contains(&edge.to))
                .map(|edge| edge.to)
                .collect();
            if more.is_empty() {
                return reached.contains(&owner);
            }
            reached.extend(more);
        }
    }
}

/// `keys` is the right answer to whether `wait` closes a cycle in `scenes`, and where. Among
/// requests that wait out a grace an alarm may be false, but none may be missing.
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
    let owner = wait.ask.owner;
    assert!(
        is_cycle(&with, owner, keys),
        "{keys:?} for {wait:?} in {scenes:?}"
    );
    // Its own key comes first, unless the cycle was there before.
    if keys[0] != wait.key {
        assert!(!keys.contains(&wait.key), "{keys:?} for {wait:?}");
        assert!(
            is_cycle(&edges(scenes), owner, keys),
            "{keys:?} for {wait:?}"
        );
    }
}

/// There is a closed walk through `owner` that comes upon new keys in the order of `keys`, and
/// upon no others. It may begin anywhere on the cycle.
fn is_cycle(edges: &[Edge], owner: usize, keys: &[usize]) -> bool {
    let distinct: BTreeSet<&usize> = keys.iter().collect();
    distinct.len() == keys.len()
        && edges
            .iter()
            .any(|edge| walks(edges, edge.from, owner, keys))
}

/// From `start` back to `start` by way of `owner`.
fn walks(edges: &[Edge], start: usize, owner: usize, keys: &[usize]) -> bool {
    // Where the walk stands, how many of the keys it has come upon, and whether it met `owner`.
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
