//! Several locks that a task takes at once.

use std::time::Duration;

use mortise_client::{Client, Guard};
use tokio::time::sleep;

use super::{Side, Task, written};
use crate::history::{Granted, Outcome, Way, now};

impl Task<'_> {
    /// The client, if the next request is one for several locks.
    pub(super) fn draws_several(&mut self) -> Option<Client> {
        match &*self.side {
            Side::One(client) if !self.job.bundle.is_empty() && self.dice.roll(8) == 0 => {
                Some(client.clone())
            }
            _ => None,
        }
    }

    /// Asks for all locks of the bundle. Returns whether that was granted.
    pub(super) async fn round_of_several(&mut self, client: &Client, last: bool) -> bool {
        let mut keys = self.job.bundle.clone();
        if self.dice.roll(2) == 0 {
            keys.reverse();
        }
        let (wait, patience) = (self.draw_wait(last), self.draw_patience(last));
        let ask = self.asks(&keys[0], "", Way::Library);
        let locks = client.locks(&keys).lease(self.job.lease()).wait(wait);
        let Some(all) = self.taken(&ask, patience, locks.acquire()).await else {
            return false;
        };
        let first = written(&ask, &keys[0], &all);
        let grants = self.log.granted(&first, &keys[1..]);
        self.log.answer(&ask, Outcome::Granted, "");
        self.hold_together(all, &grants).await;
        true
    }

    /// Stays inside for a while, shorter than its first belief.
    async fn hold_together(&mut self, all: Guard, grants: &[Granted]) {
        // The server looks at the first key.
        self.write(&all, &grants[0]).await;
        let stay = match self.job.lingers {
            true => self.dice.roll(self.job.lease),
            false => self.dice.roll(10),
        };
        let until = grants.iter().map(|grant| grant.until).min().unwrap_or(0);
        let end = until.min(now() + stay * 1_000_000);
        sleep(Duration::from_nanos(end.saturating_sub(now()))).await;
        for grant in grants {
            self.log.left(grant);
        }
        // Half of them do not wait for the result.
        if self.dice.roll(2) == 0 {
            drop(all);
        } else if all.release().await.is_ok() {
            for grant in grants {
                self.log.released(grant);
            }
        }
    }
}
