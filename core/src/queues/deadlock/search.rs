//! The walk from one wait to the owners that it waits for, and on.

mod reach;

use std::collections::VecDeque;

use super::super::waiters::{EXCLUSIVE, Position};
use super::asking::Asking;
use super::blocked::Blocked;
use super::budget::{Budget, FIND_PLACE, MOST_TASKS};
use super::by_slot::{BySlot, Slots};
use crate::key::KeyId;
use crate::owner::OwnerRef;
use crate::tree::NIL;
use crate::types::Mode;

/// Which step closes a cycle.
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
    pub(super) from: u32,
    pub(super) key: u32,
    /// The slot of the request that waits there, [`NIL`] for one that is about to.
    pub(super) slot: u32,
}

/// A task for which others wait.
struct Reached {
    first: Step,
    /// A task that waits for it at another key waits for what it waits for at the first one, too.
    second: Option<Step>,
}

/// Which of a task's waits have yet to be walked.
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
    /// The slot of its request, [`NIL`] if it stands nowhere yet.
    pub(super) slot: u32,
}

impl Walker<'_> {
    fn step(self, key: u32) -> Step {
        Step {
            from: self.task,
            key,
            slot: self.slot,
        }
    }
}

pub(super) struct Search<'a> {
    asking: &'a Asking<'a>,
    target: Target,
    /// No other tasks are reached.
    among: Option<&'a Blocked<'a>>,
    /// Places behind requests for several keys do not count.
    only_real: bool,
    /// Every task for which others wait, by its root.
    reached: BySlot<Reached>,
    pending: VecDeque<(u32, Exits)>,
    walked: BySlot<Walked>,
    /// The upgrades that have been walked from, or are about to be.
    upgrades: Slots,
    budget: Budget,
    /// Some tasks were not reached, because the search had reached too many.
    passed_by: bool,
    /// The last step of a cycle.
    pub(super) closed: Option<Step>,
}

/// Which owners of a key the search has reached already.
#[derive(Clone, Copy)]
struct Walked {
    /// All that stand ahead of this place.
    ahead_of: Position,
    holders: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holders {
    None,
    /// The one that holds write, if one does.
    Writer,
    /// The only one that holds, if there is only one.
    Only,
    All,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        asking: &'a Asking<'a>,
        target: Target,
        among: Option<&'a Blocked<'a>>,
    ) -> Self {
        Self {
            asking,
            target,
            among,
            only_real: false,
            reached: BySlot::default(),
            pending: VecDeque::new(),
            walked: BySlot::default(),
            upgrades: Slots::default(),
            budget: match among {
                None => Budget::forward(),
                Some(_) => Budget::among(),
            },
            passed_by: false,
            closed: None,
        }
    }

    /// Follows no step that begins at a place behind a request for several keys.
    pub(super) fn only_real(mut self) -> Self {
        self.only_real = true;
        self
    }

    pub(super) fn run(&mut self) {
        while !self.is_over()
            && let Some((task, exits)) = self.pending.pop_front()
        {
            self.walk_from(task, task, exits);
        }
    }

    pub(super) fn cost(&self) -> usize {
        self.budget.steps()
    }

    pub(super) fn gave_up(&self) -> bool {
        self.budget.is_spent() || self.passed_by
    }

    /// The search reaches no further tasks. Those that it has reached may still close a cycle.
    fn is_full(&self) -> bool {
        self.reached.len() >= self.most_tasks()
    }

    fn most_tasks(&self) -> usize {
        match self.among {
            None => self.asking.queues.reach,
            Some(_) => MOST_TASKS,
        }
    }

    fn is_over(&self) -> bool {
        self.budget.is_spent() || self.closed.is_some()
    }

    /// Reaches the owners that these waits of `task` wait for. `from` is that task, or [`START`].
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

    /// Reaches the owners that an owner waits for whose first request in a queue is in `slot`.
    fn walk_standing(&mut self, from: u32, slot: u32) {
        self.budget.step(1);
        let waiters = &self.asking.queues.waiters;
        let node = waiters.node(slot);
        let writes = waiters.has(slot, EXCLUSIVE);
        let mode = if writes { Mode::Write } else { Mode::Read };
        let walker = Walker {
            task: from,
            owner: node.waiter.owner.as_ref(),
            slot,
        };
        self.walk(walker, node.key, mode, waiters.position(slot));
    }

