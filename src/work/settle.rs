//! The one place that grants waiters.
//!
//! A command settles the key it works on, before its step (a callback may have marked the key)
//! and after it. Everything else comes from timers. They change locks through `LOCK.SETTLE` (`settle_key.rs`), so that the server can
//! refuse the change like a client's write.

use mortise_core::{Decided, Settled, Verdict, WaiterId};

use crate::keys::tokens;
use crate::time::{self, alarms, clock};
use crate::totals::{self, Total};
use crate::waiting::{self, pending, waiters};
use crate::work::open_lock::Notice;
use crate::work::open_lock::{self, OpenLock};
use crate::work::queue;

/// How many waiters of a key are decided at once, and grants undone.
pub(crate) const MOST: usize = 64;

impl OpenLock<'_> {
    /// Grants the waiters that the lock admits.
    pub(crate) fn settle(&mut self) {
        if self.more || !self.has_waiters() {
            return;
        }
        if time::grace(self.ctx).forbids_grants(self.now) {
            self.settle_lost();
        } else {
            while !self.settle_once() {}
        }
        if waiting::queues(self.ctx).borrow().any_due() {
            alarms::at_end_of_turn(self.ctx);
        }
        waiting::arm(self.ctx);
    }

    /// Grants waiters once. Returns false if a cycle was broken, so that others may be granted.
    fn settle_once(&mut self) -> bool {
        let ctx = self.ctx;
        let key = self.key_ref();
        let Settled {
            decided,
            upgrading,
            left,
            more,
        } = self.with_live(|live| {
            let mut tokens = tokens::clock(ctx).borrow_mut();
            let mut queues = waiting::queues(ctx).borrow_mut();
            queues.settle(key, live, &mut tokens, clock::wall(), MOST)
        });
        let mut granted = false;
        for other in left {
            queue::settle(ctx, other.as_ref());
        }
        for decided in &decided {
            granted |= self.carry_out(decided);
            waiters::decide(ctx, decided, self.now);
        }
        if granted && self.key.persist() {
            self.ctx.replicate_plain(c"PERSIST", self.name.bytes());
        }
        let mut settled = true;
        for id in upgrading {
            settled &= self.check_upgrade(id);
        }
        self.go_on_later(more);
        settled || more
    }

    /// The next settle grants waiters that this one has not reached.
    fn go_on_later(&mut self, more: bool) {
        self.more = more;
        if more {
            queue::settle(self.ctx, self.key_ref());
        }
    }

    /// While nothing is granted: an upgrade whose read hold has ended is answered all the same.
    fn settle_lost(&mut self) {
        let ctx = self.ctx;
        let key = self.key_ref();
        let now = self.now;
        let settled = self.with_live(|live| {
            let mut queues = waiting::queues(ctx).borrow_mut();
            queues.settle_lost(key, live.lock(), now, MOST)
        });
        for decided in &settled.decided {
            waiters::decide(ctx, decided, self.now);
        }
        self.go_on_later(settled.more);
    }

    /// Replicates and counts a decision. True if it was a grant.
    fn carry_out(&mut self, decided: &Decided) -> bool {
        let ctx = self.ctx;
        let Verdict::Granted { grant, alone, .. } = decided.verdict else {
            return false;
        };
        let owner = decided.waiter.owner.as_ref();
        open_lock::replicate(ctx, self.name, self.now, owner, grant.stake(), alone);
        self.notify(Notice::Acquired);
        totals::add_grant(ctx, grant);
        totals::add(ctx, Total::Handoffs);
        let waited = self.now.millis_since(decided.waiter.since);
        totals::wait_times(ctx).borrow_mut().record(waited);
        true
    }

    /// A waiter has become an upgrade, which may have closed a cycle. False if it had.
    fn check_upgrade(&mut self, id: WaiterId) -> bool {
        let ctx = self.ctx;
        let ended = {
            let mut queues = waiting::queues(ctx).borrow_mut();
            let ended = queues.end_cycles(id, self.now);
            ended.map(|moves| queues.keys_of_moves(&moves))
        };
        match ended {
            Ok(moved) => {
                pending::settle_all(ctx, &moved);
                true
            }
            Err(deadlock) => {
                let error = pending::refuse(ctx, &deadlock, &waiters::viewer(ctx, id));
                waiters::refuse(ctx, id, &error);
                false
            }
        }
    }
}
