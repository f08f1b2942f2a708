//! Whom to let in next.
//!
//! A queue is first in, first out. What changes the lock calls [`Queues::settle`], which hands a
//! free place straight to the head: one writer, or every reader up to the next writer. Nobody is
//! woken to try again, and nobody overtakes, so a waiter needs two commands whatever the length of
//! the queue: its acquire and its release.
//!
//! Two rules break the order, and both for the owner's own sake. An upgrade stands ahead of the
//! line, because the line waits for its read hold anyway. And when an owner comes to hold, its own
//! other requests are decided at once (re-entry, or they become upgrades), because a waiter between
//! them would wait for an owner that waits for it.
//!
//! One call decides as many as it is told to. What is left then is noted at the key, and nobody is
//! let in ahead of it.

use super::keys::Unsettled;
use super::waiter::{Decided, Settled, Verdict, Waiter};
use super::waiters::Position;
use super::{Queues, WaiterId};
use crate::admission::Turn;
use crate::live::Live;
use crate::lock::Lock;
use crate::owner::{Owner, OwnerRef};
use crate::request::{AcquireError, Busy};
use crate::token::TokenClock;
use crate::tree::NIL;
use crate::types::{Instant, Micros};

/// Looks at a few cost less than to keep account of where one stopped.
const FEW: usize = 64;

/// A key that is being settled.
struct Settling<'a> {
    queues: &'a mut Queues,
    key: u32,
    /// Decisions that may still be made.
    left: usize,
    settled: Settled,
}

impl Queues {
    /// Lets in whom the lock of the key admits, up to `most` of them. Afterwards the head, if there
    /// is one and there is no more to do, conflicts with a hold.
    ///
    /// `recheck_holders`: the lock may hold owners that did not come through this queue (RENAME, RESTORE
    /// and the like), so that their own requests have to be looked for. Once is enough, though there
    /// is more to do.
    #[allow(clippy::too_many_arguments)]
    pub fn settle(
        &mut self,
        db: u32,
        name: &[u8],
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        recheck_holders: bool,
        most: usize,
    ) -> Settled {
        self.settle_with(db, name, live, most, |settling, live| {
            settling.run(live, tokens, wall, recheck_holders)
        })
    }

    /// `owner` has come to hold, but not by a grant: the next settle of the key decides its requests first.
    pub fn came_to_hold(&mut self, db: u32, name: &[u8], owner: OwnerRef<'_>) {
        let Some(key) = self.keys.find(db, name) else {
            return;
        };
        let unsettled = self.keys.node_mut(key).unsettled.get_or_insert_default();
        match unsettled.own {
            None => unsettled.own = Some(owner.to_owner()),
            // One more cannot be noted, so all holders are looked at.
            Some(_) => unsettled.holders = Some(None),
        }
    }

    /// While nothing is granted: lets nobody in, but answers the upgrades whose read hold has ended.
    pub fn settle_lost(
        &mut self,
        db: u32,
        name: &[u8],
        live: &mut Live<'_>,
        most: usize,
    ) -> Settled {
        self.settle_with(db, name, live, most, |settling, live| {
            let mut unsettled = settling.unsettled();
            settling.settled.more =
                !settling.answer_lost_upgrades(&mut unsettled, |owner| live.hold(owner).is_some());
            settling.keep(unsettled);
        })
    }

    /// The same where nothing may be changed, not even a hold that is over dropped.
    pub fn settle_lost_unchanged(
        &mut self,
        db: u32,
        name: &[u8],
        lock: &Lock,
        now: Instant,
        most: usize,
    ) -> Settled {
        let holds = |owner: OwnerRef<'_>| lock.hold(owner).is_some_and(|stake| !stake.is_over(now));
        let Some(mut settling) = self.settling(db, name, most) else {
            return Settled::default();
        };
        let mut unsettled = settling.unsettled();
        settling.settled.more = !settling.answer_lost_upgrades(&mut unsettled, holds);
        settling.keep(unsettled);
        let Settling { key, settled, .. } = settling;
        self.observe_at(key, lock.observe());
        self.drop_if_empty(key);
        settled
    }

