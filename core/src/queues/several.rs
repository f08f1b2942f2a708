//! Requests for several keys at once (`LOCK.MACQUIRE`).
//!
//! ```text
//!   queue of a:  u ──► M ──► v          M asks for a and b. It stands in both queues and holds neither.
//!   queue of b:  M ──► w                w waits behind M, though b is free: nobody overtakes M.
//! ```
//!
//! Such a request stands in the queue of each of its keys, at the same position. So two of them stand
//! in the same order in all queues, and neither waits for the other behind it.
//!
//! A settle that comes to such a request at the head of a queue does not grant it. If it stands at the head of all its queues, and nobody
//! holds the locks as far as the queues know, it is due. The caller then opens its keys one after the other, checks each
//! ([`Queues::is_grantable`]), and grants them all or none ([`Queues::grant_last_key`]).

use std::rc::Rc;

use super::Queues;
use super::keys::KeyNo;
use super::position::{Position, WaiterId};
use super::waiter::QueuedAt;
use crate::key::{KeyList, KeyRef};
use crate::live::Live;
use crate::request::{AcquireError, Busy};
use crate::stake::Stake;
use crate::types::{Instant, Token};

impl Queues {
    /// The keys of the request `id`, if it asks for several at once.
    pub fn keys_of(&self, id: WaiterId) -> Option<KeyList> {
        let QueuedAt::Several(several) = &self.waiters.get(id)?.queued_at else {
            return None;
        };
        Some(KeyList::Several(Rc::clone(&several.list)))
    }

    /// A request for several keys that is due. Each is returned once, until one of its keys is settled again.
    pub fn next_due(&mut self) -> Option<WaiterId> {
        self.waiters.due.pop_first()
    }

    /// The request was tried and not granted: it is due again once one of its keys is settled. (The attempt has settled them, too.)
    pub fn set_tried(&mut self, id: WaiterId) {
        self.waiters.due.remove(&id);
    }

    /// A request for several keys waits.
    pub fn any_several(&self) -> bool {
        self.waiters.any_several()
    }

    /// A request for several keys is due.
    pub fn any_due(&self) -> bool {
        !self.waiters.due.is_empty()
    }

    /// The request for several keys at the head of the queue is due if it can have them all, as far as is known.
    pub(super) fn check_due(&mut self, key: KeyNo, now: Instant) {
        let is_free = |key: &KeyNo| self.keys.held(*key).mode(now).is_none();
        if let Some(head) = self.waiters.first_from(key, Position::FIRST)
            && head.is_for_several()
            && head.keys().iter().all(is_free)
            && self.is_first_everywhere(head.waiter.id)
        {
            self.waiters.due.insert(head.waiter.id);
        }
    }

    /// Whether the request `id`, which asks for several keys, is the first in the queue of this one and `live` admits it.
    pub fn is_grantable(&self, key: KeyRef<'_>, id: WaiterId, live: &Live<'_>) -> bool {
        let key = self.keys.find(key);
        let first = key.and_then(|key| self.waiters.first_from(key, Position::FIRST));
        let own = first.filter(|first| first.waiter.id == id);
        own.is_some_and(|own| live.admits(&own.waiter.request()))
    }

    pub(super) fn first_at(&self, key: KeyNo) -> Option<WaiterId> {
        let first = self.waiters.first_from(key, Position::FIRST)?;
        Some(first.waiter.id)
    }

    /// Grants the request `id` the last of the keys that it still waits at, with `token`, and takes it out of that queue. The
    /// caller goes through the keys from the last one to the first.
    ///
    /// # Errors
    /// It is not the first there, or `live` does not admit it. Nothing has changed.
    pub fn grant_last_key(
        &mut self,
        key: KeyRef<'_>,
        id: WaiterId,
        live: &mut Live<'_>,
        token: Token,
    ) -> Result<Stake, AcquireError> {
        let last = self.waiters.get(id).and_then(|waiting| {
            let last = *waiting.keys().last()?;
            let is_it = self.keys.find(key) == Some(last) && self.first_at(last) == Some(id);
            is_it.then_some((last, &waiting.waiter))
        });
        let (key, waiter) = last.ok_or(AcquireError::Busy(Busy::Held))?;
        let stake = live.take(&waiter.request(), token)?;
        self.waiters.leave_last_key(id);
        self.keys.get_mut(key).len -= 1;
        self.keys.observe(key, live.lock().observe());
        self.keys.set_deadline(key, live.next_deadline());
        self.drop_if_empty(key);
        Ok(stake)
    }
}
