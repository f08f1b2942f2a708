//! The search from the other end: the tasks that the asking one blocks, directly or through others.
//!
//! Every task of a cycle is among them. So if a search from the wait on meets too many tasks, a second search need not reach any others.
//! Only that second search decides exactly: here an owner that holds a key, or stands ahead of others there, counts as blocking all that it
//! may block.

use std::collections::VecDeque;

use super::super::waiters::Position;
use super::asking::Asking;
use super::budget::{Budget, FIND_READER, MOST_BLOCKED};
use super::by_slot::{BySlot, Slots};
use crate::owner::OwnerRef;
use crate::tree::NIL;

/// Tasks that wait, and that the asking task blocks.
pub(super) struct Blocked<'a> {
    asking: &'a Asking<'a>,
    /// By their roots, in the order in which they were found.
    tasks: Vec<u32>,
    known: Slots,
    /// The keys whose waiters from a position on are known.
    covered: BySlot<Position>,
    /// Blockers whose keys are still to be found.
    pending: VecDeque<(u32, OwnerRef<'a>)>,
    /// Blockers that may be among several readers of a key: to find out costs most, so they come last.
    may_read: VecDeque<OwnerRef<'a>>,
    budget: Budget,
}

impl<'a> Blocked<'a> {
    /// Finds up to [`MOST_BLOCKED`] of them, the nearest ones first.
    pub(super) fn by(asking: &'a Asking<'a>) -> Self {
        let mut blocked = Self {
            asking,
            tasks: Vec::new(),
            known: Slots::default(),
            covered: BySlot::default(),
            pending: VecDeque::new(),
            may_read: VecDeque::new(),
            budget: Budget::back(),
        };
        if asking.key != NIL && asking.position < Position::END {
            blocked.cover(asking.key, asking.position.behind());
        }
        blocked.find_behind(asking.task, asking.wait.owner.as_ref());
        blocked.run();
        blocked
    }

    pub(super) fn contains(&self, task: u32) -> bool {
        self.known.contains(&task)
    }

    pub(super) fn tasks(&self) -> &[u32] {
        &self.tasks
    }

    pub(super) fn steps(&self) -> usize {
        self.budget.steps()
    }

    fn run(&mut self) {
        while !self.budget.is_spent() {
            if let Some((task, owner)) = self.pending.pop_front() {
                self.find_behind(task, owner);
            } else if let Some(owner) = self.may_read.pop_front() {
                self.find_behind_reader(owner);
            } else {
                return;
            }
        }
    }

    /// Finds the waiters where the task holds alone, and those that stand behind it.
    fn find_behind(&mut self, task: u32, owner: OwnerRef<'a>) {
        let (keys, waiters) = (&self.asking.queues.keys, &self.asking.queues.waiters);
        for key in keys.held_by(waiters.nodes.hash_task(owner)) {
            self.cover(key, Position::FIRST);
        }
        let own = self.asking.key;
        if own != NIL
            && self
                .asking
                .held
                .holds_for_task(owner, None, self.asking.now)
        {
            self.cover(own, Position::FIRST);
        }
        let mut at = waiters.key_from(task, 0);
        while at != NIL && !self.budget.is_spent() {
            self.budget.step(1);
            let key = waiters.node(at).key;
            let first = waiters.foremost(task, key);
            self.cover(key, waiters.position(first).behind());
            at = waiters.key_from(task, key + 1);
        }
        self.may_read.push_back(owner);
    }

    /// Finds the waiters where `owner` is one of several readers.
    fn find_behind_reader(&mut self, owner: OwnerRef<'a>) {
        for key in self.asking.queues.keys.shared() {
            if self.budget.is_spent() {
                return;
            }
            self.budget.step(1);
            if self.covered.get(&key) == Some(&Position::FIRST) {
                continue;
            }
            self.budget.step(FIND_READER);
            let held = self.asking.held(key);
            if held.holds_for_task(owner, None, self.asking.now) {
                self.cover(key, Position::FIRST);
            }
        }
    }

    /// All who stand at `key` from the position on are blocked.
    fn cover(&mut self, key: u32, from: Position) {
        let to = self.covered.get(&key).copied();
        let to = to.unwrap_or(Position::END);
        if from >= to {
            return;
        }
        let waiters = &self.asking.queues.waiters;
        let mut at = waiters.line_from(self.asking.line(key), from);
        while at != NIL && waiters.position(at) < to {
            if self.budget.is_spent() {
                return;
            }
            self.budget.step(1);
            self.add(waiters.task_at(at));
            at = waiters.next_in_line(at);
        }
        self.covered.insert(key, from);
    }

    fn add(&mut self, task: u32) {
        if task == self.asking.task || !self.known.insert(task) {
            return;
        }
        self.tasks.push(task);
        let owner = self.asking.queues.waiters.node(task).waiter.owner.as_ref();
        self.pending.push_back((task, owner));
        if self.tasks.len() == MOST_BLOCKED {
            self.budget.spend();
        }
    }
}
