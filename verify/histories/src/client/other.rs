//! Tasks that use a lock of others, which has neither tokens nor a queue.

use std::thread;
use std::time::Duration;

use mortise_harness::Dice;

use super::job::Job;
use super::stop::Stop;
use crate::history::{Granted, Log, Mode, Outcome, Way, now};

/// A lock over all servers of a job.
pub(crate) trait Other {
    type Held;

    fn connect(job: &Job) -> Self;

    /// Tries to take the lock. `owner` is a new name.
    fn take(&mut self, key: &str, owner: &str) -> Option<Taken<Self::Held>>;

    fn release(&mut self, held: Self::Held);
}

/// A lock that was taken.
pub(crate) struct Taken<Held> {
    pub(crate) held: Held,
    /// Until when it counts as held, in nanoseconds by the clock of histories.
    pub(crate) until: u64,
}

pub(crate) fn run<O: Other>(job: &Job, log: &Log, stop: &Stop) {
    thread::scope(|scope| {
        for number in 0..job.tasks {
            scope.spawn(move || {
                let mut task = Task {
                    job,
                    log,
                    other: O::connect(job),
                    dice: Dice::new(job.seed.wrapping_mul(41).wrapping_add(number)),
                    name: format!("{}/{number}", job.name),
                    requests: 0,
                };
                while !(task.round() && stop.is_last_round()) {}
            });
        }
    });
}

struct Task<'a, O> {
    job: &'a Job,
    log: &'a Log,
    other: O,
    dice: Dice,
    name: String,
    requests: u64,
}

impl<O: Other> Task<'_, O> {
    /// Makes one request. Returns whether it was granted.
    fn round(&mut self) -> bool {
        let key = format!("other:{}", self.dice.pick(&self.job.locks));
        self.requests += 1;
        let owner = format!("{}#{}", self.name, self.requests);
        self.log.asks(&owner, &owner, &key, Way::Now);
        let taken = self.other.take(&key, &owner);
        let is_granted = taken.is_some();
        if let Some(taken) = taken {
            self.work(&key, &owner, taken.until);
            self.log.answer(&owner, Outcome::Granted, "");
            self.other.release(taken.held);
        } else {
            self.log.answer(&owner, Outcome::Denied, "");
        }
        thread::sleep(Duration::from_millis(5 + self.dice.roll(20)));
        is_granted
    }

    fn work(&mut self, key: &str, owner: &str, until: u64) {
        let from = now();
        let grant = Granted {
            ask: owner.to_owned(),
            owner: owner.to_owned(),
            key: key.to_owned(),
            mode: Mode::Write,
            weight: 1,
            limit: 0,
            // There are none.
            token: from,
            from,
            until,
            together: Vec::new(),
        };
        self.log.granted(&grant, &[]);
        let stay = match self.dice.roll(4) {
            0 => self.job.lease,
            _ => self.dice.roll(self.job.lease / 4),
        };
        let end = (from + stay * 1_000_000).min(until);
        thread::sleep(Duration::from_nanos(end.saturating_sub(now())));
        self.log.left(&grant);
    }
}
