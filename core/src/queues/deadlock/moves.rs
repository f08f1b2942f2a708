//! Moves requests ahead of requests for several keys, to end cycles that are no deadlock.
//!
//! A request for several keys holds nothing while it waits. A request behind it may wait at a free lock, only because the one ahead also waits for
//! another lock. So a cycle through such a place is no deadlock: the request in that place moves to the head of its queue, or of all its
//! queues, and the search starts again.
//!
//! Others then wait for the request that moved, so the search starts from it, too. There is always an order of the queues without a cycle,
//! if there is no deadlock: whichever tasks wait for others in fact stand behind these. So a request must not overtake one for whose task
//! its own task waits elsewhere. If it has, the overtaken one moves ahead again.

use super::super::Queues;
use super::super::keys::KeyNo;
use super::super::position::{Position, WaiterId};
use super::search::Search;
use super::{Cycle, Follow, Link, MOST_STEPS, Start};
use crate::key::KeyId;
use crate::owner::Owner;
use crate::types::Instant;

/// After so many moves for one wait the search gives up.
const MOST_MOVES: usize = 64;

/// The requests that were moved to end the cycles of one wait.
#[derive(Debug, Default)]
pub struct Moves {
    /// Each time a request has moved, and where it stood before.
    moved: Vec<(WaiterId, Position)>,
    /// How many steps the searches have taken.
    pub steps: usize,
}

impl Moves {
    pub(in super::super) fn has_moved(&self, id: WaiterId) -> bool {
        self.moved.iter().any(|(moved, _)| *moved == id)
    }

    /// Whether a limit is reached: the server searches no further, and moves no more requests.
    fn are_over(&self) -> bool {
        self.moved.len() >= MOST_MOVES || self.steps >= MOST_STEPS
    }
}

/// A cycle that cannot be ended: the wait may not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The keys of the cycle, each once, from one of the request's own on.
    pub keys: Vec<KeyId>,
    /// How many steps the searches have taken.
    pub steps: usize,
}

/// Where the cycles of one wait may begin.
#[derive(Clone, Debug, PartialEq)]
enum Root {
    /// A request. If it is new, nobody waits for it yet.
    Request { id: WaiterId, is_new: bool },
    /// An owner that holds the key.
    Holder { key: KeyNo, owner: Owner },
}

impl Queues {
    /// Searches for cycles that the waiting request `id` closes, and ends those that are no deadlock: the request that stands there behind
    /// one for several keys moves to the head of its queues.
    ///
    /// # Errors
    /// A cycle that is a deadlock. Nobody has moved.
    pub fn end_cycles(&mut self, id: WaiterId, now: Instant) -> Result<Moves, Deadlock> {
        self.end_cycles_from(Root::Request { id, is_new: false }, now)
    }

    /// The same for a request that has entered its queues just now.
    pub(in super::super) fn end_cycles_of_new(
        &mut self,
        id: WaiterId,
        now: Instant,
    ) -> Result<Moves, Deadlock> {
        self.end_cycles_from(Root::Request { id, is_new: true }, now)
    }

    /// The same once `owner` has come to hold the key, not by a grant: those that wait there wait for it now, and its task
    /// may wait for them elsewhere. No wait begins, so nobody is refused for a deadlock.
    pub(in super::super) fn end_cycles_of_holder(
        &mut self,
        key: KeyNo,
        owner: &Owner,
        now: Instant,
    ) -> Moves {
        if !self.waiters.any_several() {
            return Moves::default();
        }
        let owner = owner.clone();
        let ended = self.end_cycles_from(Root::Holder { key, owner }, now);
        ended.unwrap_or_default()
    }

    /// The keys where requests have moved.
    pub fn keys_of_moves(&self, moves: &Moves) -> Vec<KeyId> {
        let moved = moves
            .moved
            .iter()
            .filter_map(|(id, _)| self.waiters.get(*id));
        let keys = moved.flat_map(|waiting| waiting.keys());
        keys.map(|key| self.keys.get(*key).id.clone()).collect()
    }

