//! Moves requests ahead of requests for several keys, to end cycles that are no deadlock.
//!
//! A request for several keys holds nothing while it waits. A request behind it may wait at a free lock, only because the one ahead also waits for
//! another lock. So a cycle through such a place is no deadlock: the request in that place moves to the head of its queue, or of all its
//! queues, and the search starts again.
//!
//! Others then wait for the request that moved, so the search starts from it, too. There is always an order of the queues without a cycle,
//! if there is no deadlock: whichever tasks wait for others in fact stand behind these. So a request must not overtake one for whose task
//! its own task waits elsewhere. If it has, the overtaken one moves ahead again.
//!
//! All this only makes a plan. The moves are tried on the queues themselves, and taken back before anybody else sees them.

use super::super::waiters::{Head, Position, Rank};
use super::super::{Queues, WaiterId};
use super::Cycle;
use super::budget::Budget;
use super::graph::{START, Start, Step};
use super::wait::{Follow, Wait};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::owner::Owner;
use crate::request::Terms;
use crate::tree::NIL;
use crate::types::{Instant, Lease, Mode};

/// After so many moves for one wait the search gives up.
const MOST_MOVES: usize = 64;

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
    /// The request for several keys, which stood in its queues meanwhile.
    id: Option<WaiterId>,
    moves: Vec<(WaiterId, Position)>,
    head: Head,
}

impl WaitPlan {
    /// The id that the request for several keys keeps.
    pub(in super::super) fn id(&self) -> Option<WaiterId> {
        self.id
    }
}

/// The moves that end the cycles of one wait.
struct Moves {
    /// Where the places at the heads of the queues ended before.
    head: Head,
    /// Requests that were moved, and from which the search has not started again: the ones that they overtook now wait for them.
    pending: Vec<WaiterId>,
    /// All that were moved, each as often as that.
    moved: Vec<Moved>,
    /// How often the wait itself has moved, which does not stand in its queue yet.
    of_wait: usize,
    /// The wait does not stand in its queue yet.
    is_new_wait: bool,
    /// For all searches.
    budget: Budget,
    now: Instant,
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
        self.moved.len() + self.of_wait >= MOST_MOVES || self.budget.is_spent()
    }

    fn times(&self, id: WaiterId) -> usize {
        self.moved.iter().filter(|moved| moved.id == id).count()
    }
}

impl Queues {
    /// Searches for cycles that `wait` closes, and plans how to end those that are no deadlock: the request that stands there behind a request
    /// for several keys moves to the head of its queues. Changes nothing.
    pub fn plan_wait(&mut self, mut wait: Wait, held: &Observed, now: Instant) -> WaitPlan {
        let mut moves = self.no_moves(now);
        moves.is_new_wait = wait.rank == Rank::Last;
        let mut ended = self.end_cycles(&mut wait, held, &mut moves);
        while ended.is_ok()
            && let Some(id) = moves.pending.pop()
        {
            // Only the wait can be refused.
            let _ = self.end_cycles_of_request(id, &mut moves);
            // The search of a moved request does not know of this wait.
            ended = self.end_cycles(&mut wait, held, &mut moves);
        }
        if wait.rank == Rank::Head {
            // So that nobody else gets its place.
            wait.rank = Rank::Reserved(self.waiters.nodes.reserve_last());
        }
        let queue = self.get(wait.key.as_ref());
        let is_first = !queue.is_some_and(|queue| queue.is_any_ahead_of(wait.rank));
        WaitPlan {
            rank: wait.rank,
            is_first: wait.rank.is_moved() && is_first,
            ..self.take_back(moves, ended.err())
        }
    }

    /// The same for the request `id`, which waits for several keys and stands in all of its queues.
    pub fn plan_several(&mut self, id: WaiterId, now: Instant) -> WaitPlan {
        let mut moves = self.no_moves(now);
        let mut deadlock = None;
        moves.pending.push(id);
        while deadlock.is_none()
            && let Some(moved) = moves.pending.pop()
        {
            let ended = self.end_cycles_of_request(moved, &mut moves);
            if moved == id {
                deadlock = ended.err();
            }
        }
        let is_first = |slot: &u32| {
            let line = self.keys.node(self.waiters.node(*slot).key).line;
            self.waiters.line_from(line, Position::FIRST) == *slot
        };
        WaitPlan {
            id: Some(id),
            is_first: self.slots_of(id).iter().all(is_first),
            ..self.take_back(moves, deadlock)
        }
    }

