//! Whether one more wait would close a circle of those who wait for each other.
//!
//! A request waits for every other owner that holds incompatibly, and for every other owner that
//! stands ahead of it with an incompatible request. The owners of one task count as one: what one
//! of them waits for, the task waits for. But not at one key: whoever waits for a task there waits
//! for what that owner of it waits for, and for what the task waits for elsewhere. The task may have
//! other names at the key, and a request that waits for those simply waits.
//!
//! Mostly nobody waits for the task at all, and a look at what it holds and where it stands tells.
//! Else the search walks from the request that is about to wait, breadth first, to a shortest
//! circle. It is kept small by these observations.
//!
//! * Whoever waits in one queue only waits for nobody but its holders and those ahead. So a walk
//!   along a queue needs to stop only at those who *roam*, who wait in several: a million waiters of
//!   one lock cost a look at the lock.
//! * A reader waits for the last writer ahead of it and, through that writer, for all that a
//!   writer in the same place waits for. So a walk is told whole by how far it goes, and no queue
//!   is walked twice over the same stretch.
//! * A holder matters only if its task waits somewhere itself, and whoever waits in the line of a
//!   lock does not hold it. So thousands that read a lock cost nothing unless as many wait elsewhere.
//!
//! It gives up after [`MOST_TASKS`], and then only looks for circles of two.
//!
//! An owner's later requests in one queue stand, for this purpose, where its first one does: they
//! are decided when that is granted, so nobody in between is waited for.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::tree::NIL;
use super::waiters::{Place, ROAMS, WRITES};
use super::{KeyId, Queues};
use crate::observed::{Observed, ObservedReaders};
use crate::owner::{Owner, OwnerRef};
use crate::types::{Instant, Mode};

/// How many tasks are reached at most.
const MOST_TASKS: usize = 1_000;
/// How many looks at somebody who may not matter are made at most.
const MOST_LOOKS: usize = 4_000;
/// So many looks cost as much as to find somebody among the readers of a lock.
const FIND: usize = 8;
/// How many keys are looked at one by one where a guess will do.
const SOME: usize = 16;
/// How many waiters are looked at for circles of two.
const MANY: usize = 256;

/// A wait that is about to begin, or that has just become an upgrade.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Where.
    pub key: KeyId,
    /// Whose.
    pub owner: Owner,
    /// For what.
    pub mode: Mode,
    /// It stands ahead of the line.
    pub upgrade: bool,
}

impl Queues {
    /// The keys of a cycle that `wait` closes, each once, from its own key on; `None` if it closes
    /// none, or one that more than a thousand have to be looked at for.
    ///
    /// `held` is who holds at the wait's own key; of other keys the queues know themselves.
    ///
    /// Where the owner waits for the same key already, `wait` stands ahead of others, who come to
    /// wait for it: there a cycle counts, too, that comes to it from one of its task's other waits.
    pub fn find_cycle(&self, wait: &Wait, held: &Observed, now: Instant) -> Option<Vec<KeyId>> {
        self.look_for_cycle(wait, held, now).0
    }

    /// The same, and how many were looked at for it: those who hold where somebody waits who is
    /// waited for, or who wait there and elsewhere.
    pub fn look_for_cycle(
        &self,
        wait: &Wait,
        held: &Observed,
        now: Instant,
    ) -> (Option<Vec<KeyId>>, usize) {
        let asking = Asking::new(self, wait, held, now);
        if !asking.is_waited_for() {
            return (None, 0);
        }
        let mut search = Search::new(&asking, Target::Task);
        // Re-entry only waits for the end of a grace.
        if wait.upgrade || !held.holds(wait.owner.as_ref(), now) {
            let walker = Walker {
                task: START,
                owner: wait.owner.as_ref(),
            };
            search.walk(walker, asking.key, wait.mode, asking.place);
            search.run();
        }
        let mut looks = search.looks;
        if search.closed.is_none() && asking.stands {
            search = Search::new(&asking, Target::Owner);
            search.walk_from(START, asking.task, Exits::Except(asking.key));
            search.run();
            looks += search.looks;
        }
        if search.closed.is_none() && search.gave_up {
            return (asking.circle_of_two(), looks + MANY);
        }
        (search.path(), looks)
    }
}

/// The wait that the search is about.
struct Asking<'a> {
    queues: &'a Queues,
    wait: &'a Wait,
    held: &'a Observed,
    now: Instant,
    /// The slot of its key, [`NIL`] if nobody waits there.
    key: u32,
    /// The root of its task's waits, [`NIL`] if there are none.
    task: u32,
    /// Where it stands, or is to stand.
    place: Place,
    /// Its owner waits at its key already.
    stands: bool,
}

impl<'a> Asking<'a> {
    fn new(queues: &'a Queues, wait: &'a Wait, held: &'a Observed, now: Instant) -> Self {
        let key = queues.keys.find(wait.key.db, &wait.key.name).unwrap_or(NIL);
        let task = queues.waiters.task_of(wait.owner.as_ref());
        let first = queues.waiters.standing(task, key, wait.owner.as_ref());
        let end = Place::end(wait.upgrade);
        Self {
            queues,
            wait,
            held,
            now,
            key,
            task,
            place: match first {
                NIL => end,
                first => queues.waiters.node(first).place().min(end),
            },
            stands: first != NIL,
        }
    }

