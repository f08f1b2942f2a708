//! What tasks do with several keys at once: acquire them together, hold each like any other lock, and release them together.

use std::time::Duration;

use super::{Any, Task, await_loss, key, now, wait_limit, within};
use crate::lock::Guard;
use crate::lock::multi::{MultiGuard, MultiLock};
use crate::referee::{self, Ticket};
use crate::value::Error;
use crate::value::mode::Mode;
use crate::world::{self, this_process};

impl Task {
    /// Acquires some keys at once, in any order, holds and releases them.
    pub(super) async fn use_several(&mut self) -> Result<(), Error> {
        self.at_least = None;
        let Any::One(client) = self.client.clone() else {
            return Ok(());
        };
        let keys = self.some_keys();
        let locks = client.locks(&keys);
        let Some(all) = self.take_several(locks).await? else {
            return Ok(());
        };
        let guards = all.guards();
        let names = guards.iter().map(|guard| guard.key());
        if !names.eq(keys.iter().map(String::as_bytes)) {
            world::fail(format!("{keys:?} were asked for, and {all:?} granted"));
        }
        if guards.iter().any(|guard| guard.token() != all.token()) {
            world::fail(format!("granted by several tokens: {all:?}"));
        }
        let enter = |guard: &Guard| referee::enter(guard.held(), Mode::Write, None);
        let tickets = guards.iter().map(enter).collect();
        self.hold_several(all, tickets).await
    }

    fn some_keys(&mut self) -> Vec<String> {
        let mut all: Vec<u64> = (1..=self.plan.keys as u64).collect();
        let count = self.dice.within(2..=all.len() as u64);
        let mut drawn = || {
            let at = self.dice.within(0..=all.len() as u64 - 1);
            key(all.swap_remove(at as usize))
        };
        (0..count).map(|_| drawn()).collect()
    }

    /// `None` if the task gave up.
    async fn take_several(&mut self, mut locks: MultiLock) -> Result<Option<MultiGuard>, Error> {
        let dice = &mut self.dice;
        locks = locks.lease(Duration::from_millis(dice.pick(&self.plan.leases)));
        let limit = wait_limit(dice);
        if let Some(limit) = limit {
            locks = locks.wait(Duration::from_millis(limit));
        }
        let patience = dice.percent(25).then(|| dice.within(0..=400));
        let began = now();
        let taken = within(patience, locks.acquire()).await;
        if let Some(limit) = limit {
            self.judge_wait(began, limit);
        }
        match taken {
            None | Some(Err(Error::Busy { .. })) => Ok(None),
            Some(taken) => taken.map(Some),
        }
    }

    async fn hold_several(&mut self, all: MultiGuard, tickets: Vec<Ticket>) -> Result<(), Error> {
        for _ in 0..self.dice.within(0..=3) {
            let nth = self.dice.within(0..=all.guards().len() as u64 - 1) as usize;
            let (guard, ticket) = (&all.guards()[nth], &tickets[nth]);
            match self.dice.within(0..=9) {
                common @ 0..=6 => self.use_lock(guard, common).await,
                7 => {
                    let is_over = guard.deadline().remaining().is_zero();
                    if is_over && all.check().is_ok() {
                        world::fail("guards are fine, and the time of one is over".to_owned());
                    }
                }
                // One of them is passed on to a job.
                8 => {
                    let is_still_held = self.pass_on(guard, None).await;
                    if !is_still_held {
                        referee::leave(ticket);
                    }
                }
                _ => {}
            }
        }
        self.give_back_several(all, &tickets).await;
        Ok(())
    }

    async fn give_back_several(&mut self, all: MultiGuard, tickets: &[Ticket]) {
        let leave = || tickets.iter().for_each(referee::leave);
        match self.dice.within(0..=9) {
            0..=4 => {
                leave();
                let released = all.release().await;
                world::note(|| format!("process {}: released: {released:?}", this_process()));
            }
            5 => {
                leave();
                let patience = Some(self.dice.within(0..=20));
                let _ = within(patience, all.release()).await;
            }
            6 => {
                await_loss(all.guards(), all.lost()).await;
                leave();
            }
            _ => {
                leave();
                drop(all);
            }
        }
    }
}
