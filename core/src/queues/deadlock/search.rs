//! The search from one wait to the owners that it waits for, and on.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use super::super::waiters::{MEMBER, Position, SEVERAL_KEYS};
use super::graph::{Holders, Place, Reach, START, Start, Step};
use super::wait::Follow;
use crate::observed::{Observed, ObservedReaders};
use crate::owner::{Owner, OwnerRef};
use crate::tree::NIL;

/// How many requests of a task, places in a queue or readers of a lock are followed before the search turns to others.
const PAGE: usize = 16;

/// A task for which others wait.
struct Reached {
    first: Step,
    /// A task that waits for it at another key waits for what it waits for at the first one, too.
    second: Option<Step>,
}

/// At which keys a task's requests are followed.
#[derive(Clone, Copy)]
enum Keys {
    Except(u32),
    At(u32),
}

/// The requests of a task, from the one in slot `at` on.
#[derive(Clone, Copy)]
struct Requests {
    /// The task, or [`START`] in its place.
    from: u32,
    /// The root of its waits.
    task: u32,
    at: u32,
    keys: Keys,
}

/// What is still to be followed.
enum Visit {
    Requests(Requests),
    /// One request, whose task was reached as a holder of the key where it stands.
    Upgrade {
        task: u32,
        slot: u32,
    },
    /// The tasks ahead of `to` in a queue, up to `from`.
    Queue {
        step: Step,
        from: Position,
        to: Position,
    },
    /// The readers of the key after that one.
    Readers {
        step: Step,
        after: Owner,
    },
}

pub(super) struct Search<'a> {
    start: &'a Start<'a>,
    follow: Follow,
    /// Steps to the own task at other keys close no cycle, but only those to the own owner at its own key.
    only_at_own_key: bool,
    /// Every task for which others wait, by its root.
    reached: HashMap<u32, Reached>,
    /// What has been followed at each key.
    followed: HashMap<u32, Reach>,
    upgrades: HashSet<u32>,
    /// Tasks that stand first in a queue with a request for several keys: where another one of theirs stands, and at which key.
    behind_own: Vec<(u32, Position, u32)>,
    pending: VecDeque<Visit>,
    /// The last step of a cycle.
    closed: Option<Step>,
}

impl<'a> Search<'a> {
    pub(super) fn new(start: &'a Start<'a>, follow: Follow) -> Self {
        Self {
            start,
            follow,
            only_at_own_key: false,
            reached: HashMap::new(),
            followed: HashMap::new(),
            upgrades: HashSet::new(),
            behind_own: Vec::new(),
            pending: VecDeque::new(),
            closed: None,
        }
    }

    /// Searches until a cycle is found, nothing is left to follow, or the budget is spent.
    pub(super) fn run(&mut self) {
        let start = self.start;
        // Re-entry only waits for the end of a grace.
        if start.wait.is_upgrade() || !start.held.holds(start.owner(), start.now) {
            self.follow_place(&start.place());
            self.follow_pending();
        }
        if start.is_ahead_of_others() {
            // What was followed leads to no owner of the task, so it need not be followed again.
            self.only_at_own_key = true;
            self.add_requests(START, start.task, Keys::Except(start.key));
            self.follow_pending();
        }
    }

    fn is_over(&self) -> bool {
        self.closed.is_some() || self.start.budget.is_spent()
    }

    fn follow_pending(&mut self) {
        while !self.is_over()
            && let Some(visit) = self.pending.pop_front()
        {
            match visit {
                Visit::Requests(requests) => self.follow_requests(requests),
                Visit::Upgrade { task, slot } => {
                    self.start.budget.step(1);
                    self.follow_place(&self.start.place_of(task, slot));
                }
                Visit::Queue { step, from, to } => self.follow_queue(step, from, to),
                Visit::Readers { step, after } => {
                    if let Observed::Many(readers) = self.start.held(step.key) {
                        self.follow_readers(step, readers, Some(&after));
                    }
                }
            }
        }
    }

    fn add_requests(&mut self, from: u32, task: u32, keys: Keys) {
        let key = match keys {
            Keys::Except(_) => 0,
            Keys::At(key) => key,
        };
        let at = self.start.queues.waiters.key_from(task, key);
        let requests = Requests {
            from,
            task,
            at,
            keys,
        };
        self.pending.push_back(Visit::Requests(requests));
    }