    fn settle_with(
        &mut self,
        db: u32,
        name: &[u8],
        live: &mut Live<'_>,
        most: usize,
        settle: impl FnOnce(&mut Settling<'_>, &mut Live<'_>),
    ) -> Settled {
        let Some(mut settling) = self.settling(db, name, most) else {
            return Settled::default();
        };
        settle(&mut settling, live);
        let Settling { key, settled, .. } = settling;
        self.observe_at(key, live.observe());
        self.keys.set_deadline(key, live.next_deadline());
        self.drop_if_empty(key);
        settled
    }

    fn settling(&mut self, db: u32, name: &[u8], most: usize) -> Option<Settling<'_>> {
        let key = self.keys.find(db, name)?;
        Some(Settling {
            queues: self,
            key,
            left: most,
            settled: Settled::default(),
        })
    }
}

impl Settling<'_> {
    fn run(
        &mut self,
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        recheck_holders: bool,
    ) {
        let mut unsettled = self.unsettled();
        if recheck_holders {
            unsettled.holders = Some(None);
        }
        let mut decide = |waiter: &Waiter, live: &mut Live<'_>| decide(waiter, live, tokens, wall);
        let done = self.answer_lost_upgrades(&mut unsettled, |owner| live.hold(owner).is_some())
            && self.finish_own(&mut unsettled, live, &mut decide)
            && self.decide_strangers(&mut unsettled, live, &mut decide)
            && self.let_in(&mut unsettled, live, &mut decide);
        self.settled.more = !done;
        self.keep(unsettled);
    }

    /// What the last settle has left.
    fn unsettled(&mut self) -> Unsettled {
        let unsettled = self.queues.keys.node_mut(self.key).unsettled.take();
        unsettled.map_or_else(Unsettled::default, |unsettled| *unsettled)
    }

    fn keep(&mut self, unsettled: Unsettled) {
        if self.settled.more {
            self.queues.keys.node_mut(self.key).unsettled = Some(Box::new(unsettled));
        }
    }

    fn root(&self) -> u32 {
        self.queues.keys.node(self.key).line
    }

    fn decided(&mut self, slot: u32, verdict: Verdict) {
        self.left -= 1;
        if let Some(waiter) = self.queues.take(self.key, slot) {
            self.settled.decided.push(Decided { waiter, verdict });
        }
    }

    /// Upgrades whose owner holds no more, wherever they stand. False if it is not done.
    fn answer_lost_upgrades(
        &mut self,
        unsettled: &mut Unsettled,
        holds: impl Fn(OwnerRef<'_>) -> bool,
    ) -> bool {
        let from = unsettled.upgrades.take();
        let from = from.map_or(Position::FIRST, |last| Position::of(true, last).behind());
        let waiters = &self.queues.waiters;
        let mut at = waiters.line_from(self.root(), from);
        let mut looks = self.left.max(FEW);
        let mut last = None;
        while at != NIL && self.queues.waiters.node(at).upgrade {
            if looks == 0 || self.left == 0 {
                unsettled.upgrades = last;
                return false;
            }
            looks -= 1;
            let node = self.queues.waiters.node(at);
            last = Some(node.waiter.id);
            let is_lost = !holds(node.waiter.owner.as_ref());
            let next = self.queues.waiters.next_in_line(at);
            if is_lost {
                self.decided(at, Verdict::UpgradeLost);
            }
            at = next;
        }
        true
    }

    /// An owner came to hold, and the last settle has not decided all its requests.
    fn finish_own(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        match unsettled.own.take() {
            None => true,
            Some(owner) if live.hold(owner.as_ref()).is_none() => true,
            Some(owner) => self.decide_own(owner, unsettled, live, decide),
        }
    }

    /// The head of the queue, again and again. False if it is not done.
    fn let_in(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        loop {
            let head = self.queues.waiters.line_from(self.root(), Position::FIRST);
            if head == NIL {
                return true;
            }
            if self.left == 0 {
                return false;
            }
            let waiter = &self.queues.waiters.node(head).waiter;
            let Ok(verdict) = decide(waiter, live) else {
                return true;
            };
            let owner = waiter.owner.clone();
            self.decided(head, verdict);
            if matches!(verdict, Verdict::Granted { .. })
                && !self.decide_own(owner, unsettled, live, decide)
            {
                return false;
            }
        }
    }

    /// The requests of owners that hold and may have come from elsewhere. False if it is not done.
    fn decide_strangers(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        while let Some(last) = unsettled.holders.take() {
            if self.queues.keys.node(self.key).len as usize <= FEW {
                return self.decide_few_strangers(unsettled, live, decide);
            }
            let page = live.holders_behind(last.as_ref(), FEW);
            if self.left == 0 {
                unsettled.holders = Some(last);
                return false;
            }
            // A look at a page counts as a decision, so that a crowd of holders takes several calls.
            self.left -= 1;
            let mut last = last;
            for owner in page.iter().cloned() {
                if live.hold(owner.as_ref()).is_some()
                    && !self.decide_own(owner.clone(), unsettled, live, decide)
                {
                    unsettled.holders = Some(last);
                    return false;
                }
                last = Some(owner);
            }
            if page.len() == FEW {
                unsettled.holders = Some(last);
            }
        }
        true
    }

    /// The same where few wait: in their order.
    fn decide_few_strangers(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        let mut at = self.queues.waiters.line_from(self.root(), Position::FIRST);
        let mut places = Vec::new();
        while at != NIL {
            places.push(at);
            at = self.queues.waiters.next_in_line(at);
        }
        for slot in places {
            let waiter = &self.queues.waiters.node(slot).waiter;
            if live.hold(waiter.owner.as_ref()).is_none() {
                continue;
            }
            if self.left == 0 {
                unsettled.holders = Some(None);
                return false;
            }
            self.decide_one_own(slot, live, decide);
        }
        true
    }

    /// Decides the requests of `owner`, who holds, as if they were asked now. False if it is not
    /// done.
    fn decide_own(
        &mut self,
        owner: Owner,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        let mut from = Position::FIRST;
        loop {
            let waiters = &self.queues.waiters;
            let task = waiters.task_of(owner.as_ref());
            let slot = waiters.request_from(task, self.key, owner.as_ref(), from);
            if slot == NIL {
                return true;
            }
            if self.left == 0 {
                unsettled.own = Some(owner);
                return false;
            }
            let position = waiters.node(slot).position();
            from = position.behind();
            let waits = !self.decide_one_own(slot, live, decide);
            if waits && position.is_upgrade() {
                // So do all its upgrades.
                from = Position::LINE;
            }
        }
    }

    /// False if it waits on.
    fn decide_one_own(&mut self, slot: u32, live: &mut Live<'_>, decide: &mut impl Decide) -> bool {
        let node = self.queues.waiters.node(slot);
        let (id, upgrade) = (node.waiter.id, node.upgrade);
        match decide(&node.waiter, live) {
            Ok(verdict) => {
                self.decided(slot, verdict);
                return true;
            }
            Err(Busy::Upgrade) if !upgrade => self.move_ahead(slot, id),
            Err(_) => {}
        }
        false
    }

    /// A request of the line has become an upgrade.
    fn move_ahead(&mut self, slot: u32, id: WaiterId) {
        self.left -= 1;
        let node = self.queues.keys.node_mut(self.key);
        self.queues.waiters.move_ahead(&mut node.line, slot);
        self.settled.upgrading.push(id);
    }
}

/// Grants or refuses a waiter; an error if it has to wait on.
trait Decide: FnMut(&Waiter, &mut Live<'_>) -> Result<Verdict, Busy> {}

impl<F: FnMut(&Waiter, &mut Live<'_>) -> Result<Verdict, Busy>> Decide for F {}

fn decide(
    waiter: &Waiter,
    live: &mut Live<'_>,
    tokens: &mut TokenClock,
    wall: Micros,
) -> Result<Verdict, Busy> {
    let owner = waiter.owner.as_ref();
    let before = live.hold(owner);
    match live.acquire(&waiter.request(), Turn::First, tokens, wall) {
        Ok(grant) => match live.hold(owner) {
            Some(stake) => Ok(Verdict::Granted {
                grant,
                stake,
                before,
                alone: live.is_alone(),
            }),
            None => Err(Busy::Held),
        },
        Err(AcquireError::Busy(busy)) => Err(busy),
        Err(AcquireError::NotHeldByToken) => Ok(Verdict::UpgradeLost),
        Err(error) => Ok(Verdict::Refused(error)),
    }
}