    /// Puts all requests that have moved back.
    pub(in super::super) fn undo_moves(&mut self, moves: &Moves) {
        for (id, position) in moves.moved.iter().rev() {
            self.waiters.set_position(*id, *position);
        }
    }

    fn end_cycles_from(&mut self, root: Root, now: Instant) -> Result<Moves, Deadlock> {
        let mut moves = Moves::default();
        let mut pending = vec![root.clone()];
        while !moves.are_over()
            && let Some(from) = pending.pop()
        {
            let Some(cycle) = self.cycle_from(&from, now, &mut moves) else {
                continue;
            };
            match self.move_to_end(&cycle, &moves) {
                Some((id, is_front)) => {
                    self.move_ahead(id, is_front, &mut moves);
                    pending.push(from);
                    let is_new = false;
                    pending.push(Root::Request { id, is_new });
                }
                // Only the wait can be refused.
                None if from == root => {
                    self.undo_moves(&moves);
                    let (keys, steps) = (cycle.keys, moves.steps);
                    return Err(Deadlock { keys, steps });
                }
                None => {}
            }
        }
        Ok(moves)
    }

    /// A deadlock, or else a cycle that is none.
    fn cycle_from(&self, root: &Root, now: Instant, moves: &mut Moves) -> Option<Cycle> {
        let starts = self.starts(root, moves);
        let mut search = |follow: Follow| {
            let mut starts = starts.iter();
            starts.find_map(|start| Search::run(self, start, follow, now, &mut moves.steps))
        };
        let mut found = search(Follow::Firm);
        if found.is_none() && self.waiters.any_several() {
            found = search(Follow::Every);
            // Once the steps are spent, the search cannot tell which waits of the cycle are firm.
            found = found.filter(|_| moves.steps < MOST_STEPS);
        }
        found
    }

    fn starts(&self, root: &Root, moves: &Moves) -> Vec<Start> {
        match root {
            Root::Holder { key, owner } => vec![Start {
                key: *key,
                owner: owner.clone(),
                name: self.waiters.name(owner.as_ref()),
                request: None,
                is_new: false,
            }],
            Root::Request { id, is_new } => {
                let Some(waiting) = self.waiters.get(*id) else {
                    return Vec::new();
                };
                let owner = &waiting.waiter.owner;
                let name = self.waiters.name(owner.as_ref());
                let starts = waiting.keys().iter().map(|key| Start {
                    key: *key,
                    owner: owner.clone(),
                    name,
                    request: Some(*id),
                    is_new: *is_new && !moves.has_moved(*id) && self.waiters.is_alone(*key, name),
                });
                starts.collect()
            }
        }
    }

    /// The request whose move ends the cycle, and whether it moves ahead of all that were moved before; `None` if the cycle is a deadlock.
    fn move_to_end(&self, cycle: &Cycle, moves: &Moves) -> Option<(WaiterId, bool)> {
        let mut yielding = cycle.links.iter().filter(|link| link.yields);
        if let Some(link) = yielding.next() {
            return Some((link.id, !link.position.is_regular()));
        }
        let mut links = cycle.links.iter();
        let overtaken = links.find(|link| self.is_overtaken(link, moves));
        overtaken.map(|link| (link.id, true))
    }

    /// A move has closed the cycle: the request was overtaken by one of the task that it waits for there.
    fn is_overtaken(&self, link: &Link, moves: &Moves) -> bool {
        let mut moved = moves.moved.iter();
        moved.any(|(id, from)| {
            let Some(other) = self.waiters.get(*id) else {
                return false;
            };
            let name = self.waiters.name(other.waiter.owner.as_ref());
            let has_passed = *from > link.position && other.position < link.position;
            has_passed && name.task == link.to && other.keys().contains(&link.key)
        })
    }

    fn move_ahead(&mut self, id: WaiterId, is_front: bool, moves: &mut Moves) {
        let Some(from) = self.waiters.get(id).map(|waiting| waiting.position) else {
            return;
        };
        let head = &mut self.waiters.head;
        let position = match is_front {
            true => head.first(),
            false => head.last(),
        };
        self.waiters.set_position(id, position);
        moves.moved.push((id, from));
    }
}
