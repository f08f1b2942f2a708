//! The graph of waits, as one request sees it: where it stands, and whom it waits for.

use std::collections::HashSet;
use std::ops::Range;

use super::super::Queues;
use super::super::waiters::{EXCLUSIVE, LIMITED, MEMBER, Position, WRITES};
use super::budget::Budget;
use super::wait::{Follow, Wait};
use crate::admission::{self, compatible};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::owner::OwnerRef;
use crate::request::Terms;
use crate::tree::NIL;
use crate::types::{Instant, Mode};

/// In place of a task: the one whose wait the search starts from.
pub(super) const START: u32 = NIL;

/// Task `task` waits for others at `key`.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) task: u32,
    pub(super) key: u32,
    /// The slot of the request that waits there, [`NIL`] for one that is about to.
    pub(super) slot: u32,
}

/// How many keys are checked one by one at most before a search.
const SOME: usize = 16;

/// The wait that a search starts from.
pub(super) struct Start<'a> {
    pub(super) queues: &'a Queues,
    pub(super) wait: &'a Wait,
    pub(super) held: &'a Observed,
    pub(super) now: Instant,
    pub(super) budget: &'a Budget,
    /// The slot of its key, [`NIL`] if nobody waits there.
    pub(super) key: u32,
    /// The root of its task's waits, [`NIL`] if there are none.
    pub(super) task: u32,
    /// The first request of its owner at its key, [`NIL`] if there is none.
    slot: u32,
    /// Where it stands, or is to stand.
    position: Position,
}

/// A request in a queue, or the one that is about to wait.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// What leads on from it.
    pub(super) step: Step,
    pub(super) owner: OwnerRef<'a>,
    pub(super) position: Position,
    writes: bool,
}

/// Whom a request waits for at its key, at once or through others at this key.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// All that stand ahead of this position.
    pub(super) ahead_of: Position,
    pub(super) holders: Holders,
}

/// The holders that a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holders {
    None,
    /// The only one that reads, if there is only one.
    Only,
    All,
}

impl Reach {
    pub(super) const NOBODY: Self = Self {
        ahead_of: Position::FIRST,
        holders: Holders::None,
    };
}

impl<'a> Start<'a> {
    pub(super) fn new(
        queues: &'a Queues,
        wait: &'a Wait,
        held: &'a Observed,
        now: Instant,
        budget: &'a Budget,
    ) -> Self {
        let key = queues.keys.find(wait.key.as_ref()).unwrap_or(NIL);
        let task = queues.waiters.task_of(wait.owner.as_ref());
        let slot = queues.waiters.first_request(task, key, wait.owner.as_ref());
        let end = queues.waiters.nodes.end(wait.rank);
        Self {
            queues,
            wait,
            held,
            now,
            budget,
            key,
            task,
            slot,
            position: match slot {
                NIL => end,
                slot => queues.waiters.position(slot).min(end),
            },
        }
    }

