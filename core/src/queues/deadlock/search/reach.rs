//! What one wait waits for: the requests ahead at its key, and the holders there.
//!
//! Only tasks that wait somewhere else, too, lead on, and in a search [`Search::among`] the tasks
//! that the asking one blocks only those. They are found from whichever side has fewer.

use super::super::super::waiters::{Position, SEVERAL_KEYS};
use super::super::budget::{FIND_READER, FIND_TASK};
use super::{Exits, Holders, START, Search, Step, Target, Walker};
use crate::admission::compatible;
use crate::observed::{Observed, ObservedReaders};
use crate::owner::OwnerRef;
use crate::tree::NIL;
use crate::types::Mode;

impl Search<'_> {
    /// Nobody else is reached by this wait.
    fn is_done_here(&self) -> bool {
        self.passed_by || self.is_over()
    }

    /// Reaches the tasks that wait at several keys, and the target, if they stand from `from` to
    /// before `to`.
    pub(super) fn reach_queue(&mut self, step: Step, from: Position, to: Position) {
        if to <= from || self.is_over() {
            return;
        }
        let waiters = &self.asking.queues.waiters;
        let first = if step.key == self.asking.key {
            Some(self.asking.position)
        } else {
            let first = waiters.foremost(self.asking.task, step.key);
            (first != NIL && self.target == Target::Task).then(|| waiters.position(first))
        };
        if first.is_some_and(|position| (from..to).contains(&position)) && self.close(step) {
            return;
        }
        match self.among {
            Some(among) if among.tasks().len() < self.asking.len(step.key) => {
                self.reach_queued_of(among.tasks(), step, from, to);
            }
            _ => self.reach_queued(step, from, to),
        }
    }

    /// Reaches those who wait at several keys.
    fn reach_queued(&mut self, step: Step, from: Position, to: Position) {
        let waiters = &self.asking.queues.waiters;
        // The last one first: the others' walks are mostly part of its.
        let mut at = waiters.last_flagged_before(self.asking.line(step.key), to, SEVERAL_KEYS);
        while at != NIL && waiters.position(at) >= from && !self.is_done_here() {
            self.budget.step(1);
            self.reach(waiters.task_at(at), step);
            at = waiters.previous_flagged(at, SEVERAL_KEYS);
        }
    }

    /// Reaches those of `tasks` that wait at several keys.
    fn reach_queued_of(&mut self, tasks: &[u32], step: Step, from: Position, to: Position) {
        let waiters = &self.asking.queues.waiters;
        for &task in tasks {
            if self.is_done_here() {
                return;
            }
            self.budget.step(1);
            let first = waiters.foremost(task, step.key);
            if first != NIL
                && waiters.has(first, SEVERAL_KEYS)
                && (from..to).contains(&waiters.position(first))
            {
                self.reach(task, step);
            }
        }
    }

    /// Reaches those of `which` that hold, if they wait somewhere or are the target.
    pub(super) fn reach_holders(
        &mut self,
        walker: Walker<'_>,
        key: u32,
        held: &Observed,
        which: Holders,
    ) {
        let now = self.asking.now;
        match (held, which) {
            (Observed::One { owner, mode, .. }, _) => {
                let counts = which >= Holders::Only || !compatible(*mode, Mode::Read);
                if counts && held.holds(owner.as_ref(), now) {
                    self.reach_holder(walker, key, owner.as_ref());
                }
            }
            (Observed::Many(readers), Holders::All) => self.reach_readers(walker, key, readers),
            (Observed::Many(_), Holders::Only) => {
                if let Some((owner, _)) = held.only_reader(now) {
                    self.reach_holder(walker, key, owner.as_ref());
                }
            }
            (Observed::Free | Observed::Many(_), _) => {}
        }
    }

    fn reach_holder(&mut self, walker: Walker<'_>, key: u32, holder: OwnerRef<'_>) {
        let (asking, step) = (self.asking, walker.step(key));
        if holder == walker.owner {
            return;
        }
        let task = asking.queues.waiters.task_of(holder);
        let is_own = match task {
            NIL => asking.is_own_task(holder),
            task => task == asking.task,
        };
        if !is_own {
            self.reach_task_of(holder, task, step);
        } else if self.counts(step, holder) {
            self.close(step);
        }
    }

    /// Reaches the task of `holder`, which is another one than the asking task.
    fn reach_task_of(&mut self, holder: OwnerRef<'_>, task: u32, step: Step) {
        self.reach(task, step);
        // The cycle is read back from the tasks that were reached, so a task that was passed by must not be part of it.
        if !self.reached.contains_key(&task) {
            return;
        }
        let waiters = &self.asking.queues.waiters;
        let first = waiters.standing(task, step.key, holder);
        // Once: two upgrades that wait for each other would go on for ever.
        if first != NIL && waiters.node(first).is_upgrade() && self.upgrades.insert(first) {
            self.pending.push_back((task, Exits::Upgrade(first)));
        }
    }

    /// A step to `owner`, of the asking task, closes a cycle.
    fn counts(&self, step: Step, owner: OwnerRef<'_>) -> bool {
        if step.key == self.asking.key {
            step.from != START && owner == self.asking.wait.owner.as_ref()
        } else {
            self.target == Target::Task
        }
    }

    /// Reaches the readers that wait somewhere, or are the target.
    fn reach_readers(&mut self, walker: Walker<'_>, key: u32, readers: &ObservedReaders) {
        let (asking, step) = (self.asking, walker.step(key));
        let owner = asking.wait.owner.as_ref();
        let is_held = match key == asking.key {
            true => readers.holds(owner, asking.now),
            false => asking.is_held(key),
        };
        if is_held && self.counts(step, owner) && self.close(step) {
            return;
        }
        let waiting = readers.waiting_len();
        let to_find = waiting.unwrap_or_else(|| readers.len());
        if let Some(among) = self.among
            && among.tasks().len() * FIND_READER < to_find * FIND_TASK
        {
            self.reach_upgrades(walker, key, readers);
            for &task in among.tasks() {
                self.reach_if_reading(task, walker, step, readers);
            }
            return;
        }
        if waiting.is_some() {
            self.reach_upgrades(walker, key, readers);
            self.reach_waiting(walker, step, readers);
        } else {
            self.reach_each_reader(walker, step, readers);
        }
    }

    /// Reaches the tasks that wait among the readers of a crowd.
    fn reach_waiting(&mut self, walker: Walker<'_>, step: Step, readers: &ObservedReaders) {
        let asking = self.asking;
        let waiters = &asking.queues.waiters;
        let most = self.budget.tasks_to_find().min(self.most_tasks() + 1);
        let waiting = readers.waiting(most).unwrap_or_default();
        self.budget.step(waiting.len() * FIND_TASK);
        let tasks = waiting.iter().map(|owner| waiters.task_of(owner.as_ref()));
        let mut tasks: Vec<u32> = tasks.filter(|task| *task != NIL).collect();
        // Those that came last first: the others' walks are mostly part of theirs.
        tasks.sort_unstable_by(|one, other| other.cmp(one));
        let none_is_over = readers.next_deadline() > Some(asking.now);
        for task in tasks {
            if self.is_done_here() {
                return;
            }
            if none_is_over && task != walker.task {
                self.reach(task, step);
            } else {
                // It may be the walker itself that reads.
                self.reach_if_reading(task, walker, step, readers);
            }
        }
        // Of those that are left, some may be new.
        self.passed_by |= waiting.len() == most;
    }

    fn reach_each_reader(&mut self, walker: Walker<'_>, step: Step, readers: &ObservedReaders) {
        let asking = self.asking;
        for reader in readers.first(self.budget.tasks_to_find()) {
            self.budget.step(FIND_TASK);
            if self.is_done_here() {
                return;
            }
            let reader = reader.as_ref();
            let task = asking.queues.waiters.task_of(reader);
            let may_lead_on = task != NIL && task != asking.task && reader != walker.owner;
            if may_lead_on && readers.holds(reader, asking.now) {
                self.reach_task_of(reader, task, step);
            }
        }
    }

    /// Reaches those upgrades at `key` that are among its `readers`.
    fn reach_upgrades(&mut self, walker: Walker<'_>, key: u32, readers: &ObservedReaders) {
        let waiters = &self.asking.queues.waiters;
        let mut at = waiters.line_from(self.asking.line(key), Position::FIRST);
        while at != NIL && waiters.node(at).is_upgrade() && !self.is_over() {
            self.budget.step(FIND_READER);
            let owner = waiters.node(at).waiter.owner.as_ref();
            if readers.holds(owner, self.asking.now) {
                self.reach_holder(walker, key, owner);
            }
            at = waiters.next_in_line(at);
        }
    }

    /// Reaches `task` if it is among the `readers`.
    fn reach_if_reading(
        &mut self,
        task: u32,
        walker: Walker<'_>,
        step: Step,
        readers: &ObservedReaders,
    ) {
        if self.is_done_here() {
            return;
        }
        self.budget.step(1);
        if !self.would_reach(task, step) {
            return;
        }
        self.budget.step(FIND_READER);
        let owner = self.asking.queues.waiters.node(task).waiter.owner.as_ref();
        if readers.holds_for_task(owner, Some(walker.owner), self.asking.now) {
            self.reach(task, step);
        }
    }
}
