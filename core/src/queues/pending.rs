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
    /// Its first key.
    pub key: PendingKey,
    /// All others, if its terms say how many keys they are.
    pub others: Vec<PendingKey>,
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
    /// All its keys.
    pub fn keys(&self) -> impl Iterator<Item = &PendingKey> {
        std::iter::once(&self.key).chain(&self.others)
    }

    fn is_for_several(&self) -> bool {
        self.terms.sharing.keys().is_some()
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
        if request.is_for_several() {
            let id = self.next_id();
            self.add(request, id, request.rank);
            let plan = self.plan_several(id, request.since);
            self.remove(id);
            return plan;
        }
        let wait = Wait {
            key: request.key.key.clone(),
            owner: request.owner.clone(),
            terms: request.terms,
            rank: request.rank,
        };
        self.plan_wait(wait, &request.key.held, request.since)
    }

    /// Enqueues the request as planned. Returns its id, and the keys where others have moved: the caller settles these.
    pub fn enqueue(&mut self, request: &PendingRequest, plan: &WaitPlan) -> (WaiterId, Vec<KeyId>) {
        let id = plan.id().unwrap_or_else(|| self.next_id());
        self.add(request, id, plan.rank);
        (id, self.make_moves(plan))
    }

    fn add(&mut self, request: &PendingRequest, id: WaiterId, rank: Rank) {
        let waiter = request.waiter(id);
        if request.is_for_several() {
            let members = request.keys().map(|key| Member {
                key: key.key.as_ref(),
                ready: key.is_ready,
            });
            self.push_several(&members.collect::<Vec<_>>(), &waiter);
        } else {
            self.push(request.key.key.as_ref(), waiter, rank);
        }
        for key in request.keys() {
            self.observe(key.key.as_ref(), key.held.clone());
        }
    }
}