    fn line(&self, key: u32) -> u32 {
        match key {
            NIL => NIL,
            key => self.queues.keys.node(key).line,
        }
    }

    fn held(&self, key: u32) -> &'a Observed {
        if key == self.key {
            self.held
        } else {
            self.queues.keys.held(key)
        }
    }

    fn is_own_task(&self, owner: OwnerRef<'_>) -> bool {
        let own = self.wait.owner.as_ref();
        owner == own || *owner.task() == *own.task()
    }

    /// Somebody may wait for it: it holds where others wait, or stands ahead of them.
    fn is_waited_for(&self) -> bool {
        let (keys, waiters) = (&self.queues.keys, &self.queues.waiters);
        let owner = self.wait.owner.as_ref();
        if self.key != NIL {
            let first = waiters.standing(self.task, self.key, owner);
            let is_ahead = first != NIL && waiters.next_in_line(first) != NIL;
            if is_ahead || self.held.holds(owner, self.now) {
                return true;
            }
        }
        let elsewhere = |key: &u32| *key != self.key;
        let hash = waiters.nodes.hash_task(owner);
        if keys.held_by(hash).any(|key| elsewhere(&key)) {
            return true;
        }
        let mut shared = keys.shared().filter(elsewhere);
        if shared.by_ref().take(SOME).any(|key| self.is_held(key)) || shared.next().is_some() {
            return true;
        }
        let mut waits = self.waits_elsewhere();
        let is_ahead = |key: u32| waiters.next_in_line(waiters.foremost(self.task, key)) != NIL;
        waits.by_ref().take(SOME).any(is_ahead) || waits.next().is_some()
    }

    /// The task holds the key.
    fn is_held(&self, key: u32) -> bool {
        let held = self.held(key);
        held.holds_for_task(self.wait.owner.as_ref(), None, self.now)
    }

    /// The other keys where the task waits.
    fn waits_elsewhere(&self) -> impl Iterator<Item = u32> {
        let waiters = &self.queues.waiters;
        let mut from = 0;
        let keys = std::iter::from_fn(move || {
            let at = waiters.key_from(self.task, from);
            let key = (at != NIL).then(|| waiters.node(at).key)?;
            from = key + 1;
            Some(key)
        });
        keys.filter(|key| *key != self.key)
    }

    fn writer_ahead_of(&self, key: u32, place: Place) -> Option<Place> {
        let waiters = &self.queues.waiters;
        let queued = waiters.last_marked_before(self.line(key), place, WRITES);
        let queued = (queued != NIL).then(|| waiters.node(queued).place());
        let is_own = self.wait.mode == Mode::Write && self.place < place && key == self.key;
        queued.max(is_own.then_some(self.place))
    }

    /// How far ahead all are waited for at `key` by a request for `mode` that stands at `place`: it,
    /// or somebody whom it waits for, waits there for all holders, too. `None` if it waits for a
    /// writer that holds, and nobody else.
    fn waits_up_to(&self, key: u32, mode: Mode, place: Place) -> Option<Place> {
        match mode {
            Mode::Write => Some(place),
            Mode::Read => self.writer_ahead_of(key, place).map(Place::behind),
        }
    }

    /// The keys of a circle of two tasks: among the first of those who wait where the task holds,
    /// one whom it is about to wait for.
    fn circle_of_two(&self) -> Option<Vec<KeyId>> {
        let (keys, waiters) = (&self.queues.keys, &self.queues.waiters);
        let hash = waiters.nodes.hash_task(self.wait.owner.as_ref());
        let held = keys.held_by(hash).chain(keys.shared().take(SOME));
        let held = held.filter(|key| *key != self.key && self.is_held(*key));
        let mut left = MANY;
        for key in held.take(SOME) {
            let mut at = waiters.line_from(self.line(key), Place::FIRST);
            while at != NIL && left > 0 {
                left -= 1;
                let task = waiters.task_at(at);
                if task != self.task && self.waits_at(key, at) && self.waits_for(task, at) {
                    return Some(vec![self.wait.key.clone(), keys.node(key).id.clone()]);
                }
                at = waiters.next_in_line(at);
            }
        }
        None
    }

    /// The request in `slot` waits for those who hold `key`.
    fn waits_at(&self, key: u32, slot: u32) -> bool {
        let node = self.queues.waiters.node(slot);
        self.held(key).mode(self.now) == Some(Mode::Write)
            || self
                .waits_up_to(key, node.waiter.mode, node.place())
                .is_some()
    }

    /// The wait is for `task`, to which the waiter in `slot` belongs.
    fn waits_for(&self, task: u32, slot: u32) -> bool {
        let waiters = &self.queues.waiters;
        let up_to = self.waits_up_to(self.key, self.wait.mode, self.place);
        let owner = waiters.node(slot).waiter.owner.as_ref();
        let by_holds = up_to.is_some() || self.held.mode(self.now) == Some(Mode::Write);
        if by_holds && self.held.holds_for_task(owner, None, self.now) {
            return true;
        }
        let first = match self.key {
            NIL => NIL,
            key => waiters.foremost(task, key),
        };
        first != NIL && up_to.is_some_and(|up_to| waiters.node(first).place() < up_to)
    }
}

