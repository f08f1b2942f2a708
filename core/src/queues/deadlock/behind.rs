//! Places behind a request for several keys.
//!
//! Such a request holds nothing while it waits. Whoever stands behind it may wait at a free lock, only because it waits for
//! another one. So a cycle through such a place is no deadlock: the request in that place moves to the head of its queue, or of
//! all its queues, and the search starts again.

use std::collections::BTreeSet;

use super::super::waiters::{EXCLUSIVE, MEMBER, Position, Rank, WRITES};
use super::super::{Queues, WaiterId};
use super::asking::{Asking, Wait};
use super::budget::Budget;
use super::search::{START, Step};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::tree::NIL;
use crate::types::{Instant, Mode};

/// After so many moves the search gives up, as it does after a thousand tasks.
const MOST_MOVES: usize = 64;
/// So many owners of one task are asked where they stand.
const MOST_OWNERS: usize = 1_000;

/// The wait that a step of a cycle follows.
struct Place {
    key: u32,
    position: Position,
    writes: bool,
}

impl Asking<'_> {
    /// The request that `step` begins with waits for the task at `to` only because it stands behind a request for several keys.
    pub(super) fn is_behind_several(&self, step: Step, to: u32) -> bool {
        let waiters = &self.queues.waiters;
        let (position, writes) = match step.slot {
            NIL => (self.position, self.wait.terms.mode() == Mode::Write),
            slot => (waiters.position(slot), waiters.has(slot, EXCLUSIVE)),
        };
        let place = Place {
            key: step.key,
            position,
            writes,
        };
        let line = self.line(place.key);
        waiters.last_flagged_before(line, position, MEMBER) != NIL
            && !self.waits_for_holder(&place, step, to)
            && !self.waits_for_queued(&place, to)
    }

    /// It would wait for `to` as a holder if no request for several keys were there.
    fn waits_for_holder(&self, place: &Place, step: Step, to: u32) -> bool {
        let waiters = &self.queues.waiters;
        let owner_in = |slot: u32| match slot {
            NIL => self.wait.owner.as_ref(),
            slot => waiters.node(slot).waiter.owner.as_ref(),
        };
        let held = self.held(place.key);
        if !held.holds_for_task(owner_in(to), Some(owner_in(step.slot)), self.now) {
            return false;
        }
        let own = (step.slot == NIL).then_some(&self.wait.terms);
        place.writes
            || held.mode(self.now) == Some(Mode::Write)
            || self.has_writer_between(place, Position::FIRST)
            || self.waits_for_only_reader(place.key, place.position, own, &mut Budget::forward())
    }

    /// It would wait for a request of `to` ahead of it.
    fn waits_for_queued(&self, place: &Place, to: u32) -> bool {
        let waiters = &self.queues.waiters;
        let waits_for = |position: Position, writes: bool| {
            position < place.position
                && (place.writes || writes || self.has_writer_between(place, position))
        };
        let task = match to {
            START => self.task,
            task => task,
        };
        if to == START && place.key == self.key && self.wait.terms.sharing.keys().is_none() {
            let writes = self.wait.terms.mode() == Mode::Write;
            if waits_for(self.position, writes) {
                return true;
            }
        }
        let mut at = waiters.key_from(task, place.key);
        for _ in 0..MOST_OWNERS {
            if at == NIL || waiters.node(at).key != place.key {
                return false;
            }
            let is_member = waiters.has(at, MEMBER);
            if !is_member && waits_for(waiters.position(at), waiters.has(at, WRITES)) {
                return true;
            }
            at = waiters.next_standing(task, at);
        }
        false
    }

    /// A request for write, for this key alone, stands ahead of the place and behind `position`.
    fn has_writer_between(&self, place: &Place, position: Position) -> bool {
        let waiters = &self.queues.waiters;
        let last = waiters.last_flagged_before(self.line(place.key), place.position, WRITES);
        last != NIL && waiters.position(last) >= position
    }
}

impl Queues {
    /// Looks for a cycle that `wait` closes. Ends those that are no deadlock: moves whoever stands there behind a request for
    /// several keys to the head of its queues. `wait` itself gets another rank if it does not stand in its queue yet.
    ///
    /// Returns the keys where others were moved, which the caller settles.
    ///
    /// # Errors
    /// The keys of a cycle that is a deadlock, as [`Self::find_cycle`] returns them.
    pub fn end_cycles(
        &mut self,
        wait: &mut Wait,
        held: &Observed,
        now: Instant,
    ) -> Result<Vec<KeyId>, Vec<KeyId>> {
        let mut moved = Vec::new();
        let mut foremost = BTreeSet::new();
        for _ in 0..MOST_MOVES {
            let (found, _) = self.search(wait, held, now);
            let Some(found) = found else { break };
            let was_moved = match found.behind {
                None => false,
                Some(NIL) => wait.move_ahead(),
                Some(slot) => self.move_ahead(slot, &mut foremost, &mut moved),
            };
            if !was_moved {
                return Err(found.keys);
            }
        }
        Ok(moved)
    }

    /// The request in `slot` moves to the head of its queues; if it is there already, ahead of all that were moved there.
    /// False if that has been done before.
    fn move_ahead(
        &mut self,
        slot: u32,
        foremost: &mut BTreeSet<WaiterId>,
        moved: &mut Vec<KeyId>,
    ) -> bool {
        let id = self.waiters.node(slot).waiter.id;
        let rank = match self.waiters.position(slot) < Position::REGULAR {
            false => Rank::Head,
            true if foremost.insert(id) => Rank::Foremost,
            true => return false,
        };
        let slots = match self.waiters.node(slot).is_member() {
            true => self.bundles.members(id).to_vec(),
            false => vec![slot],
        };
        self.set_rank(id, &slots, rank);
        let keys = slots.iter().map(|slot| self.waiters.node(*slot).key);
        moved.extend(keys.map(|key| self.keys.node(key).id.clone()));
        true
    }
}

impl Wait {
    /// The same for one that does not stand in its queue yet.
    fn move_ahead(&mut self) -> bool {
        self.rank = match self.rank {
            Rank::Line => Rank::Head,
            Rank::Head => Rank::Foremost,
            Rank::Foremost | Rank::Upgrade => return false,
        };
        true
    }
}
