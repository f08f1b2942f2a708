//! The search for a cycle: see `deadlock.rs`.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::Queues;
use super::super::keys::KeyNo;
use super::super::position::Position;
use super::super::waiters::{Name, Stand};
use super::graph::{Graph, Reach, ReachedHolders};
use super::{Cycle, Follow, Link, Start};
use crate::owner::{Owner, OwnerRef};
use crate::types::{Instant, Mode};

/// So many readers, waiters or owners of a task are followed before the others have their turn.
const PAGE: usize = 16;

/// An owner in a queue, and the one whose wait led to it.
#[derive(Clone, Copy)]
struct Node {
    stand: Stand,
    from: Option<usize>,
}

/// What is still to be followed. `from` is the node that led there.
enum Visit {
    Node(usize),
    /// The owners of a task at other keys than that of `from`, or of the start, after `last`.
    Task {
        from: Option<usize>,
        task: u64,
        last: Option<(KeyNo, u64)>,
    },
    /// The tasks in the queue ahead of `to` that wait elsewhere, too.
    Queue {
        from: usize,
        to: Position,
        last: Option<u64>,
    },
    /// The holders of the key, after `last` if there is one.
    Holders {
        from: usize,
        last: Option<Owner>,
    },
}

pub(super) struct Search<'a> {
    graph: Graph<'a>,
    start: &'a Start,
    /// Only a wait for the own owner at its own key closes a cycle.
    only_at_own_key: bool,
    nodes: Vec<Node>,
    /// The owners in `nodes`.
    known: HashSet<(KeyNo, Position)>,
    /// The tasks for which others wait, and at which keys.
    reached: HashSet<(KeyNo, u64)>,
    /// What has been followed at each key.
    followed: HashMap<KeyNo, Reach>,
    pending: VecDeque<Visit>,
    /// The node that closes a cycle.
    closed: Option<usize>,
}

impl<'a> Search<'a> {
    /// The cycle that leads back to `start`, if there is one. `taken` counts the steps of all searches for one request.
    pub(super) fn run(
        queues: &'a Queues,
        start: &'a Start,
        follow: Follow,
        now: Instant,
        taken: &mut usize,
    ) -> Option<Cycle> {
        let mut search = Self {
            graph: Graph {
                queues,
                now,
                follow,
                taken: *taken,
            },
            start,
            only_at_own_key: false,
            nodes: Vec::new(),
            known: HashSet::new(),
            reached: HashSet::new(),
            followed: HashMap::new(),
            pending: VecDeque::new(),
            closed: None,
        };
        search.follow_start();
        let cycle = search.cycle();
        *taken = search.graph.taken;
        cycle
    }

    fn follow_start(&mut self) {
        if self.is_over() || !self.is_waited_for() {
            return;
        }
        if let Some(own) = self.own_stand() {
            self.add(own, None);
        }
        self.follow_pending();
        if !self.start.is_new && !self.is_over() {
            // What was followed leads to no owner of the task, so it need not be followed again.
            self.only_at_own_key = true;
            self.follow_task(None, self.start.name.task, None);
            self.follow_pending();
        }
    }

    /// Whether anybody may wait for the task: mostly nobody does. It holds where others wait, or stands in a queue ahead of others.
    fn is_waited_for(&self) -> bool {
        let (keys, waiters) = (&self.graph.queues.keys, self.graph.waiters());
        let (key, owner) = (self.start.key, self.start.owner.as_ref());
        let elsewhere = |other: &KeyNo| *other != key;
        if !self.start.is_new || self.graph.holds(key, owner) {
            return true;
        }
        let mut shared = keys.shared().filter(elsewhere);
        let holds = |key: KeyNo| {
            let held = self.graph.held(key);
            held.is_held_for_task(owner, None, self.graph.now)
        };
        let mut stands = waiters.stands(self.start.name.task, KeyNo::MIN, None);
        let is_ahead = |stand: &Stand| {
            let behind = stand.position.behind();
            stand.key != key && waiters.first_from(stand.key, behind).is_some()
        };
        keys.held_by_task(owner).any(|key| elsewhere(&key))
            || shared.by_ref().take(PAGE).any(holds)
            || shared.next().is_some()
            || stands.by_ref().take(PAGE).any(|stand| is_ahead(&stand))
            || stands.next().is_some()
    }

