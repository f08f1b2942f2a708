//! Grants of the queue whose owner may not know of them yet: the reply has not been written, or the letter not been sent.
//!
//! If the answer can no longer be delivered, the grant is undone, unless its hold has been touched since ([`Live::undo`]).
//!
//! [`Live::undo`]: crate::Live::undo

use std::collections::{BTreeMap, BTreeSet};

use crate::homes::HomeKey;
use crate::owner::{Owner, OwnerRef};
use crate::queues::{Decided, Verdict, WaiterId};
use crate::stake::{Stake, Touched};
use crate::types::Token;

/// What undoes a grant at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Who was granted.
    pub owner: Owner,
    /// The hold as the grant left it.
    pub granted: Touched,
    /// Its token then. A hold that is made anew has another.
    pub token: Token,
    /// The hold as it was before.
    pub before: Option<Box<Stake>>,
}

impl Undo {
    /// What undoes the grant of a waiter that was decided; `None` if it was not granted.
    pub fn of(decided: &Decided) -> Option<Self> {
        let Verdict::Granted { grant, before, .. } = decided.verdict else {
            return None;
        };
        Some(Self {
            owner: decided.waiter.owner.clone(),
            granted: grant.stake().touched,
            token: grant.token(),
            before: before.map(Box::new),
        })
    }
}

/// A grant, and the keys at which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndeliveredGrant {
    /// One, or several that were granted together.
    pub keys: Vec<HomeKey>,
    /// What undoes it at each of them.
    pub undo: Undo,
}

/// Every grant that has not been delivered.
#[derive(Debug, Default)]
pub struct Undelivered {
    by_request: BTreeMap<WaiterId, UndeliveredGrant>,
    by_hold: BTreeSet<(HomeKey, Owner, WaiterId)>,
}

impl Undelivered {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// The request `id` was granted.
    pub fn insert(&mut self, id: WaiterId, grant: UndeliveredGrant) {
        for key in &grant.keys {
            let owner = grant.undo.owner.clone();
            self.by_hold.insert((key.clone(), owner, id));
        }
        self.by_request.insert(id, grant);
    }

    /// The grant of the request `id` has been delivered, or never will be. `None` if it was taken already.
    pub fn take(&mut self, id: WaiterId) -> Option<UndeliveredGrant> {
        let grant = self.by_request.remove(&id)?;
        for key in &grant.keys {
            let owner = grant.undo.owner.clone();
            self.by_hold.remove(&(key.clone(), owner, id));
        }
        Some(grant)
    }

    /// Takes the grants of `owner` at the key.
    pub fn take_all_of(&mut self, key: &HomeKey, owner: OwnerRef<'_>) -> Vec<UndeliveredGrant> {
        let requests = self.requests(key, &owner.to_owner());
        requests
            .into_iter()
            .filter_map(|id| self.take(id))
            .collect()
    }

    /// A grant at the key cannot be undone because another one has changed its hold. If that is undelivered, too, it undoes both from now on.
    pub fn merge(&mut self, key: &HomeKey, undo: &Undo) {
        for id in self.requests(key, &undo.owner) {
            if let Some(later) = self.by_request.get_mut(&id)
                && let Some(before) = &later.undo.before
                && before.touched == undo.granted
            {
                later.undo.before.clone_from(&undo.before);
                return;
            }
        }
    }

    fn requests(&self, key: &HomeKey, owner: &Owner) -> Vec<WaiterId> {
        if self.by_hold.is_empty() {
            return Vec::new();
        }
        let bound = |id| (key.clone(), owner.clone(), WaiterId(id));
        let found = self.by_hold.range(bound(0)..=bound(u64::MAX));
        found.map(|(_, _, id)| *id).collect()
    }
}
