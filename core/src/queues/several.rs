//! Requests for several keys at once (`LOCK.MACQUIRE`).
//!
//! ```text
//!   queue of a:  u ──► M ──► v          M asks for a and b. It stands in both queues and holds neither.
//!   queue of b:  M ──► w                w waits behind M, though b is free: nobody overtakes M.
//! ```
//!
//! Such a request is a *bundle* of ordinary waiters, one in the queue of each key, all with the same id. So two bundles stand
//! in the same order in all queues, and neither waits for the other behind it. Whatever ends one member ends all.
//!
//! A settle that comes to a member at the head of a queue does not grant it. It notes whether the lock would admit it, and
//! stops. When all members are ready, the bundle is due. The caller then opens its keys one after the other, checks each once
//! more ([`Queues::recheck_member`]), and grants them all or none ([`Queues::grant_last_member`]).

use super::Queues;
use super::bundles::Bundle;
use super::waiter::{Removed, Waiter, WaiterId};
use super::waiters::{Position, Rank};
use crate::key::{KeyList, KeyRef};
use crate::live::Live;
use crate::owner::OwnerRef;
use crate::request::{AcquireError, Busy};
use crate::stake::Stake;
use crate::tree::NIL;
use crate::types::Token;

/// A key of a bundle that begins to wait.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Which.
    pub key: KeyRef<'a>,
    /// Nobody waits there, and the lock admits the request.
    pub ready: bool,
}

impl Queues {
    /// Enqueues `waiter` at all these keys. Its terms say how many they are.
    pub fn push_several(&mut self, members: &[Member<'_>], waiter: &Waiter) {
        let mut bundle = Bundle {
            keys: KeyList::new(members.iter().map(|member| member.key.to_id()).collect()),
            members: Vec::with_capacity(members.len()),
            ready: 0,
        };
        for (nth, member) in members.iter().enumerate() {
            let key = self.keys.find_or_insert(member.key);
            let node = self.keys.node_mut(key);
            node.len += 1;
            let waiter = waiter.clone();
            let slot = match nth {
                0 => (self.waiters).insert(&mut node.line, key, waiter, Rank::Last),
                _ => (self.waiters).insert_member(&mut node.line, key, waiter),
            };
            bundle.members.push(slot);
            bundle.ready |= u16::from(member.ready) << nth;
        }
        self.bundles.insert(waiter.id, bundle);
    }

    /// Takes all members of a bundle out of their queues. Removes the keys without waiters, except the one in slot `but`, which a settle
    /// still needs.
    pub(super) fn remove_several(&mut self, id: WaiterId, but: u32) -> Option<Removed> {
        let bundle = self.bundles.take(id)?;
        let mut first = None;
        // The first one last: by it the request is found.
        for slot in bundle.members.into_iter().rev() {
            let key = self.waiters.node(slot).key;
            first = self.unlink(key, slot);
            if key != but {
                self.drop_if_empty(key);
            }
        }
        let waiter = Box::new(first?);
        Some(Removed {
            key: bundle.keys.as_slice().first()?.clone(),
            waiter,
            keys: Some(bundle.keys),
        })
    }

    /// The keys of the request `id`, if it asks for several at once.
    pub fn keys_of(&self, id: WaiterId) -> Option<KeyList> {
        self.bundles.keys(id).cloned()
    }

    /// The request of `owner` that waits at the key and takes several keys at once.
    pub fn several_of(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Option<WaiterId> {
        if self.bundles.is_empty() {
            return None;
        }
        // Its owner has no other request there.
        let id = self.requests_of(key, owner).first().copied()?;
        self.bundles.keys(id).map(|_| id)
    }

    /// Where the request `id` waits, whether for one key or for several.
    pub(super) fn slots_of(&self, id: WaiterId) -> Vec<u32> {
        match self.bundles.members(id) {
            [] => self.waiters.find(id).into_iter().collect(),
            members => members.to_vec(),
        }
    }

    /// A bundle all of whose members are ready. Each is returned once, until one of its keys is settled again.
    pub fn next_due(&mut self) -> Option<WaiterId> {
        self.bundles.pop_due()
    }

    /// A bundle waits.
    pub fn any_several(&self) -> bool {
        !self.bundles.is_empty()
    }

    /// A bundle is due.
    pub fn any_due(&self) -> bool {
        self.bundles.any_due()
    }

    /// Whether the member of `id` at the key is the first in its queue and `live` admits it.
    pub fn recheck_member(&mut self, key: KeyRef<'_>, id: WaiterId, live: &Live<'_>) -> bool {
        let Some(slot) = self.first_at(key) else {
            return false;
        };
        if self.waiters.node(slot).waiter.id == id {
            return self.check_first_member(slot, live);
        }
        self.set_not_ready(key, id);
        false
    }

    /// Whether `live` admits the member in `slot`, which is the first in its queue.
    pub(super) fn check_first_member(&mut self, slot: u32, live: &Live<'_>) -> bool {
        let waiter = &self.waiters.node(slot).waiter;
        let (id, ready) = (waiter.id, live.admits(&waiter.request()));
        self.bundles.set_ready(id, slot, ready);
        ready
    }

    /// The member of `id` at the key cannot be granted, so the bundle is not due.
    pub fn set_not_ready(&mut self, key: KeyRef<'_>, id: WaiterId) {
        if let Some(slot) = self.member_at(key, id) {
            self.bundles.set_ready(id, slot, false);
        }
    }

    fn first_at(&self, key: KeyRef<'_>) -> Option<u32> {
        let line = self.keys.node(self.keys.find(key)?).line;
        let first = self.waiters.line_from(line, Position::FIRST);
        (first != NIL).then_some(first)
    }

    fn member_at(&self, key: KeyRef<'_>, id: WaiterId) -> Option<u32> {
        let key = self.keys.find(key)?;
        let mut members = self.bundles.members(id).iter();
        members
            .find(|slot| self.waiters.node(**slot).key == key)
            .copied()
    }

    /// Grants the bundle `id` the last of the keys that it still waits at, with `token`, and takes it out of that queue. The
    /// caller goes through the keys from the last one to the first.
    ///
    /// # Errors
    /// It is not the first there, or `live` does not admit it. Nothing has changed.
    pub fn grant_last_member(
        &mut self,
        key: KeyRef<'_>,
        id: WaiterId,
        live: &mut Live<'_>,
        token: Token,
    ) -> Result<Stake, AcquireError> {
        let last = self.bundles.members(id).last().copied();
        let first = self.first_at(key).filter(|first| Some(*first) == last);
        let slot = first.ok_or(AcquireError::Busy(Busy::Held))?;
        let stake = live.take(&self.waiters.node(slot).waiter.request(), token)?;
        let key = self.waiters.node(slot).key;
        self.bundles.pop_member(id);
        self.unlink(key, slot);
        self.observe_at(key, live.observe());
        self.keys.set_deadline(key, live.next_deadline());
        self.drop_if_empty(key);
        Ok(stake)
    }
}