    /// The same once `owner` has come to hold the key in slot `key`, not by a grant: those that wait there wait for it now, and its task
    /// may wait for them elsewhere. No wait begins, so nobody is refused for a deadlock. Makes the moves, and returns the keys to be settled.
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
            rank: Rank::Front,
        };
        let held = self.keys.held(key).clone();
        let plan = self.plan_wait(wait, &held, now);
        self.make_moves(&plan)
    }

    /// Moves requests as planned. Returns the keys where they wait: the caller settles these. Nothing may have changed since the plan was made.
    pub fn make_moves(&mut self, plan: &WaitPlan) -> Vec<KeyId> {
        let mut keys = Vec::new();
        self.waiters.nodes.set_head(plan.head);
        for (id, position) in &plan.moves {
            let slots = self.slots_of(*id);
            if slots.is_empty() {
                // The request itself, which is granted instead of enqueued.
                continue;
            }
            self.set_position(*id, &slots, *position);
            let at = slots.iter().map(|slot| self.waiters.node(*slot).key);
            keys.extend(at.map(|key| self.keys.node(key).id.clone()));
        }
        keys
    }

    fn no_moves(&self, now: Instant) -> Moves {
        Moves {
            head: self.waiters.nodes.head(),
            pending: Vec::new(),
            moved: Vec::new(),
            of_wait: 0,
            is_new_wait: false,
            budget: Budget::new(),
            now,
        }
    }

    /// Takes all moves back, so that the search has changed nothing, and returns them as a plan.
    fn take_back(&mut self, moves: Moves, deadlock: Option<Vec<KeyId>>) -> WaitPlan {
        let head = self.waiters.nodes.head();
        let mut planned = Vec::new();
        for moved in moves.moved.iter().rev() {
            let slots = self.slots_of(moved.id);
            let Some(first) = slots.first() else { continue };
            if !planned.iter().any(|(id, _)| *id == moved.id) {
                planned.push((moved.id, self.waiters.position(*first)));
            }
            self.set_position(moved.id, &slots, moved.from);
        }
        self.waiters.nodes.set_head(moves.head);
        if deadlock.is_some() {
            planned.clear();
        }
        WaitPlan {
            deadlock,
            rank: Rank::Last,
            is_first: false,
            steps: moves.budget.steps(),
            id: None,
            moves: planned,
            head,
        }
    }

    fn end_cycles_of_request(&mut self, id: WaiterId, moves: &mut Moves) -> Result<(), Vec<KeyId>> {
        let waits = self.waits_of(id);
        // No move ends a deadlock, so look for one first.
        if moves.times(id) == 0 {
            for (wait, held) in &waits {
                if let Some(deadlock) = self.find_deadlock(wait, held, moves) {
                    return Err(deadlock.keys);
                }
            }
        }
        for (mut wait, held) in waits {
            self.end_cycles(&mut wait, &held, moves)?;
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
                // It keeps its place, which is not behind the last one.
                rank: Rank::Last,
            };
            (wait, self.keys.held(node.key).clone())
        };
        self.slots_of(id).into_iter().map(wait_in).collect()
    }

    fn end_cycles(
        &mut self,
        wait: &mut Wait,
        held: &Observed,
        moves: &mut Moves,
    ) -> Result<(), Vec<KeyId>> {
        while !moves.are_over() {
            let start = Start::new(self, wait, held, moves.now, &moves.budget);
            let Some(found) = self.search(&start) else {
                break;
            };
            if !found.yielding.is_empty() && moves.budget.is_spent() {
                break;
            }
            // Otherwise two requests might overtake each other in turns.
            let yielding = found.yielding.iter();
            let least = yielding.min_by_key(|slot| self.times_moved(**slot, moves));
            match least.copied() {
                None => match self.overtaken_in(&found, wait, moves) {
                    None => return Err(found.keys),
                    Some(slot) => self.move_ahead(slot, Rank::Front, moves),
                },
                Some(NIL) if !wait.move_ahead(&mut self.waiters) => return Err(found.keys),
                Some(NIL) => moves.of_wait += 1,
                Some(slot) => self.move_to_head(slot, moves),
            }
        }
        Ok(())
    }

    /// A deadlock that the wait closes, unless the moves are over.
    fn find_deadlock(&self, wait: &Wait, held: &Observed, moves: &Moves) -> Option<Cycle> {
        if moves.are_over() {
            return None;
        }
        let start = Start::new(self, wait, held, moves.now, &moves.budget);
        self.search_for(Follow::Firm, &start)
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
    fn overtaken_in(&self, found: &Cycle, wait: &Wait, moves: &Moves) -> Option<u32> {
        moves.budget.step(found.steps.len() * moves.moved.len());
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
    fn move_to_head(&mut self, slot: u32, moves: &mut Moves) {
        let rank = match self.waiters.position(slot) < Position::REGULAR {
            false => Rank::Head,
            true => Rank::Front,
        };
        self.move_ahead(slot, rank, moves);
    }

    fn move_ahead(&mut self, slot: u32, rank: Rank, moves: &mut Moves) {
        let (id, from) = (
            self.waiters.node(slot).waiter.id,
            self.waiters.position(slot),
        );
        let slots = self.slots_of(id);
        self.set_rank(id, &slots, rank);
        moves.pending.push(id);
        moves.moved.push(Moved { id, from });
        for (wait, held) in self.waits_of(id) {
            while let Some(deadlock) = self.find_deadlock(&wait, &held, moves)
                && let Some(overtaken) = self.overtaken_in(&deadlock, &wait, moves)
            {
                self.move_ahead(overtaken, Rank::Front, moves);
            }
        }
    }
}
