//! Lets a request wait, at one key or at several at once.

use super::position::{Position, WaiterId};
use super::waiter::{QueuedAt, Several, Waiter, Waiting};
use super::{Deadlock, Moves, Queues};
use crate::key::KeyId;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::request::{Busy, Terms};
use crate::types::Instant;

/// A request that cannot be granted at once.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// Its keys: one, or as many as its terms say.
    pub keys: Vec<PendingKey>,
    /// Whose.
    pub owner: Owner,
    /// For what.
    pub terms: Terms,
    /// Why it has to wait: an upgrade waits ahead of all others.
    pub busy: Busy,
    /// Since when it would wait.
    pub since: Instant,
    /// Until when; [`Instant::NEVER`] for no limit.
    pub until: Instant,
}

/// A key of a request that cannot be granted at once.
#[derive(Clone, Debug)]
pub struct PendingKey {
    /// Which.
    pub key: KeyId,
    /// Its lock, as [`Lock::observe`] shows it.
    pub held: Lock,
}

/// A request that has begun to wait.
#[derive(Debug)]
#[must_use = "the keys where requests have moved have to be settled"]
pub struct Enqueued {
    /// Which.
    pub id: WaiterId,
    /// It was moved to the head, and is now the first in all its queues.
    pub is_first: bool,
    /// The keys where requests have moved: the caller settles these.
    pub moved: Vec<KeyId>,
    moves: Moves,
}

impl Enqueued {
    /// How many steps the search for deadlocks has taken.
    pub fn steps(&self) -> usize {
        self.moves.steps
    }
}

impl Queues {
    /// Puts the request into its queues, unless its wait would close a cycle. Requests that stand behind one for several keys may move.
    ///
    /// # Errors
    /// The cycle. Nothing has changed.
    pub fn enqueue(&mut self, request: &PendingRequest) -> Result<Enqueued, Deadlock> {
        let id = self.push(request);
        match self.end_cycles_of_new(id, request.since) {
            Ok(moves) => Ok(Enqueued {
                id,
                is_first: moves.has_moved(id) && self.is_first_everywhere(id),
                moved: self.keys_of_moves(&moves),
                moves,
            }),
            Err(deadlock) => {
                self.remove(id);
                Err(deadlock)
            }
        }
    }

    /// Takes the request out of its queues, and puts all that have moved back: as if it had never waited.
    pub fn withdraw(&mut self, enqueued: Enqueued) {
        self.undo_moves(&enqueued.moves);
        self.remove(enqueued.id);
    }

    pub(super) fn is_first_everywhere(&self, id: WaiterId) -> bool {
        let keys = self.waiters.get(id).map_or(&[][..], |its| its.keys());
        keys.iter().all(|key| self.first_at(*key) == Some(id))
    }

    /// Puts the request into its queues without a search for a cycle. Returns its id.
    pub fn push(&mut self, request: &PendingRequest) -> WaiterId {
        self.last_id += 1;
        let id = WaiterId(self.last_id);
        let keys: Vec<_> = (request.keys.iter())
            .map(|key| self.keys.find_or_insert(key.key.as_ref()))
            .collect();
        for (no, key) in keys.iter().zip(&request.keys) {
            self.keys.get_mut(*no).len += 1;
            self.observe_at(*no, key.held.clone());
        }
        let queued_at = match (keys.as_slice(), request.terms.sharing.keys()) {
            (&[key], None) => QueuedAt::One(key),
            _ => QueuedAt::Several(Box::new(Several {
                list: request.keys.iter().map(|key| key.key.clone()).collect(),
                keys,
            })),
        };
        self.waiters.insert(Waiting {
            waiter: Waiter {
                id,
                owner: request.owner.clone(),
                terms: request.terms,
                since: request.since,
                until: request.until,
            },
            position: Position::of(request.busy, id),
            queued_at,
        });
        id
    }
}
