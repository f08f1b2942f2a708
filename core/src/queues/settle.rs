//! Grants waiters.
//!
//! A queue is first in, first out. Whatever changes a lock calls [`Queues::settle`], which hands a free place straight to the
//! head: to one writer, or to every reader up to the next writer or the first one whose limit blocks it. No waiter is woken to
//! try again and none overtakes. So a waiter needs two commands, its acquire and its release, however long the queue is.
//!
//! Two rules break the order. An upgrade stands ahead of the line, because the line waits for its read hold anyway. And when an
//! owner comes to hold, its other requests are decided at once (as re-entry, or they become upgrades), because a waiter
//! between them would wait for an owner that waits for it.
//!
//! One call makes a bounded number of decisions. It notes at the key where it stopped, and the next call goes on
//! from there before it admits anybody else.

mod holders;

use std::ops::ControlFlow;

use super::keys::Unsettled;
use super::waiter::{Decided, Removed, Settled, Verdict, Waiter};
use super::waiters::Position;
use super::{Queues, WaiterId};
use crate::admission::Turn;
use crate::key::KeyRef;
use crate::live::Live;
use crate::lock::Lock;
use crate::owner::{Owner, OwnerRef};
use crate::request::{AcquireError, Busy};
use crate::token::TokenClock;
use crate::tree::NIL;
use crate::types::{Instant, Micros};

/// Visiting this few costs less than recording where the settle stopped.
const FEW: usize = 64;

/// The steps of a settle stop here: no decision is left.
struct BudgetSpent;

/// `Break` if a step has noted in [`Unsettled`] where the next settle goes on.
type Progress = ControlFlow<BudgetSpent>;

/// A key that is being settled.
struct Settling<'a> {
    queues: &'a mut Queues,
    key: u32,
    /// Decisions that may still be made.
    left: usize,
    /// It has come to hold, but not by a grant.
    new_holder: Option<Owner>,
    settled: Settled,
}

impl Queues {
    /// Grants up to `most` waiters that the lock of the key admits. Afterwards, unless there is more to do, the head has to
    /// wait for a hold or for its limit.
    pub fn settle(
        &mut self,
        key: KeyRef<'_>,
        live: &mut Live<'_>,
        tokens: &mut TokenClock,
        wall: Micros,
        most: usize,
    ) -> Settled {
        self.settle_with(key, live, most, |settling, live| {
            settling.run(live, tokens, wall);
        })
    }

    /// `owner` has come to hold, but not by a grant: the next settle of the key decides its requests first.
    pub fn came_to_hold(&mut self, key: KeyRef<'_>, owner: OwnerRef<'_>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        let unsettled = self.keys.node_mut(key).unsettled.get_or_insert_default();
        match unsettled.own {
            None => unsettled.own = Some(owner.to_owner()),
            // There is room for one owner, so the next settle rechecks all holders.
            Some(_) => self.keys.recheck_holders(key),
        }
    }

    /// The lock of the key may have holders that came neither through this queue nor by a command (RENAME, RESTORE and the
    /// like), or requests of holders that could not be decided when they arrived: the next settle decides these first.
    pub fn recheck_holders(&mut self, key: KeyRef<'_>) {
        if let Some(key) = self.keys.find(key) {
            self.keys.recheck_holders(key);
        }
    }

    /// For the time in which nothing is granted: answers only the upgrades whose read hold has ended.
    pub fn settle_lost(&mut self, key: KeyRef<'_>, live: &mut Live<'_>, most: usize) -> Settled {
        self.settle_with(key, live, most, |settling, live| {
            settling.settle_lost(|owner| live.hold(owner).is_some());
        })
    }

    /// The same where the lock may not change: it does not even drop an ended hold.
    pub fn settle_lost_unchanged(
        &mut self,
        key: KeyRef<'_>,
        lock: &Lock,
        now: Instant,
        most: usize,
    ) -> Settled {
        let holds = |owner: OwnerRef<'_>| lock.hold(owner).is_some_and(|stake| !stake.is_over(now));
        let Some(mut settling) = self.settling(key, most) else {
            return Settled::default();
        };
        settling.settle_lost(holds);
        let Settling { key, settled, .. } = settling;
        self.observe_at(key, lock.observe());
        self.drop_if_empty(key);
        settled
    }

    fn settle_with(
        &mut self,
        key: KeyRef<'_>,
        live: &mut Live<'_>,
        most: usize,
        settle: impl FnOnce(&mut Settling<'_>, &mut Live<'_>),
    ) -> Settled {
        let Some(mut settling) = self.settling(key, most) else {
            return Settled::default();
        };
        settle(&mut settling, live);
        let Settling {
            key,
            new_holder,
            mut settled,
            ..
        } = settling;
        self.observe_at(key, live.observe());
        self.keys.set_deadline(key, live.next_deadline());
        if let Some(owner) = new_holder {
            let moved = self.end_cycles_of_holder(key, owner, live.now());
            settled.left.extend(moved);
        }
        self.drop_if_empty(key);
        settled
    }

