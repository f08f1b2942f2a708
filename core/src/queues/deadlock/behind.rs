//! Places behind a request for several keys.
//!
//! Such a request holds nothing while it waits. A request behind it may wait at a free lock, only because the one ahead also waits for
//! another lock. So a cycle through such a place is no deadlock: the request in that place moves to the head of its queue, or of all its
//! queues, and the search starts again.
//!
//! Others then wait for the request that moved, so the search starts from it, too. There is always an order of the queues without a cycle,
//! if there is no deadlock: whichever tasks wait for others in fact stand behind these. So a request must not overtake one for whose task
//! its own task waits elsewhere. If it has, the overtaken one moves ahead again.

use super::super::waiters::{EXCLUSIVE, Head, MEMBER, Position, Rank, WRITES};
use super::super::{Queues, WaiterId};
use super::Cycle;
use super::asking::{Asking, Wait};
use super::budget::{Budget, FIND_PLACE};
use super::search::{START, Step};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::owner::Owner;
use crate::request::Terms;
use crate::tree::NIL;
use crate::types::{Instant, Lease, Mode};

/// After so many moves the search gives up, as it does after a thousand tasks,
const MOST_MOVES: usize = 64;
/// or after so many steps of all searches between them: a few milliseconds.
const MOST_STEPS: usize = 12_000;
/// For at most this many owners of one task the search checks where they stand.
const MOST_OWNERS: usize = 1_000;

/// The wait that a step of a cycle follows.
struct Place {
    key: u32,
    position: Position,
    writes: bool,
}

