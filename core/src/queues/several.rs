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
//! A settle that comes to such a request at the head of a queue does not grant it. It notes whether the lock would admit it, and
//! stops. When all its locks would, the request is due. The caller then opens its keys one after the other, checks each once
//! more ([`Queues::recheck_key`]), and grants them all or none ([`Queues::grant_last_key`]).

use super::Queues;
use super::keys::KeyNo;
use super::position::{Position, WaiterId};
use crate::key::{KeyList, KeyRef};
use crate::live::Live;
use crate::request::{AcquireError, Busy};
use crate::stake::Stake;
use crate::types::Token;

impl Queues {
    /// The keys of the request `id`, if it asks for several at once.
    pub fn keys_of(&self, id: WaiterId) -> Option<KeyList> {
        self.waiters.get(id)?.key_list()
    }

    /// A request for several keys that is ready at all of them. Each is returned once, until one of its keys is settled again.
    pub fn next_due(&mut self) -> Option<WaiterId> {
        self.waiters.pop_due()
    }

    /// A request for several keys waits.
    pub fn any_several(&self) -> bool {
        self.waiters.any_several()
    }

    /// A request for several keys is due.
    pub fn any_due(&self) -> bool {
        self.waiters.any_due()
    }

    /// Whether the request `id`, which asks for several keys, is the first in the queue of this one and `live` admits it.
    pub fn recheck_key(&mut self, key: KeyRef<'_>, id: WaiterId, live: &Live<'_>) -> bool {
        let Some(key) = self.keys.find(key) else {
            return false;
        };
        let is_first = self.first_at(key) == Some(id);
        let ready = is_first && self.admits(id, live);
        self.waiters.set_ready(id, key, ready);
        ready
    }

    fn admits(&self, id: WaiterId, live: &Live<'_>) -> bool {
        let waiting = self.waiters.get(id);
        waiting.is_some_and(|waiting| live.admits(&waiting.waiter.request()))
    }

    /// The request `id` cannot be granted this key, so it is not due.
    pub fn set_not_ready(&mut self, key: KeyRef<'_>, id: WaiterId) {
        if let Some(key) = self.keys.find(key) {
            self.waiters.set_ready(id, key, false);
        }
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