    /// Follows some requests of a task.
    fn follow_requests(&mut self, requests: Requests) {
        let Requests {
            from,
            task,
            mut at,
            keys,
        } = requests;
        let waiters = &self.start.queues.waiters;
        for _ in 0..PAGE {
            if at == NIL || self.is_over() {
                return;
            }
            let key = waiters.node(at).key;
            match keys {
                Keys::Except(other) if key == other => {
                    at = waiters.key_from(task, key + 1);
                    continue;
                }
                Keys::At(only) if key != only => return,
                Keys::Except(_) | Keys::At(_) => {}
            }
            self.start.budget.step(1);
            self.follow_place(&self.start.place_of(from, at));
            at = match self.leads_no_further(key) {
                true => waiters.key_from(task, key + 1),
                false => waiters.next_owner(task, at),
            };
        }
        self.pending
            .push_back(Visit::Requests(Requests { at, ..requests }));
    }

    /// Whether no request at the key leads to anybody who has not been reached.
    fn leads_no_further(&self, key: u32) -> bool {
        let start = self.start;
        let waiters = &start.queues.waiters;
        self.followed(key).holders == Holders::All
            && key != start.key
            && !waiters.any_flagged(start.line(key), SEVERAL_KEYS)
            && (start.task == NIL || waiters.first_of(start.task, key) == NIL)
    }

    /// Reaches those for whom the request in that place waits.
    fn follow_place(&mut self, place: &Place<'a>) {
        let (start, key) = (self.start, place.step.key);
        let reach = start.reach_of(place, self.follow);
        let before = self.followed(key);
        if reach.ahead_of <= before.ahead_of && reach.holders <= before.holders {
            return;
        }
        if reach.holders > before.holders {
            start.budget.step(1);
            if !place.position.is_upgrade() && start.held(key).holds(place.owner, start.now) {
                // Only a grace makes it wait, and when that is over it is decided first.
                return;
            }
            self.reach_holders(place, reach.holders);
        }
        let holders = match place.step.task == START || place.position.is_upgrade() {
            // The holder does not wait for itself, and another may.
            true => before.holders,
            false => reach.holders.max(before.holders),
        };
        let ahead_of = reach.ahead_of.max(before.ahead_of);
        self.followed.insert(key, Reach { ahead_of, holders });
        self.reach_queue(place.step, before.ahead_of, reach.ahead_of);
    }

    fn followed(&self, key: u32) -> Reach {
        self.followed.get(&key).copied().unwrap_or(Reach::NOBODY)
    }

    /// Reaches those who stand from `from` to before `to`.
    fn reach_queue(&mut self, step: Step, from: Position, to: Position) {
        if to <= from || self.is_over() {
            return;
        }
        let is_target = step.key == self.start.key || !self.only_at_own_key;
        if is_target && self.start.stands(START, step.key, from..to, self.follow) {
            self.closed = Some(step);
            return;
        }
        for nth in 0..self.behind_own.len() {
            let (key, position, task) = self.behind_own[nth];
            if key == step.key && (from..to).contains(&position) {
                self.reach(task, step);
            }
        }
        self.follow_queue(step, from, to);
    }

    /// Reaches some of those who wait at other keys, too.
    fn follow_queue(&mut self, step: Step, from: Position, to: Position) {
        let start = self.start;
        let (waiters, line) = (&start.queues.waiters, start.line(step.key));
        if !waiters.any_flagged(line, SEVERAL_KEYS) {
            return;
        }
        // The last one first: what the others wait for is mostly part of what it waits for.
        let mut at = waiters.last_flagged_before(line, to, SEVERAL_KEYS);
        for _ in 0..PAGE {
            if at == NIL || waiters.position(at) < from || self.is_over() {
                return;
            }
            start.budget.step(1);
            let task = waiters.task_at(at);
            if self.follow == Follow::Every || !waiters.has(at, MEMBER) {
                self.reach(task, step);
            } else if let Some(firm) = start.first_firm(task, step.key, Position::FIRST) {
                match firm < self.followed(step.key).ahead_of {
                    true => self.reach(task, step),
                    false => self.behind_own.push((step.key, firm, task)),
                }
            }
            at = waiters.previous_flagged(at, SEVERAL_KEYS);
        }
        if at != NIL {
            let to = waiters.position(at).behind();
            self.pending.push_back(Visit::Queue { step, from, to });
        }
    }

