//! The wait that a search checks, and what is known without a search.

use super::super::Queues;
use super::super::waiters::{EXCLUSIVE, LIMITED, Position, Rank, Waiters};
use super::budget::Budget;
use crate::admission::{self, compatible};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::request::Terms;
use crate::tree::NIL;
use crate::types::{Instant, Mode};

/// How many keys are checked one by one at most, because a guess is enough.
const SOME: usize = 16;

/// A wait that is about to begin, or that has just become an upgrade.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Where.
    pub key: KeyId,
    /// Whose.
    pub owner: Owner,
    /// For what.
    pub terms: Terms,
    /// Where it joins the queue; not used if it stands there already.
    pub rank: Rank,
}

impl Wait {
    pub(super) fn is_upgrade(&self) -> bool {
        self.rank == Rank::Upgrade
    }

    /// Moves to the head, or ahead of all that were moved there; it does not stand in its queue yet. Those that move there later do not
    /// push it back: it keeps its place. False if it stands ahead of all anyway.
    pub(super) fn move_ahead(&mut self, waiters: &mut Waiters) -> bool {
        self.rank = match self.rank {
            Rank::Line => Rank::Head,
            Rank::Head | Rank::Reserved(_) => Rank::Reserved(waiters.nodes.reserve()),
            Rank::Foremost | Rank::Upgrade => return false,
        };
        true
    }
}

/// The wait that the search starts from.
pub(super) struct Asking<'a> {
    pub(super) queues: &'a Queues,
    pub(super) wait: &'a Wait,
    pub(super) held: &'a Observed,
    pub(super) now: Instant,
    /// The slot of its key, [`NIL`] if nobody waits there.
    pub(super) key: u32,
    /// The root of its task's waits, [`NIL`] if there are none.
    pub(super) task: u32,
    /// Where it stands, or is to stand.
    pub(super) position: Position,
    /// Its owner waits at its key already.
    pub(super) stands: bool,
    /// The first request of its owner there, [`NIL`] if there is none.
    pub(super) slot: u32,
}

impl<'a> Asking<'a> {
    pub(super) fn new(
        queues: &'a Queues,
        wait: &'a Wait,
        held: &'a Observed,
        now: Instant,
    ) -> Self {
        let key = queues.keys.find(wait.key.as_ref()).unwrap_or(NIL);
        let task = queues.waiters.task_of(wait.owner.as_ref());
        let first = queues.waiters.standing(task, key, wait.owner.as_ref());
        let end = queues.waiters.nodes.end(wait.rank);
        Self {
            queues,
            wait,
            held,
            now,
            key,
            task,
            position: match first {
                NIL => end,
                first => queues.waiters.position(first).min(end),
            },
            stands: first != NIL,
            slot: first,
        }
    }

    /// Others wait for it that came earlier: it stands there already, or was moved ahead of them.
    pub(super) fn is_ahead_of_others(&self) -> bool {
        self.stands || self.wait.rank.is_moved()
    }

    pub(super) fn line(&self, key: u32) -> u32 {
        match key {
            NIL => NIL,
            key => self.queues.keys.node(key).line,
        }
    }

    /// How many wait at the key.
    pub(super) fn len(&self, key: u32) -> usize {
        match key {
            NIL => 0,
            key => self.queues.keys.node(key).len as usize,
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
        let own = self.wait.owner.as_ref();
        owner == own || owner.task_owner() == own.task_owner()
    }

    /// A waiter may wait for it: it holds where others wait, or stands ahead of them.
    pub(super) fn is_waited_for(&self) -> bool {
        let (keys, waiters) = (&self.queues.keys, &self.queues.waiters);
        let owner = self.wait.owner.as_ref();
        if self.key != NIL {
            let first = waiters.standing(self.task, self.key, owner);
            let is_ahead = match first {
                NIL => waiters.line_from(self.line(self.key), self.position) != NIL,
                first => waiters.next_in_line(first) != NIL,
            };
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
    pub(super) fn is_held(&self, key: u32) -> bool {
        let held = self.held(key);
        held.holds_for_task(self.wait.owner.as_ref(), None, self.now)
    }

    /// The other keys where the task waits.
    pub(super) fn waits_elsewhere(&self) -> impl Iterator<Item = u32> {
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

    pub(super) fn writer_ahead_of(&self, key: u32, position: Position) -> Option<Position> {
        let waiters = &self.queues.waiters;
        let queued = waiters.last_flagged_before(self.line(key), position, EXCLUSIVE);
        let queued = (queued != NIL).then(|| waiters.position(queued));
        let is_own =
            self.wait.terms.mode() == Mode::Write && self.position < position && key == self.key;
        queued.max(is_own.then_some(self.position))
    }

    /// Up to which place a request for `mode` at `position` of `key` waits for all requests ahead: it, or a request that it waits for, also
    /// waits for all holders there. `None` if it stands behind no writer, so that it is compatible with all who wait ahead.
    pub(super) fn waits_up_to(&self, key: u32, mode: Mode, position: Position) -> Option<Position> {
        if !compatible(mode, Mode::Read) {
            return Some(position);
        }
        self.writer_ahead_of(key, position).map(Position::behind)
    }

    /// A reader at `position` of `key`, which stands behind no writer, waits for its limit, or stands behind one that does: so
    /// it waits for the only owner that reads, if there is only one. `own` is what it asks for where it does not stand there yet.
    pub(super) fn waits_for_only_reader(
        &self,
        key: u32,
        position: Position,
        own: Option<&Terms>,
        budget: &mut Budget,
    ) -> bool {
        let waiters = &self.queues.waiters;
        let own = own.filter(|terms| terms.sharing.limit().is_some());
        let mut at = waiters.first_flagged(self.line(key), LIMITED);
        if at == NIL && own.is_none() {
            return false;
        }
        let Some((reader, reads)) = self.held(key).only_reader(self.now) else {
            return false;
        };
        let waits = |terms: &Terms| admission::waits_for_limit(terms, u64::from(reads));
        if own.is_some_and(waits) {
            return true;
        }
        while at != NIL && waiters.position(at) <= position && !budget.is_spent() {
            budget.step(1);
            let waiter = &waiters.node(at).waiter;
            // The reader itself waits only for the end of a grace.
            if waits(&waiter.terms) && waiter.owner != reader {
                return true;
            }
            at = waiters.next_flagged(at, LIMITED);
        }
        false
    }
}