    /// The request that the search starts from. Earlier ones of its owner wait with or without it.
    fn own_stand(&self) -> Option<Stand> {
        let Start { key, name, .. } = *self.start;
        let request = self.graph.waiters().get(self.start.request?)?;
        let owner = request.waiter.owner.as_ref();
        // Re-entry only waits for the end of a grace.
        let waits = request.position.is_upgrade() || !self.graph.holds(key, owner);
        let stand = self.graph.waiters().stand(key, name).filter(|_| waits)?;
        Some(Stand {
            writes: request.waiter.terms.mode() == Mode::Write,
            ..stand
        })
    }

    fn is_over(&self) -> bool {
        self.closed.is_some() || self.graph.is_spent()
    }

    /// The owner that stands there is followed later, if it is new.
    fn add(&mut self, stand: Stand, from: Option<usize>) {
        if self.known.insert((stand.key, stand.position)) {
            self.pending.push_back(Visit::Node(self.nodes.len()));
            self.nodes.push(Node { stand, from });
        } else {
            self.graph.spend();
        }
    }

    fn follow_pending(&mut self) {
        while !self.is_over()
            && let Some(visit) = self.pending.pop_front()
        {
            match visit {
                Visit::Node(node) => self.follow_node(node),
                Visit::Task { from, task, last } => self.follow_task(from, task, last),
                Visit::Queue { from, to, last } => self.follow_queue(from, to, last),
                Visit::Holders { from, last } => self.follow_holders(from, last),
            }
        }
    }

    /// Reaches those for whom the owner waits.
    fn follow_node(&mut self, node: usize) {
        self.graph.spend();
        let stand = self.nodes[node].stand;
        let before = self.followed.get(&stand.key).copied();
        let before = before.unwrap_or(Reach {
            ahead_of: Position::FIRST,
            holders: ReachedHolders::None,
        });
        if before.holders == ReachedHolders::All && stand.position <= before.ahead_of {
            return;
        }
        let Some(request) = self.graph.request(&stand) else {
            return;
        };
        let owner = request.owner.as_ref();
        if !stand.position.is_upgrade() && self.graph.holds(stand.key, owner) {
            // Re-entry: only a grace makes it wait, and when that is over it is decided first.
            return;
        }
        let reach = self.graph.reach_of(&stand, self.graph.follow);
        let mut after = before;
        after.ahead_of = reach.ahead_of.max(before.ahead_of);
        if !stand.position.is_upgrade() {
            // A holder does not wait for itself, and another one may.
            after.holders = reach.holders.max(before.holders);
        }
        self.followed.insert(stand.key, after);
        if reach.holders > before.holders && !self.is_over() {
            self.reach_holders(node);
        }
        if reach.ahead_of > before.ahead_of && !self.is_over() {
            self.reach_queue(node, reach.ahead_of);
        }
    }

    fn reach_holders(&mut self, node: usize) {
        match self.closes_at_holders(node) {
            true => self.closed = Some(node),
            false => self.follow_holders(node, None),
        }
    }

    /// Whether the own task is among the holders for which `node` waits, so that it closes a cycle.
    fn closes_at_holders(&self, node: usize) -> bool {
        let Node { stand, from } = self.nodes[node];
        let held = self.graph.held(stand.key);
        let own = self.start.owner.as_ref();
        match stand.key == self.start.key {
            // The start does not wait for its own hold.
            true => from.is_some() && self.graph.holds(stand.key, own),
            false => !self.only_at_own_key && held.is_held_for_task(own, None, self.graph.now),
        }
    }

    /// Reaches some of the holders.
    fn follow_holders(&mut self, from: usize, last: Option<Owner>) {
        let stand = self.nodes[from].stand;
        let mut page = self.graph.held(stand.key).page(last.as_ref(), PAGE);
        for (holder, stake) in &page {
            self.graph.spend();
            let name = self.graph.waiters().name(holder.as_ref());
            if name != stand.name && !stake.is_over(self.graph.now) {
                self.reach_owner(from, name);
            }
        }
        if page.len() == PAGE {
            let last = page.pop().map(|(last, _)| last);
            self.pending.push_back(Visit::Holders { from, last });
        }
    }