    /// Reaches the owners that `walker` waits for with a request for `mode` at `position`.
    pub(super) fn walk(&mut self, walker: Walker<'_>, key: u32, mode: Mode, position: Position) {
        let ahead_of = self.asking.waits_up_to(key, mode, position);
        let wanted = Walked {
            ahead_of: ahead_of.unwrap_or(Position::FIRST),
            holders: match ahead_of {
                Some(_) => Holders::All,
                None if self.waits_for_only_reader(walker, key, position) => Holders::Only,
                None => Holders::Writer,
            },
        };
        let mut walked = self.walked.get(&key).copied();
        if self.only_real {
            // From one place a step may count that does not from another. So the same is walked again and again.
            walked = None;
            self.budget.step(FIND_PLACE);
        }
        let walked = walked.unwrap_or(Walked {
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
        self.reach_queue(walker.step(key), walked.ahead_of, wanted.ahead_of);
        let holders = if walker.task == START || position.is_upgrade() {
            // The holder does not reach itself, and another may.
            walked.holders
        } else {
            wanted.holders.max(walked.holders)
        };
        let ahead_of = wanted.ahead_of.max(walked.ahead_of);
        self.walked.insert(key, Walked { ahead_of, holders });
    }

    /// A reader behind no writer waits for its limit, or behind one that does.
    fn waits_for_only_reader(&mut self, walker: Walker<'_>, key: u32, position: Position) -> bool {
        let asking = self.asking;
        // For a request in the queue, the queue knows the limit.
        let begins = walker.task == START && !asking.stands && key == asking.key;
        let own = begins.then_some(&asking.wait.terms);
        asking.waits_for_only_reader(key, position, own, &mut self.budget)
    }

    /// The step leads to the asking task. True if that closes a cycle.
    fn close(&mut self, step: Step) -> bool {
        let closes = self.is_followed(step, START);
        if closes {
            self.closed = Some(step);
        }
        closes
    }

    fn is_followed(&mut self, step: Step, to: u32) -> bool {
        !self.only_real || !self.asking.is_behind_several(step, to, &mut self.budget)
    }

    /// True if the search did not know yet that `step` leads to `task`.
    fn would_reach(&self, task: u32, step: Step) -> bool {
        let is_among = self.among.is_none_or(|among| among.contains(task));
        if task == NIL || task == self.asking.task || !is_among {
            return false;
        }
        let known = self.reached.get(&task);
        known.is_none_or(|known| known.second.is_none() && known.first.key != step.key)
    }

    fn reach(&mut self, task: u32, step: Step) {
        if !self.would_reach(task, step) || !self.is_followed(step, task) {
            return;
        }
        if let Some(known) = self.reached.get_mut(&task) {
            known.second = Some(step);
            let first = Exits::At(known.first.key);
            self.pending.push_back((task, first));
            return;
        }
        if self.is_full() {
            self.passed_by = true;
            return;
        }
        let (first, second) = (step, None);
        self.reached.insert(task, Reached { first, second });
        self.pending.push_back((task, Exits::Except(step.key)));
    }

    /// The steps of the cycle, from the asking task round to it, each with the task that it leads to.
    pub(super) fn steps(&self) -> Option<Vec<(Step, u32)>> {
        let mut step = self.closed?;
        let mut steps = vec![(step, START)];
        while step.from != START {
            let (reached, to) = (self.reached.get(&step.from)?, step.from);
            step = match reached.second {
                Some(second) if reached.first.key == step.key => second,
                _ => reached.first,
            };
            steps.push((step, to));
        }
        steps.reverse();
        Some(steps)
    }

    /// The keys of the cycle, from the wait's own round to it.
    pub(super) fn path(&self, steps: &[(Step, u32)]) -> Vec<KeyId> {
        let mut keys: Vec<_> = steps.iter().map(|(step, _)| step.key).collect();
        if let Some(own) = keys.iter().position(|key| *key == self.asking.key) {
            keys.rotate_left(own);
        }
        let mut seen = Slots::default();
        keys.retain(|key| seen.insert(*key));
        let id = |key: u32| match key {
            key if key == self.asking.key => self.asking.wait.key.clone(),
            key => self.asking.queues.keys.node(key).id.clone(),
        };
        keys.into_iter().map(id).collect()
    }
}
