//! Decides the requests of owners that have come to hold, wherever these stand in the queue: as re-entry, or they become
//! upgrades. A waiter between them would wait for an owner that waits for it.

use super::super::WaiterId;
use super::super::keys::{HoldersToRecheck, Unsettled};
use super::super::waiter::Verdict;
use super::super::waiters::{Position, Rank};
use super::{BudgetSpent, Decide, FEW, Progress, Settling};
use crate::live::Live;
use crate::owner::Owner;
use crate::request::{AcquireError, Busy};
use crate::tree::NIL;

impl Settling<'_> {
    /// An owner came to hold, and the last settle has not decided all its requests.
    pub(super) fn decide_requests_of_new_holder(
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

    /// Decides the requests of holders that may have come neither through the queue nor by a command.
    pub(super) fn recheck_holders(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        loop {
            let last = match std::mem::take(&mut unsettled.holders) {
                HoldersToRecheck::None => return Progress::Continue(()),
                HoldersToRecheck::All => None,
                HoldersToRecheck::Behind(last) => Some(last),
            };
            if self.queues.keys.node(self.key).len as usize <= FEW {
                return self.recheck_few_waiters(unsettled, live, decide);
            }
            self.recheck_page(last, unsettled, live, decide)?;
        }
    }

    /// Some holders, after `last`.
    fn recheck_page(
        &mut self,
        mut last: Option<Owner>,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        if self.left == 0 {
            unsettled.holders = HoldersToRecheck::behind(last);
            return Progress::Break(BudgetSpent);
        }
        // A page counts as a decision, so that a crowd of holders takes several calls.
        self.left -= 1;
        let page = live.holders_behind(last.as_ref(), FEW);
        let more = page.len() == FEW;
        let progress = page.into_iter().try_for_each(|owner| {
            if live.hold(owner.as_ref()).is_some() {
                self.decide_requests_of(owner.clone(), unsettled, live, decide)?;
            }
            last = Some(owner);
            Progress::Continue(())
        });
        if more || progress.is_break() {
            unsettled.holders = HoldersToRecheck::behind(last);
        }
        progress
    }

    /// The same if few wait: goes through the waiters, in their order.
    fn recheck_few_waiters(
        &mut self,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
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
                unsettled.holders = HoldersToRecheck::All;
                return Progress::Break(BudgetSpent);
            }
            self.decide_request_of_holder(slot, live, decide);
        }
        Progress::Continue(())
    }

    /// Decides the requests of `owner`, which holds, as if it sent them now.
    pub(super) fn decide_requests_of(
        &mut self,
        owner: Owner,
        unsettled: &mut Unsettled,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Progress {
        let mut from = Position::FIRST;
        loop {
            let waiters = &self.queues.waiters;
            let task = waiters.task_of(owner.as_ref());
            let slot = waiters.request_from(task, self.key, owner.as_ref(), from);
            if slot == NIL {
                return Progress::Continue(());
            }
            if self.left == 0 {
                unsettled.own = Some(owner);
                return Progress::Break(BudgetSpent);
            }
            let position = waiters.position(slot);
            from = position.behind();
            let outcome = self.decide_request_of_holder(slot, live, decide);
            if matches!(outcome, Outcome::WaitsOn) && position.is_upgrade() {
                // All upgrades of this owner wait on, too.
                from = Position::BEHIND_UPGRADES;
            }
        }
    }

    fn decide_request_of_holder(
        &mut self,
        slot: u32,
        live: &mut Live<'_>,
        decide: &mut impl Decide,
    ) -> Outcome {
        let node = self.queues.waiters.node(slot);
        if node.is_member() {
            self.decided(slot, Verdict::Refused(AcquireError::HoldsOne));
            return Outcome::Decided;
        }
        let (id, upgrade) = (node.waiter.id, node.is_upgrade());
        match decide(&node.waiter, live) {
            Ok(verdict) => {
                self.decided(slot, verdict);
                return Outcome::Decided;
            }
            Err(Busy::Upgrade) if !upgrade => self.move_ahead(slot, id),
            Err(_) => {}
        }
        Outcome::WaitsOn
    }

    /// A request of the line has become an upgrade.
    fn move_ahead(&mut self, slot: u32, id: WaiterId) {
        self.left -= 1;
        self.queues.set_rank(id, &[slot], Rank::Upgrade);
        self.settled.upgrading.push(id);
    }
}

enum Outcome {
    Decided,
    WaitsOn,
}