    /// Reaches an owner that holds.
    fn reach_owner(&mut self, from: usize, name: Name) {
        let key = self.nodes[from].stand.key;
        let mut stands = self.graph.waiters().stands(name.task, KeyNo::MIN, None);
        if name.task == self.start.name.task || stands.next().is_none() {
            return;
        }
        if let Some(own) = self.graph.waiters().stand(key, name)
            && own.position.is_upgrade()
        {
            // It waits for holders for whom the others may not wait.
            self.add(own, Some(from));
        }
        self.reach_task(from, name.task);
    }

    /// `from` waits for the task, so it waits for what that waits for at other keys, too.
    fn reach_task(&mut self, from: usize, task: u64) {
        let key = self.nodes[from].stand.key;
        if task != self.start.name.task && self.reached.insert((key, task)) {
            self.follow_task(Some(from), task, None);
        }
    }

    /// Follows some of the owners of the task at other keys than that of `from`, or of the start.
    fn follow_task(&mut self, from: Option<usize>, task: u64, mut last: Option<(KeyNo, u64)>) {
        let key = from.map_or(self.start.key, |from| self.nodes[from].stand.key);
        let waiters = self.graph.waiters();
        let mut stands = match last {
            None => waiters.stands(task, KeyNo::MIN, None),
            Some((key, owner)) => waiters.stands(task, key, Some(owner)),
        };
        for _ in 0..PAGE {
            let Some(stand) = stands.next() else {
                return;
            };
            if stand.key == key {
                last = Some((key, u64::MAX));
                stands = waiters.stands(task, key, Some(u64::MAX));
            } else {
                last = Some((stand.key, stand.name.owner));
                self.add(stand, from);
            }
        }
        self.pending.push_back(Visit::Task { from, task, last });
    }

    /// Reaches those who stand ahead of `to`.
    fn reach_queue(&mut self, node: usize, to: Position) {
        let key = self.nodes[node].stand.key;
        let own = match key == self.start.key {
            true => self.graph.waiters().stand(key, self.start.name),
            false if self.only_at_own_key => None,
            false => self
                .graph
                .first_of_task(self.start.name.task, key, self.graph.follow),
        };
        let own = own.filter(|own| self.graph.counts(own, self.graph.follow));
        if own.is_some_and(|own| own.position < to) {
            self.closed = Some(node);
        } else {
            self.follow_queue(node, to, None);
        }
    }

    /// Reaches some of those ahead of `to` that wait at other keys, too.
    fn follow_queue(&mut self, from: usize, to: Position, mut last: Option<u64>) {
        let key = self.nodes[from].stand.key;
        let mut tasks = self.graph.waiters().spread(key, last);
        for _ in 0..PAGE {
            let Some(task) = tasks.next() else {
                return;
            };
            if self.is_over() {
                return;
            }
            self.graph.spend();
            last = Some(task);
            let first = match self.reached.contains(&(key, task)) {
                true => None,
                false => self.graph.first_of_task(task, key, self.graph.follow),
            };
            if first.is_some_and(|first| first.position < to) {
                self.reach_task(from, task);
            }
        }
        self.pending.push_back(Visit::Queue { from, to, last });
    }

    /// Whether `stand` waits for `to` only because it stands behind a request for several keys.
    fn yields(&mut self, stand: &Stand, to: Name, owner: OwnerRef<'_>) -> bool {
        let is_own = to == self.start.name && stand.key == self.start.key;
        self.graph.follow == Follow::Every && !self.graph.is_firm(stand, to, owner, is_own)
    }

    /// The cycle that was found.
    fn cycle(&mut self) -> Option<Cycle> {
        let mut links = Vec::new();
        let (mut to, mut owner) = (self.start.name, self.start.owner.as_ref());
        let mut next = Some(self.closed?);
        while let Some(node) = next {
            let Node { stand, from } = self.nodes[node];
            let request = self.graph.request(&stand)?;
            links.push(Link {
                id: request.id,
                key: stand.key,
                position: stand.position,
                to: to.task,
                yields: self.yields(&stand, to, owner),
            });
            (to, owner, next) = (stand.name, request.owner.as_ref(), from);
        }
        links.reverse();
        let mut keys: Vec<KeyNo> = links.iter().map(|link| link.key).collect();
        if let Some(own) = keys.iter().position(|key| *key == self.start.key) {
            keys.rotate_left(own);
        }
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(*key));
        let id = |key: KeyNo| self.graph.queues.keys.get(key).id.clone();
        let keys = keys.into_iter().map(id).collect();
        Some(Cycle { keys, links })
    }
}
