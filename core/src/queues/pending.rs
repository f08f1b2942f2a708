//! A request that is about to wait, at one key or at several at once: searched first, enqueued later.

use super::waiters::Rank;
use super::{Member, Queues, Wait, WaitPlan, Waiter, WaiterId};
use crate::key::KeyId;
use crate::observed::Observed;
use crate::owner::Owner;
use crate::request::Terms;
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
    /// Where it would join its queue.
    pub rank: Rank,
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
    /// Whether nobody waits there and the lock admits the request. Only of interest beside other keys.
    pub is_ready: bool,
    /// Who holds the lock.
    pub held: Observed,
}

impl PendingRequest {
    /// Its key, if it is for one.
    fn only_key(&self) -> Option<&PendingKey> {
        match self.terms.sharing.keys() {
            None => self.keys.first(),
            Some(_) => None,
        }
    }

    fn waiter(&self, id: WaiterId) -> Waiter {
        Waiter {
            id,
            owner: self.owner.clone(),
            terms: self.terms,
            since: self.since,
            until: self.until,
        }
    }
}

impl Queues {
    /// How the request may begin to wait. Changes nothing: nobody has moved, and the request stands in no queue.
    pub fn plan(&mut self, request: &PendingRequest) -> WaitPlan {
        let Some(only) = request.only_key() else {
            let id = self.next_id();
            self.add(request, id, request.rank);
            let plan = self.plan_several(id, request.since);
            self.remove(id);
            return plan;
        };
        let wait = Wait {
            key: only.key.clone(),
            owner: request.owner.clone(),
            terms: request.terms,
            rank: request.rank,
        };
        self.plan_wait(wait, &only.held, request.since)
    }

    /// Enqueues the request as planned. Returns its id, and the keys where others have moved: the caller settles these.
    pub fn enqueue(&mut self, request: &PendingRequest, plan: &WaitPlan) -> (WaiterId, Vec<KeyId>) {
        let id = plan.id().unwrap_or_else(|| self.next_id());
        self.add(request, id, plan.rank);
        (id, self.make_moves(plan))
    }

    fn add(&mut self, request: &PendingRequest, id: WaiterId, rank: Rank) {
        let waiter = request.waiter(id);
        if let Some(only) = request.only_key() {
            self.push(only.key.as_ref(), waiter, rank);
        } else {
            let members = request.keys.iter().map(|key| Member {
                key: key.key.as_ref(),
                ready: key.is_ready,
            });
            self.push_several(&members.collect::<Vec<_>>(), &waiter);
        }
        for key in &request.keys {
            self.observe(key.key.as_ref(), key.held.clone());
        }
    }
}
