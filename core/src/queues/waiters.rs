//! All waiting requests, and the orders in which they are searched. No rules here.
//!
//! A request is kept once, whether it asks for one key or for several. Every order is one B-tree for all keys together: a key with a single
//! waiter has no tree of its own, and no step copies a large table.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use super::keys::KeyNo;
use super::position::{Head, Position, WaiterId};
use super::waiter::{QueuedAt, Waiter, Waiting};
use crate::owner::OwnerRef;
use crate::request::Terms;
use crate::types::{Instant, Lease, Mode};

/// An owner, as hashes. That two share one is less likely than a failure of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) task: u64,
    pub(crate) owner: u64,
}

/// A request in the queue of a key, by its task and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OfTask {
    task: u64,
    key: KeyNo,
    owner: u64,
    reads: bool,
    position: Position,
}

impl OfTask {
    const fn first(key: KeyNo, name: Name, reads: bool, position: Position) -> Self {
        Self {
            task: name.task,
            key,
            owner: name.owner,
            reads,
            position,
        }
    }
}

/// An owner in the queue of a key. All its requests there count as standing where the first one does: when that is granted, they are decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    pub(crate) key: KeyNo,
    pub(crate) name: Name,
    /// Where its first request stands.
    pub(crate) position: Position,
    /// Any of its requests is to write.
    pub(crate) writes: bool,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_id: BTreeMap<WaiterId, Box<Waiting>>,
    /// The queue of each key.
    lines: BTreeSet<(KeyNo, Position)>,
    /// The requests that were moved to the head. The other positions name theirs.
    moved: BTreeMap<Position, WaiterId>,
    of_tasks: BTreeSet<OfTask>,
    /// The stands of owners that ask to write.
    writers: BTreeSet<(KeyNo, Position)>,
    /// The same for requests for several keys at once. Their owners have no other request at these keys.
    several: BTreeSet<(KeyNo, Position)>,
    /// The tasks that wait at several keys, at each of these.
    spread: BTreeSet<(KeyNo, u64)>,
    /// The requests for several keys that can have all of them, as far as is known.
    pub(super) due: BTreeSet<WaiterId>,
    limits: BTreeSet<(Instant, WaiterId)>,
    /// The longest lease that anybody has asked for since the first of them began to wait.
    longest_lease: Option<Lease>,
    pub(super) head: Head,
    hasher: RandomState,
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn get(&self, id: WaiterId) -> Option<&Waiting> {
        self.by_id.get(&id).map(|waiting| &**waiting)
    }

    pub(crate) fn name(&self, owner: OwnerRef<'_>) -> Name {
        let (task, hash) = (owner.task_owner(), self.hasher.hash_one(owner));
        Name {
            task: match task == owner {
                true => hash,
                false => self.hasher.hash_one(task),
            },
            owner: hash,
        }
    }

    pub(super) fn insert(&mut self, waiting: Waiting) {
        let id = waiting.waiter.id;
        let Waiter { terms, until, .. } = waiting.waiter;
        self.longest_lease = self.longest_lease.max(Some(terms.lease));
        if until < Instant::NEVER {
            self.limits.insert((until, id));
        }
        self.by_id.insert(id, Box::new(waiting));
        self.change_all(id, true);
    }

    /// The request leaves all its queues.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Box<Waiting>> {
        self.change_all(id, false);
        let waiting = self.by_id.remove(&id)?;
        self.moved.remove(&waiting.position);
        let until = waiting.waiter.until;
        if until < Instant::NEVER {
            self.limits.remove(&(until, id));
        }
        if self.by_id.is_empty() {
            self.longest_lease = None;
        }
        if waiting.is_for_several() {
            self.due.remove(&id);
        }
        Some(waiting)
    }

    /// The request stands at `position` from now on, in all its queues.
    pub(super) fn set_position(&mut self, id: WaiterId, position: Position) {
        self.change_all(id, false);
        if let Some(waiting) = self.by_id.get_mut(&id) {
            self.moved.remove(&waiting.position);
            waiting.position = position;
        }
        if position.id().is_none() {
            self.moved.insert(position, id);
        }
        self.change_all(id, true);
    }

    /// The request is repeated, on other terms and until another moment. True if the terms differ.
    pub(super) fn take_over(&mut self, id: WaiterId, terms: Terms, until: Instant) -> bool {
        let Some(waiting) = self.by_id.get_mut(&id) else {
            return false;
        };
        let waiter = &mut waiting.waiter;
        let before = std::mem::replace(&mut waiter.terms, terms);
        let limit = std::mem::replace(&mut waiter.until, until);
        self.limits.remove(&(limit, id));
        if until < Instant::NEVER {
            self.limits.insert((until, id));
        }
        self.longest_lease = self.longest_lease.max(Some(terms.lease));
        before != terms
    }

    /// The longest lease that anybody has asked for since the first of all that wait began.
    pub(crate) fn longest_lease(&self) -> Option<Lease> {
        self.longest_lease
    }

    /// The waiter whose time is up first, and when that is.
    pub(crate) fn first_limit(&self) -> Option<(Instant, WaiterId)> {
        self.limits.first().copied()
    }

    /// The request enters or leaves the queues of all its keys.
    fn change_all(&mut self, id: WaiterId, enters: bool) {
        let key = |waiters: &Self, nth: usize| waiters.get(id)?.keys().get(nth).copied();
        let mut nth = 0;
        while let Some(key) = key(self, nth) {
            self.change(id, key, enters);
            nth += 1;
        }
    }

    /// The request enters or leaves the queue of `key`.
    fn change(&mut self, id: WaiterId, key: KeyNo, enters: bool) {
        let Some(waiting) = self.by_id.get(&id) else {
            return;
        };
        let (position, several) = (waiting.position, waiting.is_for_several());
        let reads = waiting.waiter.terms.mode() == Mode::Read;
        let name = self.name(waiting.waiter.owner.as_ref());
        if let Some(before) = self.stand(key, name).filter(|stand| stand.writes) {
            self.writers_mut(several).remove(&(key, before.position));
        }
        let of_task = OfTask::first(key, name, reads, position);
        if enters {
            self.lines.insert((key, position));
            self.of_tasks.insert(of_task);
        } else {
            self.lines.remove(&(key, position));
            self.of_tasks.remove(&of_task);
        }
        if let Some(after) = self.stand(key, name).filter(|stand| stand.writes) {
            self.writers_mut(several).insert((key, after.position));
        }
        self.update_spread(key, name.task);
    }

    fn writers_mut(&mut self, several: bool) -> &mut BTreeSet<(KeyNo, Position)> {
        match several {
            true => &mut self.several,
            false => &mut self.writers,
        }
    }

    /// The task has begun or ceased to wait at `key` with one of its requests.
    fn update_spread(&mut self, key: KeyNo, task: u64) {
        let all = OfTask::first(KeyNo::MIN, Name { task, owner: 0 }, false, Position::FIRST);
        let end = Name {
            task,
            owner: u64::MAX,
        };
        let end = OfTask::first(KeyNo::MAX, end, true, Position::END);
        let mut waits = self.of_tasks.range(all..=end).map(|found| found.key);
        let first = waits.next();
        let last = waits.next_back().or(first);
        let is_here = self
            .stands(task, key, None)
            .next()
            .is_some_and(|stand| stand.key == key);
        for key in [first, last, Some(key).filter(|_| is_here)] {
            let Some(key) = key else { continue };
            if first == last {
                self.spread.remove(&(key, task));
            } else {
                self.spread.insert((key, task));
            }
        }
        if !is_here {
            self.spread.remove(&(key, task));
        }
    }

    /// Where the owner stands at the key.
    pub(crate) fn stand(&self, key: KeyNo, name: Name) -> Option<Stand> {
        let first = OfTask::first(key, name, false, Position::FIRST);
        self.stands_from(first)
            .next()
            .filter(|stand| stand.key == key && stand.name == name)
    }

    /// The owners of the task that stand at `key` and at later ones: all, or those behind the one with the hash `last` at `key`.
    pub(crate) fn stands(
        &self,
        task: u64,
        key: KeyNo,
        last: Option<u64>,
    ) -> impl Iterator<Item = Stand> {
        self.stands_from(match last {
            None => OfTask::first(key, Name { task, owner: 0 }, false, Position::FIRST),
            Some(owner) => OfTask::first(key, Name { task, owner }, true, Position::END),
        })
    }

    /// The owners of the task that stand in or behind `from`, in the order of `of_tasks`.
    fn stands_from(&self, from: OfTask) -> impl Iterator<Item = Stand> {
        let task = from.task;
        let mut found = self.of_tasks.range(from..);
        std::iter::from_fn(move || {
            let first = *found.next().filter(|first| first.task == task)?;
            let (key, owner) = (first.key, first.owner);
            let name = Name { task, owner };
            let of_owner = |next: &OfTask| (next.task, next.key, next.owner) == (task, key, owner);
            // Those that write come first. Mostly there is one request.
            let mut position = first.position;
            if found.clone().next().is_some_and(of_owner) {
                let behind = OfTask::first(key, name, true, Position::END);
                found = self.of_tasks.range(behind..);
                let read = self.request_of(key, name, true, Position::FIRST);
                position = read.map_or(position, |read| read.min(position));
            }
            let writes = !first.reads;
            Some(Stand {
                key,
                name,
                position,
                writes,
            })
        })
    }

    fn request_of(&self, key: KeyNo, name: Name, reads: bool, from: Position) -> Option<Position> {
        let from = OfTask::first(key, name, reads, from);
        let found = self.of_tasks.range(from..).next()?;
        let same = OfTask::first(key, name, reads, found.position);
        (*found == same).then_some(found.position)
    }

    /// Whether the owner has no more than one request at the key.
    pub(crate) fn is_alone(&self, key: KeyNo, name: Name) -> bool {
        let first = OfTask::first(key, name, false, Position::FIRST);
        let last = OfTask::first(key, name, true, Position::END);
        self.of_tasks.range(first..=last).nth(1).is_none()
    }

    /// The first request of the owner at the key in or behind `from`.
    pub(crate) fn request_from(&self, key: KeyNo, name: Name, from: Position) -> Option<Position> {
        let [write, read] = [false, true].map(|reads| self.request_of(key, name, reads, from));
        write.into_iter().chain(read).min()
    }

    /// The requests at the key from `from` to before `to`, the next one first.
    pub(crate) fn line(
        &self,
        key: KeyNo,
        from: Position,
        to: Position,
    ) -> impl Iterator<Item = (Position, &Waiting)> {
        let line = self.lines.range((key, from)..);
        line.take_while(move |found| **found < (key, to))
            .filter_map(|(_, position)| Some((*position, self.at(*position)?)))
    }

    /// The request that stands there.
    pub(crate) fn at(&self, position: Position) -> Option<&Waiting> {
        self.get(
            position
                .id()
                .or_else(|| self.moved.get(&position).copied())?,
        )
    }

    /// The first request at the key in or behind `from`.
    pub(crate) fn first_from(&self, key: KeyNo, from: Position) -> Option<&Waiting> {
        self.line(key, from, Position::END)
            .next()
            .map(|(_, first)| first)
    }

    /// Where the last owner that asks to write one key stands ahead of `to`.
    pub(crate) fn last_writer_before(&self, key: KeyNo, to: Position) -> Option<Position> {
        last_before(&self.writers, key, to)
    }

    /// Where the last request for several keys stands ahead of `to`.
    pub(crate) fn last_several_before(&self, key: KeyNo, to: Position) -> Option<Position> {
        last_before(&self.several, key, to)
    }

    pub(super) fn first_several(&self, key: KeyNo) -> Option<Position> {
        let found = self.several.range((key, Position::FIRST)..).next();
        found.filter(|found| found.0 == key).map(|found| found.1)
    }

    /// The tasks that wait at this key and at others, behind `last` if there is one.
    pub(crate) fn spread(&self, key: KeyNo, last: Option<u64>) -> impl Iterator<Item = u64> {
        let from = last.map_or(Bound::Included((key, 0)), |last| {
            Bound::Excluded((key, last))
        });
        let found = self.spread.range((from, Bound::Unbounded));
        found
            .take_while(move |found| found.0 == key)
            .map(|found| found.1)
    }
}

/// Requests for several keys.
impl Waiters {
    pub(crate) fn any_several(&self) -> bool {
        !self.several.is_empty()
    }

    /// The request leaves the queue of its last key. Once it stands in no queue, it is gone.
    pub(super) fn leave_last_key(&mut self, id: WaiterId) {
        if let Some(last) = self.get(id).and_then(|waiting| waiting.keys().last()) {
            self.change(id, *last, false);
        }
        if let Some(waiting) = self.by_id.get_mut(&id)
            && let QueuedAt::Several(several) = &mut waiting.queued_at
        {
            several.keys.pop();
            if several.keys.is_empty() {
                self.remove(id);
            }
        }
    }
}

fn last_before(order: &BTreeSet<(KeyNo, Position)>, key: KeyNo, to: Position) -> Option<Position> {
    let before = order.range(..(key, to)).next_back();
    before
        .filter(|before| before.0 == key)
        .map(|before| before.1)
}
