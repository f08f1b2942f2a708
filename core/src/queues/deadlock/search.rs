//! The walk from one wait to those whom it waits for, and on.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::super::tree::NIL;
use super::super::waiters::{Position, SEVERAL_KEYS, WRITES};
use super::asking::Asking;
use crate::key::KeyId;
use crate::observed::{Observed, ObservedReaders};
use crate::owner::OwnerRef;
use crate::types::Mode;

/// How many tasks are reached at most.
const MOST_TASKS: usize = 1_000;
/// How many looks at holders that may not matter are made at most.
const MOST_LOOKS: usize = 4_000;
/// So many looks cost as much as to find one owner among the readers of a lock.
const FIND: usize = 8;
/// What closes a cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The asking task at any other key, or the asking owner at its own.
    Task,
    /// The asking owner at its own key.
    Owner,
}

/// In place of a task: the one that asks.
pub(super) const START: u32 = NIL;

/// Task `from` waits for others at `key`.
#[derive(Clone, Copy)]
pub(super) struct Step {
    from: u32,
    key: u32,
}

/// A task that is waited for.
struct Reached {
    first: Step,
    /// A task that waits for it at another key waits for what it waits for at the first one, too.
    second: Option<Step>,
}

/// Which of a task's waits are still to be walked.
#[derive(Clone, Copy)]
pub(super) enum Exits {
    /// Those at other keys than this.
    Except(u32),
    At(u32),
    /// That of the upgrade in this slot.
    Upgrade(u32),
}

/// Whose wait is walked.
#[derive(Clone, Copy)]
pub(super) struct Walker<'a> {
    pub(super) task: u32,
    pub(super) owner: OwnerRef<'a>,
}

pub(super) struct Search<'a> {
    asking: &'a Asking<'a>,
    target: Target,
    /// Every task that is waited for, by its root.
    reached: HashMap<u32, Reached>,
    pending: VecDeque<(u32, Exits)>,
    walked: HashMap<u32, Walked>,
    /// The upgrades that have been walked from, or are about to be.
    upgrades: BTreeSet<u32>,
    pub(super) looks: usize,
    pub(super) gave_up: bool,
    /// The last step of a cycle.
    pub(super) closed: Option<Step>,
}

/// Whom of a key the search has reached already.
#[derive(Clone, Copy)]
struct Walked {
    /// Everybody who stands ahead of this.
    ahead_of: Position,
    holders: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holders {
    None,
    /// The one that holds write, if one does.
    Writer,
    All,
}

impl<'a> Search<'a> {
    pub(super) fn new(asking: &'a Asking<'a>, target: Target) -> Self {
        Self {
            asking,
            target,
            reached: HashMap::new(),
            pending: VecDeque::new(),
            walked: HashMap::new(),
            upgrades: BTreeSet::new(),
            looks: 0,
            gave_up: false,
            closed: None,
        }
    }

    pub(super) fn run(&mut self) {
        while !self.is_over()
            && let Some((task, exits)) = self.pending.pop_front()
        {
            self.walk_from(task, task, exits);
        }
    }

    fn is_over(&self) -> bool {
        self.gave_up || self.closed.is_some()
    }

    /// Reaches whom these waits of `task` wait for. `from` is that task, or [`START`].
    pub(super) fn walk_from(&mut self, from: u32, task: u32, exits: Exits) {
        let waiters = &self.asking.queues.waiters;
        if let Exits::Upgrade(slot) = exits {
            return self.walk_standing(from, slot);
        }
        let mut at = waiters.key_from(task, 0);
        while at != NIL && !self.is_over() {
            let key = waiters.node(at).key;
            let counts = match exits {
                Exits::Except(other) => key != other,
                Exits::At(only) => key == only,
                Exits::Upgrade(_) => false,
            };
            let mut first = if counts { at } else { NIL };
            while first != NIL && !self.is_over() {
                self.walk_standing(from, first);
                first = waiters.next_standing(task, first);
            }
            at = waiters.key_from(task, key + 1);
        }
    }

    /// Reaches whom the owner waits for whose first request in a line is in `slot`.
    fn walk_standing(&mut self, from: u32, slot: u32) {
        self.look(1);
        let waiters = &self.asking.queues.waiters;
        let node = waiters.node(slot);
        let writes = waiters.has(slot, WRITES);
        let mode = if writes { Mode::Write } else { Mode::Read };
        let walker = Walker {
            task: from,
            owner: node.waiter.owner.as_ref(),
        };
        self.walk(walker, node.key, mode, node.position());
    }

