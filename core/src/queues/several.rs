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

use std::collections::BTreeSet;

use super::Queues;
use super::waiter::{Removed, Waiter, WaiterId};
use super::waiters::{Position, Rank};
use crate::key::{KeyList, KeyRef};
use crate::live::Live;
use crate::map::Map;
use crate::owner::OwnerRef;
use crate::request::{AcquireError, Busy, Terms};
use crate::stake::Stake;
use crate::tree::NIL;
use crate::types::{Instant, Token};

/// Every bundle that waits.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    by_id: Map<WaiterId, Bundle>,
    due: BTreeSet<WaiterId>,
    members: usize,
}

#[derive(Debug)]
struct Bundle {
    keys: KeyList,
    /// The slots of its waiters, in the order of the keys. While the bundle is granted, its last ones go first.
    members: Vec<u32>,
    /// By bits: the member is the first in its queue, and its lock admits it, as far as is known.
    ready: u16,
}

impl Bundle {
    fn is_ready(&self) -> bool {
        self.ready.count_ones() as usize == self.keys.as_slice().len()
    }
}

impl Bundles {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many waiters belong to a bundle without being its first.
    pub(super) fn surplus(&self) -> usize {
        self.members - self.by_id.len()
    }

    /// The slots of the waiters of `id`.
    pub(super) fn members(&self, id: WaiterId) -> &[u32] {
        let bundle = self.by_id.get(&id);
        bundle.map_or(&[], |bundle| &bundle.members)
    }

    fn insert(&mut self, id: WaiterId, bundle: Bundle) {
        self.members += bundle.members.len();
        if bundle.is_ready() {
            self.due.insert(id);
        }
        self.by_id.insert(id, bundle);
    }

    fn take(&mut self, id: WaiterId) -> Option<Bundle> {
        let bundle = self.by_id.remove(&id)?;
        self.members -= bundle.members.len();
        self.due.remove(&id);
        Some(bundle)
    }

    /// The last member of the bundle is one no more. A bundle without members is none.
    fn pop_member(&mut self, id: WaiterId) {
        let Some(bundle) = self.by_id.get_mut(&id) else {
            return;
        };
        bundle.members.pop();
        self.members -= 1;
        if bundle.members.is_empty() {
            self.take(id);
        }
    }

    pub(super) fn set_ready(&mut self, id: WaiterId, slot: u32, ready: bool) {
        let Some(bundle) = self.by_id.get_mut(&id) else {
            return;
        };
        let Some(member) = bundle.members.iter().position(|member| *member == slot) else {
            return;
        };
        let bit = 1 << member;
        bundle.ready = if ready {
            bundle.ready | bit
        } else {
            bundle.ready & !bit
        };
        if bundle.is_ready() {
            self.due.insert(id);
        } else {
            self.due.remove(&id);
        }
    }
}

/// A key of a bundle that begins to wait.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Which.
    pub key: KeyRef<'a>,
    /// Nobody waits there, and the lock admits it.
    pub ready: bool,
}

impl Queues {
    /// `waiter` begins to wait at all these keys. Its terms say how many they are.
    pub fn push_several(&mut self, members: &[Member<'_>], waiter: &Waiter) {
        self.begin_wait(waiter.owner.as_ref());
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
                0 => (self.waiters).insert(&mut node.line, key, waiter, Rank::Line),
                _ => (self.waiters).insert_member(&mut node.line, key, waiter),
            };
            bundle.members.push(slot);
            bundle.ready |= u16::from(member.ready) << nth;
        }
        self.bundles.insert(waiter.id, bundle);
    }

    /// All members of a bundle leave their queues. The keys that nobody waits at any more go, except the one in slot `but`,
    /// which a settle still needs.
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
        self.end_wait(waiter.owner.as_ref());
        Some(Removed {
            key: bundle.keys.as_slice().first()?.clone(),
            waiter,
            keys: Some(bundle.keys),
        })
    }

    /// The keys of the request `id`, if it asks for several at once.
    pub fn keys_of(&self, id: WaiterId) -> Option<KeyList> {
        let bundle = self.bundles.by_id.get(&id)?;
        Some(bundle.keys.clone())
    }

    /// The request of `owner` that waits at the key and takes several keys at once.
    pub fn several_of(&self, key: KeyRef<'_>, owner: OwnerRef<'_>) -> Option<WaiterId> {
        if self.bundles.is_empty() {
            return None;
        }
        // Its owner has no other request there.
        let id = self.requests_of(key, owner).first().copied()?;
        (self.bundles.by_id.get(&id)).map(|_| id)
    }

    /// The bundle is repeated: see [`Queues::take_over`].
    pub(super) fn take_over_several(&mut self, id: WaiterId, terms: Terms, until: Instant) {
        for slot in self.bundles.members(id).to_vec() {
            self.waiters.take_over(slot, terms, until);
        }
    }

    /// A bundle all of whose members are ready. Each is returned once, until one of its keys is settled again.
    pub fn next_due(&mut self) -> Option<WaiterId> {
        self.bundles.due.pop_first()
    }

    /// A bundle is due.
    pub fn any_due(&self) -> bool {
        !self.bundles.due.is_empty()
    }

    /// Whether the member of `id` at the key is the first in its queue and `live` admits it.
    pub fn recheck_member(&mut self, key: KeyRef<'_>, id: WaiterId, live: &Live<'_>) -> bool {
        let Some(slot) = self.first_at(key) else {
            return false;
        };
        let waiter = &self.waiters.node(slot).waiter;
        let is_first = waiter.id == id;
        let ready = is_first && live.admits(&waiter.request());
        if is_first {
            self.bundles.set_ready(id, slot, ready);
        } else if let Some(slot) = self.member_at(key, id) {
            self.bundles.set_ready(id, slot, false);
        }
        ready
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
        if let Some(waiter) = self.unlink(key, slot) {
            self.end_wait(waiter.owner.as_ref());
        }
        self.observe_at(key, live.observe());
        self.keys.set_deadline(key, live.next_deadline());
        self.drop_if_empty(key);
        Ok(stake)
    }
}