/// What closes a circle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The asking task at any other key, or the asking owner at its own.
    Task,
    /// The asking owner at its own key.
    Owner,
}

/// In place of a task: the one that asks.
const START: u32 = NIL;

/// Task `from` waits for somebody at `key`.
#[derive(Clone, Copy)]
struct Step {
    from: u32,
    key: u32,
}

/// A task that is waited for.
struct Reached {
    first: Step,
    /// Whoever waits for it at another key waits for what it waits for at the first one, too.
    second: Option<Step>,
}

/// Which of a task's waits are still to be walked.
#[derive(Clone, Copy)]
enum Exits {
    /// Those at other keys than this.
    Except(u32),
    At(u32),
    /// That of the upgrade in this slot.
    Upgrade(u32),
}

/// Whose wait is walked.
#[derive(Clone, Copy)]
struct Walker<'a> {
    task: u32,
    owner: OwnerRef<'a>,
}

struct Search<'a> {
    asking: &'a Asking<'a>,
    target: Target,
    /// Every task that is waited for, by its root.
    reached: HashMap<u32, Reached>,
    pending: VecDeque<(u32, Exits)>,
    walked: HashMap<u32, Walked>,
    looks: usize,
    gave_up: bool,
    /// The last step of a circle.
    closed: Option<Step>,
}

/// Whom of a key the search has reached already.
#[derive(Clone, Copy)]
struct Walked {
    /// Everybody who stands ahead of this.
    ahead_of: Place,
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
    fn new(asking: &'a Asking<'a>, target: Target) -> Self {
        Self {
            asking,
            target,
            reached: HashMap::new(),
            pending: VecDeque::new(),
            walked: HashMap::new(),
            looks: 0,
            gave_up: false,
            closed: None,
        }
    }

    fn run(&mut self) {
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
    fn walk_from(&mut self, from: u32, task: u32, exits: Exits) {
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
        self.walk(walker, node.key, mode, node.place());
    }

    /// Reaches whom `walker` waits for with a request for `mode` at `place`.
    fn walk(&mut self, walker: Walker<'_>, key: u32, mode: Mode, place: Place) {
        let ahead_of = self.asking.waits_up_to(key, mode, place);
        let wanted = Walked {
            ahead_of: ahead_of.unwrap_or(Place::FIRST),
            holders: ahead_of.map_or(Holders::Writer, |_| Holders::All),
        };
        let walked = self.walked.get(&key).copied().unwrap_or(Walked {
            ahead_of: Place::FIRST,
            holders: Holders::None,
        });
        if wanted.ahead_of <= walked.ahead_of && wanted.holders <= walked.holders {
            return;
        }
        if wanted.holders > walked.holders {
            let held = self.asking.held(key);
            if !place.is_upgrade() && held.holds(walker.owner, self.asking.now) {
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
        let holders = if walker.task == START || place.is_upgrade() {
            // Who holds does not reach itself, and somebody else may.
            walked.holders
        } else {
            wanted.holders.max(walked.holders)
        };
        let ahead_of = wanted.ahead_of.max(walked.ahead_of);
        self.walked.insert(key, Walked { ahead_of, holders });
    }

    /// Reaches those who roam, and the target, where they stand from `from` to before `to`.
    fn reach_queue(&mut self, step: Step, from: Place, to: Place) {
        if to <= from || self.is_over() {
            return;
        }
        let waiters = &self.asking.queues.waiters;
        let first = if step.key == self.asking.key {
            Some(self.asking.place)
        } else {
            let first = waiters.foremost(self.asking.task, step.key);
            (first != NIL && self.target == Target::Task).then(|| waiters.node(first).place())
        };
        if first.is_some_and(|place| (from..to).contains(&place)) {
            self.closed = Some(step);
            return;
        }
        // The last one first: the others' walks are mostly part of its.
        let mut at = waiters.last_marked_before(self.asking.line(step.key), to, ROAMS);
        while at != NIL && waiters.node(at).place() >= from && !self.is_over() {
            self.look(1);
            self.reach(waiters.task_at(at), step);
            at = waiters.previous_marked(at, ROAMS);
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
            if first != NIL && waiters.node(first).upgrade {
                self.pending.push_back((task, Exits::Upgrade(first)));
            }
        } else if self.counts(step, holder) {
            self.closed = Some(step);
        }
    }

    /// A step to `owner`, who is of the asking task, closes a circle.
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
        let mut at = waiters.line_from(self.asking.line(key), Place::FIRST);
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
        let mut at = waiters.line_from(line, Place::FIRST);
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
    fn path(&self) -> Option<Vec<KeyId>> {
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