    /// Reaches whom `walker` waits for with a request for `mode` at `position`.
    pub(super) fn walk(&mut self, walker: Walker<'_>, key: u32, mode: Mode, position: Position) {
        let ahead_of = self.asking.waits_up_to(key, mode, position);
        let wanted = Walked {
            ahead_of: ahead_of.unwrap_or(Position::FIRST),
            holders: ahead_of.map_or(Holders::Writer, |_| Holders::All),
        };
        let walked = self.walked.get(&key).copied().unwrap_or(Walked {
            ahead_of: Position::FIRST,
            holders: Holders::None,
        });
        if wanted.ahead_of <= walked.ahead_of && wanted.holders <= walked.holders {
            return;
        }
        if wanted.holders > walked.holders {
            let held = self.asking.held(key);
            if !position.is_upgrade() && held.holds(walker.owner, self.asking.now) {
                // Only a grace makes it wait, and when that is over it is decided first.
                return;
            }
            self.reach_holders(walker, key, held, wanted.holders);
        }
        let step = Step {
            from: walker.task,
            key,
        };
        self.reach_queue(step, walked.ahead_of, wanted.ahead_of);
        let holders = if walker.task == START || position.is_upgrade() {
            // The holder does not reach itself, and another may.
            walked.holders
        } else {
            wanted.holders.max(walked.holders)
        };
        let ahead_of = wanted.ahead_of.max(walked.ahead_of);
        self.walked.insert(key, Walked { ahead_of, holders });
    }

    /// Reaches those who wait at several keys, and the target, where they stand from `from` to before `to`.
    fn reach_queue(&mut self, step: Step, from: Position, to: Position) {
        if to <= from || self.is_over() {
            return;
        }
        let waiters = &self.asking.queues.waiters;
        let first = if step.key == self.asking.key {
            Some(self.asking.position)
        } else {
            let first = waiters.foremost(self.asking.task, step.key);
            (first != NIL && self.target == Target::Task).then(|| waiters.node(first).position())
        };
        if first.is_some_and(|position| (from..to).contains(&position)) {
            self.closed = Some(step);
            return;
        }
        // The last one first: the others' walks are mostly part of its.
        let mut at = waiters.last_flagged_before(self.asking.line(step.key), to, SEVERAL_KEYS);
        while at != NIL && waiters.node(at).position() >= from && !self.is_over() {
            self.look(1);
            self.reach(waiters.task_at(at), step);
            at = waiters.previous_flagged(at, SEVERAL_KEYS);
        }
    }

    /// Reaches those of `which` that hold, if they wait somewhere or are the target.
    fn reach_holders(&mut self, walker: Walker<'_>, key: u32, held: &Observed, which: Holders) {
        match held {
            Observed::One { owner, mode, .. } => {
                let counts = which == Holders::All || *mode == Mode::Write;
                if counts && held.holds(owner.as_ref(), self.asking.now) {
                    self.reach_holder(walker, key, owner.as_ref());
                }
            }
            Observed::Many(readers) if which == Holders::All => {
                self.reach_readers(walker, key, readers);
            }
            Observed::Free | Observed::Many(_) => {}
        }
    }

    fn reach_holder(&mut self, walker: Walker<'_>, key: u32, holder: OwnerRef<'_>) {
        if holder == walker.owner {
            return;
        }
        let step = Step {
            from: walker.task,
            key,
        };
        let waiters = &self.asking.queues.waiters;
        if !self.asking.is_own_task(holder) {
            let task = waiters.task_of(holder);
            self.reach(task, step);
            let first = waiters.standing(task, key, holder);
            // Once: two upgrades that wait for each other would go on for ever.
            if first != NIL && waiters.node(first).upgrade && self.upgrades.insert(first) {
                self.pending.push_back((task, Exits::Upgrade(first)));
            }
        } else if self.counts(step, holder) {
            self.closed = Some(step);
        }
    }

    /// A step to `owner`, who is of the asking task, closes a cycle.
    fn counts(&self, step: Step, owner: OwnerRef<'_>) -> bool {
        if step.key == self.asking.key {
            step.from != START && owner == self.asking.wait.owner.as_ref()
        } else {
            self.target == Target::Task
        }
    }