    fn reach_holders(&mut self, place: &Place<'a>, holders: Holders) {
        let now = self.start.now;
        let held = self.start.held(place.step.key);
        match (held, holders) {
            (Observed::One { owner, .. }, _) if held.holds(owner.as_ref(), now) => {
                self.reach_holder(place, owner.as_ref());
            }
            (Observed::Many(readers), Holders::All) => self.reach_readers(place, readers),
            (Observed::Many(_), Holders::Only) => {
                if let Some((owner, _)) = held.only_reader(now) {
                    self.reach_holder(place, owner.as_ref());
                }
            }
            (Observed::Free | Observed::One { .. } | Observed::Many(_), _) => {}
        }
    }

    fn reach_holder(&mut self, place: &Place<'a>, holder: OwnerRef<'_>) {
        if holder == place.owner {
            return;
        }
        self.start.budget.step(1);
        if !self.start.is_own_task(holder) {
            self.reach(self.start.queues.waiters.task_of(holder), place.step);
        } else if self.is_target(place.step, holder) {
            self.closed = Some(place.step);
        }
    }

    /// Whether a step to `owner`, which is of the own task and holds, closes a cycle.
    fn is_target(&self, step: Step, owner: OwnerRef<'_>) -> bool {
        match step.key == self.start.key {
            true => step.task != START && owner == self.start.owner(),
            false => !self.only_at_own_key,
        }
    }

    fn reach_readers(&mut self, place: &Place<'a>, readers: &ObservedReaders) {
        let (start, step) = (self.start, place.step);
        let owner = start.owner();
        if self.is_target(step, owner) {
            start.budget.step(1);
            let holds = match step.key == start.key {
                true => readers.holds(owner, start.now),
                false => readers.holds_for_task(owner, None, start.now),
            };
            if holds {
                self.closed = Some(step);
                return;
            }
        }
        self.reach_upgrades(place, readers);
        self.follow_readers(step, readers, None);
    }

    /// Reaches the readers that wait for an upgrade: what they wait for here, the others do not wait for.
    fn reach_upgrades(&mut self, place: &Place<'a>, readers: &ObservedReaders) {
        let start = self.start;
        let waiters = &start.queues.waiters;
        let mut at = waiters.line_from(start.line(place.step.key), Position::FIRST);
        while at != NIL && waiters.node(at).is_upgrade() && !self.is_over() {
            start.budget.step(2);
            let owner = waiters.node(at).waiter.owner.as_ref();
            let task = waiters.task_at(at);
            let is_other = owner != place.owner && task != start.task;
            if is_other && readers.holds(owner, start.now) && self.upgrades.insert(at) {
                self.reach(task, place.step);
                self.pending.push_back(Visit::Upgrade { task, slot: at });
            }
            at = waiters.next_in_line(at);
        }
    }

    /// Reaches some of the readers.
    fn follow_readers(&mut self, step: Step, readers: &ObservedReaders, after: Option<&Owner>) {
        let start = self.start;
        let waiters = &start.queues.waiters;
        let walker = match step.slot {
            NIL => start.owner(),
            slot => waiters.node(slot).waiter.owner.as_ref(),
        };
        let mut page = readers.page(after, PAGE);
        start.budget.step(page.len());
        for (reader, is_live) in page
            .iter()
            .map(|(reader, stake)| (reader.as_ref(), !stake.is_over(start.now)))
        {
            if is_live && reader != walker {
                self.reach(waiters.task_of(reader), step);
            }
        }
        if page.len() == PAGE
            && let Some((after, _)) = page.pop()
        {
            self.pending.push_back(Visit::Readers { step, after });
        }
    }

    /// `step` leads to the task at `task`, if that waits anywhere.
    fn reach(&mut self, task: u32, step: Step) {
        if task == NIL || task == self.start.task {
            return;
        }
        let keys = match self.reached.entry(task) {
            Entry::Vacant(entry) => {
                let (first, second) = (step, None);
                entry.insert(Reached { first, second });
                Keys::Except(step.key)
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if known.second.is_some() || known.first.key == step.key {
                    return;
                }
                known.second = Some(step);
                Keys::At(known.first.key)
            }
        };
        self.add_requests(task, task, keys);
    }

    /// The steps of the cycle, from the own task round to it, each with the task that it leads to.
    pub(super) fn steps(&self) -> Option<Vec<(Step, u32)>> {
        let mut step = self.closed?;
        let mut steps = vec![(step, START)];
        while step.task != START {
            let (reached, to) = (self.reached.get(&step.task)?, step.task);
            step = match reached.second {
                Some(second) if reached.first.key == step.key => second,
                _ => reached.first,
            };
            steps.push((step, to));
        }
        steps.reverse();
        Some(steps)
    }
}