    pub(super) fn owner(&self) -> OwnerRef<'a> {
        self.wait.owner.as_ref()
    }

    /// Whether others wait for it that came earlier: it stands there already, or was moved ahead of them.
    pub(super) fn is_ahead_of_others(&self) -> bool {
        self.slot != NIL || self.wait.rank.is_moved()
    }

    pub(super) fn line(&self, key: u32) -> u32 {
        match key {
            NIL => NIL,
            key => self.queues.keys.node(key).line,
        }
    }

    pub(super) fn held(&self, key: u32) -> &'a Observed {
        if key == self.key {
            self.held
        } else {
            self.queues.keys.held(key)
        }
    }

    pub(super) fn is_own_task(&self, owner: OwnerRef<'_>) -> bool {
        owner == self.owner() || owner.task_owner() == self.owner().task_owner()
    }

    /// Whether anybody may wait for its task: it holds where others wait, or stands in a queue, or ahead of others in this one.
    pub(super) fn is_waited_for(&self) -> bool {
        let (keys, waiters) = (&self.queues.keys, &self.queues.waiters);
        let elsewhere = |key: &u32| *key != self.key;
        if self.key != NIL {
            let is_ahead = match self.slot {
                NIL => waiters.line_from(self.line(self.key), self.position) != NIL,
                slot => waiters.next_in_line(slot) != NIL,
            };
            if is_ahead || self.held.holds(self.owner(), self.now) {
                return true;
            }
        }
        let hash = waiters.nodes.hash_task(self.owner());
        if keys.held_by(hash).any(|key| elsewhere(&key)) {
            return true;
        }
        let holds = |key: u32| {
            let held = self.held(key);
            held.holds_for_task(self.owner(), None, self.now)
        };
        let is_ahead = |key: u32| waiters.next_in_line(waiters.first_of(self.task, key)) != NIL;
        any_of_some(keys.shared().filter(elsewhere), holds)
            || any_of_some(self.keys_of_task().filter(elsewhere), is_ahead)
    }

    /// The keys where its task waits.
    fn keys_of_task(&self) -> impl Iterator<Item = u32> {
        let waiters = &self.queues.waiters;
        let mut from = 0;
        std::iter::from_fn(move || {
            let at = waiters.key_from(self.task, from);
            let key = (at != NIL).then(|| waiters.node(at).key)?;
            from = key + 1;
            Some(key)
        })
    }

    /// The wait itself.
    pub(super) fn place(&self) -> Place<'a> {
        Place {
            step: Step {
                task: START,
                key: self.key,
                slot: self.slot,
            },
            owner: self.owner(),
            position: self.position,
            writes: self.wait.terms.mode() == Mode::Write,
        }
    }

    /// The request in `slot`, of `task`.
    pub(super) fn place_of(&self, task: u32, slot: u32) -> Place<'a> {
        let waiters = &self.queues.waiters;
        let node = waiters.node(slot);
        let key = node.key;
        Place {
            step: Step { task, key, slot },
            owner: node.waiter.owner.as_ref(),
            position: waiters.position(slot),
            writes: waiters.has(slot, EXCLUSIVE),
        }
    }

    /// Whom the request in that place waits for.
    pub(super) fn reach_of(&self, place: &Place<'_>, follow: Follow) -> Reach {
        if place.writes {
            let (ahead_of, holders) = (place.position, Holders::All);
            return Reach { ahead_of, holders };
        }
        // Behind a writer it waits for that one, and for all that a writer in its place waits for.
        if let Some(writer) = self.writer_ahead_of(place, follow) {
            let (ahead_of, holders) = (writer.behind(), Holders::All);
            return Reach { ahead_of, holders };
        }
        let holders = match self.held(place.step.key) {
            Observed::One { mode, .. } if !compatible(*mode, Mode::Read) => Holders::All,
            _ if self.waits_for_only_reader(place) => Holders::Only,
            _ => Holders::None,
        };
        let ahead_of = Position::FIRST;
        Reach { ahead_of, holders }
    }

    fn writer_ahead_of(&self, place: &Place<'_>, follow: Follow) -> Option<Position> {
        self.budget.step(1);
        let waiters = &self.queues.waiters;
        let flags = match follow {
            Follow::Every => EXCLUSIVE,
            Follow::Firm => WRITES,
        };
        let queued = waiters.last_flagged_before(self.line(place.step.key), place.position, flags);
        let queued = (queued != NIL).then(|| waiters.position(queued));
        let is_own = self.wait.terms.mode() == Mode::Write
            && self.counts(follow)
            && self.position < place.position
            && place.step.key == self.key;
        queued.max(is_own.then_some(self.position))
    }

    /// Whether it makes those behind it wait.
    fn counts(&self, follow: Follow) -> bool {
        follow == Follow::Every || self.wait.terms.sharing.keys().is_none()
    }

    /// Whether a reader, which stands behind no writer, waits for its limit, or stands behind one that does: so it waits for the only owner that reads, if
    /// there is only one.
    fn waits_for_only_reader(&self, place: &Place<'_>) -> bool {
        let (waiters, key) = (&self.queues.waiters, place.step.key);
        let is_new = place.step.task == START && place.step.slot == NIL;
        let own = Some(&self.wait.terms).filter(|terms| is_new && terms.sharing.limit().is_some());
        let mut at = waiters.first_flagged(self.line(key), LIMITED);
        if at == NIL && own.is_none() {
            return false;
        }
        self.budget.step(1);
        let Some((reader, reads)) = self.held(key).only_reader(self.now) else {
            return false;
        };
        let waits = |terms: &Terms| admission::waits_for_limit(terms, u64::from(reads));
        if own.is_some_and(waits) {
            return true;
        }
        while at != NIL && waiters.position(at) <= place.position && !self.budget.is_spent() {
            self.budget.step(1);
            let waiter = &waiters.node(at).waiter;
            // The reader itself waits only for the end of a grace.
            if waits(&waiter.terms) && waiter.owner != reader {
                return true;
            }
            at = waiters.next_flagged(at, LIMITED);
        }
        false
    }

    /// Whether a request of `task` stands in that part of the queue, and is waited for there.
    pub(super) fn stands(
        &self,
        task: u32,
        key: u32,
        part: Range<Position>,
        follow: Follow,
    ) -> bool {
        if task == START && key == self.key {
            return part.contains(&self.position) && self.counts(follow);
        }
        let task = if task == START { self.task } else { task };
        if task == NIL {
            return false;
        }
        let waiters = &self.queues.waiters;
        self.budget.step(1);
        let first = waiters.first_of(task, key);
        if first == NIL || follow == Follow::Every || !waiters.has(first, MEMBER) {
            return first != NIL && part.contains(&waiters.position(first));
        }
        self.first_firm(task, key, part.start)
            .is_some_and(|position| position < part.end)
    }

    /// Where the first request of `task` for this key alone stands, in or behind `from`.
    pub(super) fn first_firm(&self, task: u32, key: u32, from: Position) -> Option<Position> {
        let waiters = &self.queues.waiters;
        let mut at = waiters.key_from(task, key);
        let mut first = None;
        while at != NIL && waiters.node(at).key == key && !self.budget.is_spent() {
            self.budget.step(1);
            let position = waiters.position(at);
            let is_ahead = first.is_none_or(|first| position < first);
            if !waiters.node(at).is_member() && position >= from && is_ahead {
                first = Some(position);
            }
            at = waiters.next_owner(task, at);
        }
        first
    }

    /// Whether the request that `step` begins with waits for the task at `to` firmly: not only for requests for several keys. False once the budget is
    /// spent.
    pub(super) fn is_firm(&self, step: Step, to: u32) -> bool {
        let place = match (step.task, step.slot) {
            (START, slot) if slot == self.slot => self.place(),
            (task, slot) => self.place_of(task, slot),
        };
        let reach = self.reach_of(&place, Follow::Firm);
        let part = Position::FIRST..reach.ahead_of;
        let waits =
            self.holds(to, &place, reach.holders) || self.stands(to, step.key, part, Follow::Firm);
        waits && !self.budget.is_spent()
    }

    /// Whether the task at `task` is among those holders for which the request in that place waits.
    fn holds(&self, task: u32, place: &Place<'_>, holders: Holders) -> bool {
        self.budget.step(1);
        let held = self.held(place.step.key);
        let holds = match task {
            START if place.step.key == self.key => held.holds(self.owner(), self.now),
            START => held.holds_for_task(self.owner(), Some(place.owner), self.now),
            task => {
                let owner = self.queues.waiters.node(task).waiter.owner.as_ref();
                held.holds_for_task(owner, Some(place.owner), self.now)
            }
        };
        holds
            && match holders {
                Holders::All => true,
                Holders::Only => held.only_reader(self.now).is_some(),
                Holders::None => false,
            }
    }

    /// The keys of the steps of a cycle, each once, from the wait's own round to it.
    pub(super) fn keys_of(&self, steps: &[(Step, u32)]) -> Vec<KeyId> {
        let mut keys: Vec<u32> = steps.iter().map(|(step, _)| step.key).collect();
        if let Some(own) = keys.iter().position(|key| *key == self.key) {
            keys.rotate_left(own);
        }
        let mut seen = HashSet::new();
        keys.retain(|key| seen.insert(*key));
        let id = |key: u32| match key {
            key if key == self.key => self.wait.key.clone(),
            key => self.queues.keys.node(key).id.clone(),
        };
        keys.into_iter().map(id).collect()
    }
}

/// Whether any of the first few keys `is`, or there are more.
fn any_of_some(mut keys: impl Iterator<Item = u32>, is: impl Fn(u32) -> bool) -> bool {
    keys.by_ref().take(SOME).any(is) || keys.next().is_some()
}