impl Asking<'_> {
    /// The request that `step` begins with waits for the task at `to` only because it stands behind a request for several keys, or the
    /// budget is spent.
    pub(super) fn is_behind_several(&self, step: Step, to: u32, budget: &mut Budget) -> bool {
        budget.step(FIND_PLACE);
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
            && !self.waits_for_holder(&place, step, to, budget)
            && !self.waits_for_queued(&place, to, budget)
            || budget.is_spent()
    }

    /// It would wait for `to` as a holder if no request for several keys were there.
    fn waits_for_holder(&self, place: &Place, step: Step, to: u32, budget: &mut Budget) -> bool {
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
            || self.waits_for_only_reader(place.key, place.position, own, budget)
    }

    /// It would wait for a request of `to` ahead of it.
    fn waits_for_queued(&self, place: &Place, to: u32, budget: &mut Budget) -> bool {
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
            if at == NIL || waiters.node(at).key != place.key || budget.is_spent() {
                return false;
            }
            budget.step(1);
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

/// How a wait may begin, or why not. The search that made the plan has changed nothing: [`Queues::make_moves`] does.
#[derive(Debug)]
#[must_use = "if the wait begins, requests have to move"]
pub struct WaitPlan {
    /// The keys of a cycle that is a deadlock, as [`Queues::find_cycle`] returns them: the wait may not begin.
    pub deadlock: Option<Vec<KeyId>>,
    /// With which rank the request joins its queue, once the moves are made. (One that stands there already keeps its place.)
    pub rank: Rank,
    /// Whether the request is the first in its queue, or in all its queues, once the moves are made: only if it moved to the head.
    pub is_first: bool,
    /// How many steps the searches have taken.
    pub steps: usize,
    moves: Vec<(WaiterId, Position)>,
    head: Head,
}

/// The requests that were moved to end the cycles of one wait.
#[derive(Default)]
struct Moves {
    /// Requests that were moved, and from which the search has not started again: the ones that they overtook now wait for them.
    pending: Vec<WaiterId>,
    /// All that were moved, each as often as that.
    moved: Vec<Moved>,
    /// How often the wait itself has moved, which does not stand in its queue yet.
    of_wait: usize,
    /// How many steps the searches have taken.
    steps: usize,
    /// The wait does not stand in its queue yet.
    is_new_wait: bool,
}

/// A request that was moved ahead.
struct Moved {
    id: WaiterId,
    /// Where it stood before.
    from: Position,
}

impl Moves {
    /// Whether a limit is reached: the server searches no further, and moves no more requests.
    fn are_over(&self) -> bool {
        self.moved.len() + self.of_wait >= MOST_MOVES || self.steps >= MOST_STEPS
    }

    fn times(&self, id: WaiterId) -> usize {
        self.moved.iter().filter(|moved| moved.id == id).count()
    }
}

impl Queues {
    /// Searches for cycles that `wait` closes, and plans how to end those that are no deadlock: the request that stands there behind a request
    /// for several keys moves to the head of its queues. Changes nothing.
    pub fn plan_wait(&mut self, mut wait: Wait, held: &Observed, now: Instant) -> WaitPlan {
        let head = self.waiters.nodes.head();
        let mut moves = Moves {
            is_new_wait: wait.rank == Rank::Line,
            ..Moves::default()
        };
        let mut ended = self.end_cycles_of_wait(&mut wait, held, now, &mut moves);
        while ended.is_ok()
            && let Some(id) = moves.pending.pop()
        {
            // Only the wait can be refused.
            let _ = self.end_cycles_of_request(id, now, &mut moves);
            // The search of a moved request does not know of this wait.
            ended = self.end_cycles_of_wait(&mut wait, held, now, &mut moves);
        }
        let is_first = wait.rank.is_moved()
            && self
                .get(wait.key.as_ref())
                .is_none_or(|queue| !queue.is_any_ahead_of(wait.rank));
        let plan = self.take_back(moves, head, ended.err());
        WaitPlan {
            rank: wait.rank,
            is_first,
            ..plan
        }
    }

    /// The same for the request `id`, which waits for several keys and stands in all of its queues.
    pub fn plan_several(&mut self, id: WaiterId, now: Instant) -> WaitPlan {
        let head = self.waiters.nodes.head();
        let (mut moves, mut deadlock) = (Moves::default(), None);
        moves.pending.push(id);
        while deadlock.is_none()
            && let Some(moved) = moves.pending.pop()
        {
            let ended = self.end_cycles_of_request(moved, now, &mut moves);
            if moved == id {
                deadlock = ended.err();
            }
        }
        let slots = self.slots_of(id);
        let is_first = |slot: &u32| {
            let key = self.waiters.node(*slot).key;
            self.waiters
                .line_from(self.keys.node(key).line, Position::FIRST)
                == *slot
        };
        let is_first = slots.iter().all(is_first);
        let plan = self.take_back(moves, head, deadlock);
        WaitPlan { is_first, ..plan }
    }

    /// Takes all moves back, so that the search has changed nothing, and returns them as a plan.
    fn take_back(&mut self, moves: Moves, head: Head, deadlock: Option<Vec<KeyId>>) -> WaitPlan {
        let planned = self.waiters.nodes.head();
        let mut to = Vec::new();
        for moved in moves.moved.iter().rev() {
            let slots = self.slots_of(moved.id);
            let Some(first) = slots.first() else { continue };
            if !to.iter().any(|(id, _)| *id == moved.id) {
                to.push((moved.id, self.waiters.position(*first)));
            }
            self.set_position(moved.id, &slots, moved.from);
        }
        self.waiters.nodes.set_head(head);
        if deadlock.is_some() {
            to.clear();
        }
        WaitPlan {
            deadlock,
            rank: Rank::Line,
            is_first: false,
            steps: moves.steps,
            moves: to,
            head: planned,
        }
    }

    /// Moves requests as planned. Returns the keys where they wait: the caller settles these. Nothing may have changed since the plan was made.
    pub fn make_moves(&mut self, plan: &WaitPlan) -> Vec<KeyId> {
        let mut keys = Vec::new();
        self.waiters.nodes.set_head(plan.head);
        for (id, position) in &plan.moves {
            let slots = self.slots_of(*id);
            self.set_position(*id, &slots, *position);
            let at = slots.iter().map(|slot| self.waiters.node(*slot).key);
            keys.extend(at.map(|key| self.keys.node(key).id.clone()));
        }
        keys
    }

    /// The same once `owner` has come to hold the key in slot `key`, not by a grant: those that wait there wait for it now, and its task
    /// may wait for them elsewhere. No wait begins, so nobody is refused for a deadlock. Returns where requests were moved.
    pub(in super::super) fn end_cycles_of_holder(
        &mut self,
        key: u32,
        owner: Owner,
        now: Instant,
    ) -> Vec<KeyId> {
        if self.bundles.is_empty() {
            return Vec::new();
        }
        let wait = Wait {
            key: self.keys.node(key).id.clone(),
            owner,
            terms: Terms {
                sharing: Mode::Read.into(),
                lease: Lease::SHORTEST,
                holds: None,
                fence: None,
                token: None,
                client: 0,
            },
            // What it asked for it has: only the other waits of its task count.
            rank: Rank::Foremost,
        };
        let held = self.keys.held(key).clone();
        let plan = self.plan_wait(wait, &held, now);
        self.make_moves(&plan)
    }

    fn end_cycles_of_request(
        &mut self,
        id: WaiterId,
        now: Instant,
        moves: &mut Moves,
    ) -> Result<(), Vec<KeyId>> {
        let waits = self.waits_of(id);
        // No move ends a deadlock, so look for one first.
        if moves.times(id) == 0 {
            for (wait, held) in &waits {
                if let Some(deadlock) = self.find_deadlock_before(wait, held, now, moves) {
                    return Err(deadlock.keys);
                }
            }
        }
        for (mut wait, held) in waits {
            self.end_cycles_of_wait(&mut wait, &held, now, moves)?;
        }
        Ok(())
    }

    /// The waits of a request that stands in its queues, and who holds there.
    fn waits_of(&self, id: WaiterId) -> Vec<(Wait, Observed)> {
        let wait_in = |slot: u32| {
            let node = self.waiters.node(slot);
            let wait = Wait {
                key: self.keys.node(node.key).id.clone(),
                owner: node.waiter.owner.clone(),
                terms: node.waiter.terms,
                // It is in the queue already, so its rank is not used.
                rank: Rank::Line,
            };
            (wait, self.keys.held(node.key).clone())
        };
        self.slots_of(id).into_iter().map(wait_in).collect()
    }

    fn end_cycles_of_wait(
        &mut self,
        wait: &mut Wait,
        held: &Observed,
        now: Instant,
        moves: &mut Moves,
    ) -> Result<(), Vec<KeyId>> {
        while !moves.are_over() {
            let (found, steps) = self.search(wait, held, now);
            moves.steps += steps;
            let Some(found) = found else { break };
            // Otherwise two requests might overtake each other in turns.
            let behind = found.behind.iter();
            let least = behind.min_by_key(|slot| self.times_moved(**slot, moves));
            match least.copied() {
                None => match self.overtaken_in(&found, wait, moves) {
                    None => return Err(found.keys),
                    Some(slot) => self.move_ahead(slot, Rank::Foremost, now, moves),
                },
                Some(NIL) if !wait.move_ahead(&mut self.waiters) => {
                    return Err(found.keys);
                }
                Some(NIL) => moves.of_wait += 1,
                Some(slot) => self.move_to_head(slot, now, moves),
            }
        }
        Ok(())
    }

    /// A deadlock that the wait closes, unless the moves are over.
    fn find_deadlock_before(
        &self,
        wait: &Wait,
        held: &Observed,
        now: Instant,
        moves: &mut Moves,
    ) -> Option<Cycle> {
        if moves.are_over() {
            return None;
        }
        let (found, steps) = self.find_deadlock(wait, held, now);
        moves.steps += steps;
        found
    }

    /// How often the request in `slot` was moved.
    fn times_moved(&self, slot: u32, moves: &Moves) -> usize {
        match slot {
            NIL => moves.of_wait,
            slot => moves.times(self.waiters.node(slot).waiter.id),
        }
    }

    /// A move has closed the deadlock `found`: a request in it was overtaken by another one, whose task waits for the first one's task
    /// elsewhere. Returns the slot of the first one, which has to stand ahead again.
    fn overtaken_in(&self, found: &Cycle, wait: &Wait, moves: &mut Moves) -> Option<u32> {
        moves.steps += found.steps.len() * moves.moved.len();
        let key = self.keys.find(wait.key.as_ref());
        let task = self.waiters.task_of(wait.owner.as_ref());
        let is_overtaken = |step: &Step, to: u32| {
            let position = self.waiters.position(step.slot);
            let by_wait = to == START
                && key == Some(step.key)
                && moves.is_new_wait
                && self.waiters.nodes.end(wait.rank) <= position;
            let to = if to == START { task } else { to };
            let is_ahead = |other: u32| {
                self.waiters.node(other).key == step.key
                    && self.waiters.position(other) < position
                    && self.waiters.task_at(other) == to
            };
            let mut moved = moves.moved.iter().filter(|moved| moved.from > position);
            by_wait || moved.any(|moved| self.slots_of(moved.id).into_iter().any(is_ahead))
        };
        let mut steps = found.steps.iter().filter(|(step, _)| step.slot != NIL);
        let found = steps.find(|(step, to)| is_overtaken(step, *to));
        found.map(|(step, _)| step.slot)
    }

    /// The request in `slot` moves to the head of its queues; if it is there already, ahead of all that were moved there.
    fn move_to_head(&mut self, slot: u32, now: Instant, moves: &mut Moves) {
        let rank = match self.waiters.position(slot) < Position::REGULAR {
            false => Rank::Head,
            true => Rank::Foremost,
        };
        self.move_ahead(slot, rank, now, moves);
    }

    fn move_ahead(&mut self, slot: u32, rank: Rank, now: Instant, moves: &mut Moves) {
        let (id, from) = (
            self.waiters.node(slot).waiter.id,
            self.waiters.position(slot),
        );
        let slots = self.slots_of(id);
        self.set_rank(id, &slots, rank);
        moves.pending.push(id);
        moves.moved.push(Moved { id, from });
        for (wait, held) in self.waits_of(id) {
            while let Some(deadlock) = self.find_deadlock_before(&wait, &held, now, moves)
                && let Some(overtaken) = self.overtaken_in(&deadlock, &wait, moves)
            {
                self.move_ahead(overtaken, Rank::Foremost, now, moves);
            }
        }
    }
}