    fn settling(&mut self, key: KeyRef<'_>, most: usize) -> Option<Settling<'_>> {
        let key = self.keys.find(key)?;
        Some(Settling {
            queues: self,
            key,
            left: most,
            new_holder: None,
            settled: Settled::default(),
        })
    }
}

impl Settling<'_> {
    fn run(&mut self, live: &mut Live<'_>, tokens: &mut TokenClock, wall: Micros) {
        let mut unsettled = self.queues.keys.take_unsettled(self.key);
        let mut decide = |waiter: &Waiter, live: &mut Live<'_>| decide(waiter, live, tokens, wall);
        let progress = self.steps(&mut unsettled, live, &mut decide);
        self.keep(unsettled, progress);
    }

    fn steps(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        self.answer_lost_upgrades(unsettled, |owner| live.hold(owner).is_some())?;
        self.decide_requests_of_new_holder(unsettled, live, decide)?;
        self.recheck_holders(unsettled, live, decide)?;
        self.admit_from_head(unsettled, live, decide)
    }

    fn settle_lost(&mut self, holds: impl Fn(OwnerRef<'_>) -> bool) {
        let mut unsettled = self.queues.keys.take_unsettled(self.key);
        let progress = self.answer_lost_upgrades(&mut unsettled, holds);
        self.keep(unsettled, progress);
    }

    /// Keeps for the next settle what this one has left to do.
    fn keep(&mut self, unsettled: Unsettled, progress: Progress) {
        self.settled.more = progress.is_break();
        if !unsettled.is_empty() {
            self.queues.keys.node_mut(self.key).unsettled = Some(Box::new(unsettled));
        }
    }

    fn root(&self) -> u32 {
        self.queues.keys.node(self.key).line
    }

    /// The waiter leaves the queue with this verdict.
    fn decided(&mut self, slot: u32, verdict: Verdict) {
        self.left -= 1;
        let node = self.queues.waiters.node(slot);
        if node.is_member() {
            return self.decided_at_all_keys(node.waiter.id, verdict);
        }
        if let Some(waiter) = self.queues.unlink(self.key, slot) {
            let waiter = Box::new(waiter);
            let keys = None;
            let decided = Decided {
                waiter,
                keys,
                verdict,
            };
            self.settled.decided.push(decided);
        }
    }

    /// A request for several keys leaves all its queues with this verdict.
    fn decided_at_all_keys(&mut self, id: WaiterId, verdict: Verdict) {
        let Some(removed) = self.queues.remove_several(id, self.key) else {
            return;
        };
        let own = self.queues.keys.node(self.key).id.clone();
        let others = removed.keys().iter().filter(|key| **key != own);
        self.settled.left.extend(others.cloned());
        let Removed { waiter, keys, .. } = removed;
        let decided = Decided {
            waiter,
            keys,
            verdict,
        };
        self.settled.decided.push(decided);
    }

    /// Answers the upgrades whose owner no longer holds, wherever they stand.
    fn answer_lost_upgrades(
        &mut self,
        unsettled: &mut Unsettled,
        holds: impl Fn(OwnerRef<'_>) -> bool,
    ) -> Progress {
        let from = unsettled.upgrades.take();
        let from = from.map_or(Position::FIRST, |last| Position::of_upgrade(last).behind());
        let waiters = &self.queues.waiters;
        let mut at = waiters.line_from(self.root(), from);
        let mut checks = self.left.max(FEW);
        let mut last = None;
        while at != NIL && self.queues.waiters.node(at).is_upgrade() {
            if checks == 0 || self.left == 0 {
                unsettled.upgrades = last;
                return Progress::Break(BudgetSpent);
            }
            checks -= 1;
            let node = self.queues.waiters.node(at);
            last = Some(node.waiter.id);
            let is_lost = !holds(node.waiter.owner.as_ref());
            let next = self.queues.waiters.next_in_line(at);
            if is_lost {
                self.decided(at, Verdict::Denied);
            }
            at = next;
        }
        Progress::Continue(())
    }

    /// Decides the head of the queue, again and again, until one has to wait on.
    fn admit_from_head(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        loop {
            let head = self.queues.waiters.line_from(self.root(), Position::FIRST);
            if head == NIL {
                return Progress::Continue(());
            }
            if self.left == 0 {
                return Progress::Break(BudgetSpent);
            }
            let node = self.queues.waiters.node(head);
            if node.is_member() {
                // It waits until its request can get all of its keys.
                self.queues.check_first_member(head, live);
                return Progress::Continue(());
            }
            let owner = node.waiter.owner.clone();
            let Ok(verdict) = decide(&node.waiter, live) else {
                return Progress::Continue(());
            };
            self.decided(head, verdict);
            if matches!(verdict, Verdict::Granted { .. }) {
                self.decide_requests_of(owner, unsettled, live, decide)?;
            }
        }
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
        Err(AcquireError::NotHeldByToken | AcquireError::NoRoom) => Ok(Verdict::Denied),
        Err(error) => Ok(Verdict::Refused(error)),
    }
}
