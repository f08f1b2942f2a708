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

use std::ops::ControlFlow;

use super::Queues;
use super::keys::{KeyNo, Unsettled};
use super::position::{Position, WaiterId};
use super::waiter::{Decided, Removed, Settled, Verdict, Waiter};
use crate::admission::Turn;
use crate::key::KeyRef;
use crate::live::Live;
use crate::lock::Lock;
use crate::owner::{Owner, OwnerRef};
use crate::request::{AcquireError, Busy};
use crate::token::TokenClock;
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
    key: KeyNo,
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
        let Some(mut settling) = self.settling(key, most) else {
            return Settled::default();
        };
        settling.run(live, tokens, wall);
        let Settling {
            key,
            new_holder,
            mut settled,
            ..
        } = settling;
        self.keys.observe(key, live.lock().observe());
        self.keys.set_deadline(key, live.next_deadline());
        self.check_due(key, live.now());
        if let Some(owner) = new_holder {
            let moves = self.end_cycles_of_holder(key, &owner, live.now());
            settled.left.extend(self.keys_of_moves(&moves));
        }
        self.drop_if_empty(key);
        settled
    }

    /// `owner` has come to hold, but not by a grant: the next settle of the key decides its requests first.
    pub fn came_to_hold(&mut self, key: KeyRef<'_>, owner: OwnerRef<'_>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        let unsettled = self.keys.get_mut(key).unsettled.get_or_insert_default();
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

    /// For the time in which nothing is granted, or the lock may not be changed: answers only the upgrades whose read hold has ended.
    pub fn settle_lost(
        &mut self,
        key: KeyRef<'_>,
        lock: &Lock,
        now: Instant,
        most: usize,
    ) -> Settled {
        let Some(mut settling) = self.settling(key, most) else {
            return Settled::default();
        };
        settling.settle_lost(now, |owner| lock.live_hold(owner, now).is_some());
        let Settling { key, settled, .. } = settling;
        self.keys.observe(key, lock.observe());
        self.keys.set_deadline(key, lock.next_live_deadline(now));
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
        self.answer_lost_upgrades(unsettled, live.now(), |owner| live.hold(owner).is_some())?;
        self.decide_requests_of_new_holder(unsettled, live, decide)?;
        self.recheck_holders(unsettled, live, decide)?;
        self.admit_from_head(unsettled, live, decide)
    }

    fn settle_lost(&mut self, now: Instant, holds: impl Fn(OwnerRef<'_>) -> bool) {
        let mut unsettled = self.queues.keys.take_unsettled(self.key);
        let progress = self.answer_lost_upgrades(&mut unsettled, now, holds);
        self.keep(unsettled, progress);
    }

    /// Keeps for the next settle what this one has left to do.
    fn keep(&mut self, unsettled: Unsettled, progress: Progress) {
        self.settled.more = progress.is_break();
        if !unsettled.is_empty() {
            self.queues.keys.get_mut(self.key).unsettled = Some(Box::new(unsettled));
        }
    }

    /// The request leaves all its queues with this verdict.
    fn decided(&mut self, id: WaiterId, verdict: Verdict) {
        self.left -= 1;
        let Some(Removed { waiter, keys }) = self.queues.take(id, Some(self.key)) else {
            return;
        };
        let own = &self.queues.keys.get(self.key).id;
        let others = keys.as_slice().iter().filter(|key| *key != own);
        self.settled.left.extend(others.cloned());
        self.settled.decided.push(Decided {
            waiter,
            keys,
            verdict,
        });
    }

    /// Answers the upgrades whose owner no longer holds, or whose time is up, wherever they stand.
    fn answer_lost_upgrades(
        &mut self,
        unsettled: &mut Unsettled,
        now: Instant,
        holds: impl Fn(OwnerRef<'_>) -> bool,
    ) -> Progress {
        let last = unsettled.upgrades.take();
        let mut from = last.map_or(Position::FIRST, |last| Position::of_upgrade(last).behind());
        let mut checks = self.left.max(FEW);
        while let Some(upgrade) = self.queues.waiters.first_from(self.key, from)
            && upgrade.position.is_upgrade()
        {
            let id = upgrade.waiter.id;
            if checks == 0 || self.left == 0 {
                unsettled.upgrades = Some(WaiterId(id.0 - 1));
                return Progress::Break(BudgetSpent);
            }
            checks -= 1;
            from = upgrade.position.behind();
            if upgrade.waiter.until <= now || !holds(upgrade.waiter.owner.as_ref()) {
                self.decided(id, Verdict::Denied);
            }
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
        while let Some(head) = self.queues.waiters.first_from(self.key, Position::FIRST) {
            if self.left == 0 {
                return Progress::Break(BudgetSpent);
            }
            let id = head.waiter.id;
            if head.is_for_several() {
                // It waits until it can get all of its keys: see `check_due`.
                break;
            }
            let owner = head.waiter.owner.clone();
            let Ok(verdict) = decide(&head.waiter, live) else {
                break;
            };
            self.decided(id, verdict);
            if matches!(verdict, Verdict::Granted { .. }) {
                self.decide_requests_of(owner, unsettled, live, decide)?;
            }
        }
        Progress::Continue(())
    }
}

/// Decides the requests of owners that have come to hold, wherever these stand in the queue: as re-entry, or they become
/// upgrades. A waiter between them would wait for an owner that waits for it.
impl Settling<'_> {
    /// An owner came to hold, and the last settle has not decided all its requests.
    fn decide_requests_of_new_holder(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        match unsettled.own.take() {
            Some(owner) if live.hold(owner.as_ref()).is_some() => {
                self.new_holder = Some(owner.clone());
                self.decide_requests_of(owner, unsettled, live, decide)
            }
            _ => Progress::Continue(()),
        }
    }

    /// Decides the requests of holders that may have come neither through the queue nor by a command: goes through the waiters in their
    /// order, or through the holders where these are few and many wait.
    fn recheck_holders(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        let Some(mut from) = unsettled.recheck_from.take() else {
            return Progress::Continue(());
        };
        let holders = live.lock().page(None, FEW + 1);
        if holders.len() <= FEW && self.queues.keys.get(self.key).len as usize > FEW {
            let mut holders = holders.into_iter();
            let progress = holders.try_for_each(|(owner, _)| match live.hold(owner.as_ref()) {
                Some(_) => self.decide_requests_of(owner, unsettled, live, decide),
                None => Progress::Continue(()),
            });
            if progress.is_break() {
                unsettled.recheck_from = Some(from);
            }
            return progress;
        }
        let mut checks = self.left.max(FEW);
        while let Some(waiting) = self.queues.waiters.first_from(self.key, from) {
            if checks == 0 || self.left == 0 {
                unsettled.recheck_from = Some(from);
                return Progress::Break(BudgetSpent);
            }
            checks -= 1;
            from = waiting.position.behind();
            if live.hold(waiting.waiter.owner.as_ref()).is_some() {
                self.decide_request_of_holder(waiting.waiter.id, live, decide);
            }
        }
        Progress::Continue(())
    }

    /// Decides the requests of `owner`, which holds, as if it sent them now.
    fn decide_requests_of(
        &mut self,
        owner: Owner,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        let name = self.queues.waiters.name(owner.as_ref());
        let mut from = Position::FIRST;
        while let Some(position) = self.queues.waiters.request_from(self.key, name, from)
            && let Some(id) = self.queues.waiters.at(position).map(|it| it.waiter.id)
        {
            if self.left == 0 {
                unsettled.own = Some(owner);
                return Progress::Break(BudgetSpent);
            }
            let waits_on = self.decide_request_of_holder(id, live, decide);
            from = match waits_on && position.is_upgrade() {
                // All upgrades of this owner wait on, too.
                true => Position::BEHIND_UPGRADES,
                false => position.behind(),
            };
        }
        Progress::Continue(())
    }

    /// True if the request waits on.
    fn decide_request_of_holder(
        &mut self,
        id: WaiterId,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> bool {
        let Some(waiting) = self.queues.waiters.get(id) else {
            return false;
        };
        let verdict = match waiting.is_for_several() {
            true => Ok(Verdict::Refused(AcquireError::HoldsOne)),
            false => decide(&waiting.waiter, live),
        };
        match verdict {
            Ok(verdict) => {
                self.decided(id, verdict);
                return false;
            }
            Err(Busy::Upgrade) if !waiting.position.is_upgrade() => self.becomes_upgrade(id),
            Err(_) => {}
        }
        true
    }

    fn becomes_upgrade(&mut self, id: WaiterId) {
        self.left -= 1;
        let position = Position::of_upgrade(id);
        self.queues.waiters.set_position(id, position);
        self.settled.upgrading.push(id);
    }
}

/// Grants or refuses a waiter, or denies one whose time is up; an error if it has to wait on.
trait Decide: FnMut(&Waiter, &mut Live<'_>) -> Result<Verdict, Busy> {}

impl<F: FnMut(&Waiter, &mut Live<'_>) -> Result<Verdict, Busy>> Decide for F {}

fn decide(
    waiter: &Waiter,
    live: &mut Live<'_>,
    tokens: &mut TokenClock,
    wall: Micros,
) -> Result<Verdict, Busy> {
    if waiter.until <= live.now() {
        return Ok(Verdict::Denied);
    }
    let owner = waiter.owner.as_ref();
    let before = live.hold(owner);
    match live.acquire(&waiter.request(), Turn::First, tokens, wall) {
        Ok(grant) => Ok(Verdict::Granted {
            grant,
            before,
            alone: live.is_alone(),
        }),
        Err(AcquireError::Busy(busy)) => Err(busy),
        Err(AcquireError::NotHeldByToken | AcquireError::NoRoom) => Ok(Verdict::Denied),
        Err(error) => Ok(Verdict::Refused(error)),
    }
}
