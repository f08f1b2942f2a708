//! The requests for several keys: their waiters, and which of these are ready. No rules here.

use std::collections::BTreeSet;

use super::waiter::WaiterId;
use crate::key::KeyList;
use crate::map::Map;

/// Every bundle that waits.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    by_id: Map<WaiterId, Bundle>,
    due: BTreeSet<WaiterId>,
    members: usize,
}

/// A request for several keys.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) keys: KeyList,
    /// The slots of its waiters, in the order of the keys. While the bundle is granted, its last ones go first.
    pub(super) members: Vec<u32>,
    /// A bit for each member: it is the first in its queue, and its lock admits it, as far as is known.
    pub(super) ready: u16,
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

    pub(super) fn insert(&mut self, id: WaiterId, bundle: Bundle) {
        self.members += bundle.members.len();
        if bundle.is_ready() {
            self.due.insert(id);
        }
        self.by_id.insert(id, bundle);
    }

    pub(super) fn take(&mut self, id: WaiterId) -> Option<Bundle> {
        let bundle = self.by_id.remove(&id)?;
        self.members -= bundle.members.len();
        self.due.remove(&id);
        Some(bundle)
    }

    /// The last member has left the bundle, which ends with it.
    pub(super) fn pop_member(&mut self, id: WaiterId) {
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

    /// The keys of `id`; `None` if it is no bundle.
    pub(super) fn keys(&self, id: WaiterId) -> Option<&KeyList> {
        self.by_id.get(&id).map(|bundle| &bundle.keys)
    }

    /// A bundle that is due, each once.
    pub(super) fn pop_due(&mut self) -> Option<WaiterId> {
        self.due.pop_first()
    }

    /// One is due.
    pub(super) fn any_due(&self) -> bool {
        !self.due.is_empty()
    }
}
