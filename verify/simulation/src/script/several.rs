//! What tasks do with several keys at once: acquire them together, hold and renew them, and release them together.

use std::time::Duration;

use super::{Any, Task, await_loss, key, now, wait_limit, within};
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::lock::Lock;
use crate::name::Mode;
use crate::referee::{self, Ticket};
use crate::world::{self, this_process};

impl Task {
    /// Acquires some keys at once, in any order, holds and releases them.
    pub(super) async fn use_several(&mut self) -> Result<(), Error> {
        self.kept = None;
        let Any::One(client) = self.client.clone() else {
            return Ok(());
        };
        let keys = self.some_keys();
        let Some(all) = self.take_several(client.locks(&keys)).await? else {
            return Ok(());
        };
        let enter =
            |key: &String| referee::enter(Held::at(&all, key.as_bytes()), Mode::Write, None);
        let tickets = keys.iter().map(enter).collect();
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
    async fn take_several(&mut self, mut locks: Lock) -> Result<Option<Guard>, Error> {
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

    async fn hold_several(&mut self, all: Guard, tickets: Vec<Ticket>) -> Result<(), Error> {
        for _ in 0..self.dice.within(0..=3) {
            match self.dice.within(0..=9) {
                common @ 0..=6 => self.use_lock(&all, common).await,
                7 => {
                    let is_over = all.deadline().remaining().is_zero();
                    if is_over && all.check().is_ok() {
                        world::fail("a guard is fine, and its time is over".to_owned());
                    }
                }
                _ => {}
            }
        }
        self.give_back_several(all, &tickets).await;
        Ok(())
    }

    async fn give_back_several(&mut self, all: Guard, tickets: &[Ticket]) {
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
                await_loss(&all).await;
                leave();
            }
            _ => {
                leave();
                drop(all);
            }
        }
    }
}