    fn reach_readers(&mut self, walker: Walker<'_>, key: u32, readers: &ObservedReaders) {
        let (asking, now) = (self.asking, self.asking.now);
        let step = Step {
            from: walker.task,
            key,
        };
        let owner = asking.wait.owner.as_ref();
        let is_held = match key == asking.key {
            true => readers.holds(owner, now),
            false => asking.is_held(key),
        };
        if is_held && self.counts(step, owner) {
            self.closed = Some(step);
            return;
        }
        let line = match key {
            NIL => 0,
            key => asking.queues.keys.node(key).len as usize,
        };
        if readers.len() <= asking.queues.len() - line {
            let room = MOST_LOOKS.saturating_sub(self.looks) / FIND + 1;
            for reader in readers.first(room) {
                self.look(FIND);
                if self.is_over() {
                    return;
                }
                if readers.holds(reader.as_ref(), now) {
                    self.reach_holder(walker, key, reader.as_ref());
                }
            }
            return;
        }
        self.reach_upgrades(walker, key, readers);
        for (other, node) in asking.queues.keys.iter() {
            if other != key && !self.is_over() {
                self.reach_if_reading(node.line, walker, step, readers);
            }
        }
    }

    /// Reaches those of the upgrades at `key` who are among its `readers`.
    fn reach_upgrades(&mut self, walker: Walker<'_>, key: u32, readers: &ObservedReaders) {
        let waiters = &self.asking.queues.waiters;
        let mut at = waiters.line_from(self.asking.line(key), Position::FIRST);
        while at != NIL && waiters.node(at).upgrade && !self.is_over() {
            self.look(FIND);
            let owner = waiters.node(at).waiter.owner.as_ref();
            if readers.holds(owner, self.asking.now) {
                self.reach_holder(walker, key, owner);
            }
            at = waiters.next_in_line(at);
        }
    }

    /// Reaches those of another `line` whose tasks are among the `readers`.
    fn reach_if_reading(
        &mut self,
        line: u32,
        walker: Walker<'_>,
        step: Step,
        readers: &ObservedReaders,
    ) {
        let waiters = &self.asking.queues.waiters;
        let mut at = waiters.line_from(line, Position::FIRST);
        while at != NIL && !self.is_over() {
            self.look(FIND);
            let task = waiters.task_at(at);
            let owner = waiters.node(at).waiter.owner.as_ref();
            if self.would_reach(task, step)
                && readers.holds_for_task(owner, Some(walker.owner), self.asking.now)
            {
                self.reach(task, step);
            }
            at = waiters.next_in_line(at);
        }
    }

    fn look(&mut self, times: usize) {
        self.looks += times;
        self.gave_up |= self.looks > MOST_LOOKS;
    }

    /// It is news that `task` is waited for by `step`.
    fn would_reach(&self, task: u32, step: Step) -> bool {
        if task == NIL || task == self.asking.task {
            return false;
        }
        let known = self.reached.get(&task);
        known.is_none_or(|known| known.second.is_none() && known.first.key != step.key)
    }

    fn reach(&mut self, task: u32, step: Step) {
        if !self.would_reach(task, step) {
            return;
        }
        if let Some(known) = self.reached.get_mut(&task) {
            known.second = Some(step);
            let first = Exits::At(known.first.key);
            self.pending.push_back((task, first));
            return;
        }
        if self.reached.len() == MOST_TASKS {
            self.gave_up = true;
            return;
        }
        let (first, second) = (step, None);
        self.reached.insert(task, Reached { first, second });
        self.pending.push_back((task, Exits::Except(step.key)));
    }

    /// The keys of the cycle, from the wait's own round to it.
    pub(super) fn path(&self) -> Option<Vec<KeyId>> {
        let mut step = self.closed?;
        let mut keys = vec![step.key];
        while step.from != START {
            let reached = self.reached.get(&step.from)?;
            step = match reached.second {
                Some(second) if reached.first.key == step.key => second,
                _ => reached.first,
            };
            keys.push(step.key);
        }
        keys.reverse();
        if let Some(own) = keys.iter().position(|key| *key == self.asking.key) {
            keys.rotate_left(own);
        }
        let mut seen = BTreeSet::new();
        keys.retain(|key| seen.insert(*key));
        let id = |key: u32| match key {
            key if key == self.asking.key => self.asking.wait.key.clone(),
            key => self.asking.queues.keys.node(key).id.clone(),
        };
        Some(keys.into_iter().map(id).collect())
    }
}
