//! The requests that a task repeats, and their end.

use std::thread;

use mortise_harness::Dice;

use super::confirm::Confirmer;
use super::job::{Job, LIMIT};
use super::request::{Reply, Request};
use super::stop::Stop;
use super::task::Task;
use super::wire::Wire;
use crate::history::{Log, Mode, Outcome, Way};

/// One way to wait.
pub(crate) trait Waiting {
    const WAY: Way;

    fn acquire(&mut self, task: &mut Task<'_>, request: &Request) -> Reply;
}

/// Runs all tasks of the process until each had an answer in the last round.
pub(crate) fn run<W: Waiting>(
    job: &Job,
    log: &Log,
    stop: &Stop,
    way: impl Fn(&Job, &str) -> W + Sync,
) {
    thread::scope(|scope| {
        for number in 0..job.tasks {
            let way = &way;
            scope.spawn(move || {
                let name = format!("{}/{number}", job.name);
                let mut waiting = way(job, &name);
                let task = Task {
                    job,
                    log,
                    wire: Wire::new(job.place.clone()),
                    stop,
                    dice: Dice::new(job.seed.wrapping_mul(31).wrapping_add(number)),
                    name,
                    requests: 0,
                    confirmer: job.confirming.map(|how| Confirmer::new(job, how)),
                };
                task.run(&mut waiting);
            });
        }
    });
}

impl Task<'_> {
    fn run(mut self, waiting: &mut impl Waiting) {
        loop {
            let last = self.stop.is_last_round();
            let mut request = self.draw();
            if last {
                request.wait = Some(60_000);
            }
            let served = self.round(waiting, &request);
            if last && served {
                return;
            }
        }
    }

    fn draw(&mut self) -> Request {
        if !self.job.bundle.is_empty() && self.dice.roll(8) == 0 {
            return self.draw_bundle();
        }
        let dice = &mut self.dice;
        let of_pool = !self.job.pools.is_empty() && dice.roll(4) == 0;
        let keys = if of_pool {
            &self.job.pools
        } else {
            &self.job.locks
        };
        let key = dice.pick(keys).clone();
        // A writer now and then drains the pool.
        let writes = dice.roll(10) < if of_pool { 1 } else { 6 };
        let mode = if writes { Mode::Write } else { Mode::Read };
        let shared = of_pool && mode == Mode::Read;
        let weight = if shared { 1 + dice.roll(3) } else { 1 };
        let limit = if shared { LIMIT } else { 0 };
        let wait = self.some_wait();
        let (ask, owner) = self.fresh();
        Request {
            ask,
            owner,
            key,
            mode,
            weight,
            limit,
            more: Vec::new(),
            wait,
        }
    }

    fn draw_bundle(&mut self) -> Request {
        let mut keys = self.job.bundle.clone();
        if self.dice.roll(2) == 0 {
            keys.reverse();
        }
        let (ask, owner) = self.fresh();
        Request {
            ask,
            owner,
            key: keys.remove(0),
            mode: Mode::Write,
            weight: 1,
            limit: 0,
            more: keys,
            wait: self.some_wait(),
        }
    }

    fn some_wait(&mut self) -> Option<u64> {
        match self.dice.roll(8) {
            0 => None,
            1 => Some(1 + self.dice.roll(50)),
            _ => Some(2_000 + self.dice.roll(3_000)),
        }
    }

    /// Makes one request. Returns whether it was answered.
    fn round(&mut self, waiting: &mut impl Waiting, request: &Request) -> bool {
        let way = match request.wait {
            None => Way::Now,
            Some(_) => way_of(waiting),
        };
        self.asks(request, way);
        let reply = match waiting.acquire(self, request) {
            Reply::Granted(token, until) => match self.relies(request, token, until) {
                Some(until) => Reply::Granted(token, until),
                None => Reply::Unknown,
            },
            other => other,
        };
        match reply {
            Reply::Granted(token, until) => {
                let grants = self.granted(request, token, until);
                self.answer(request, Outcome::Granted, "");
                match &grants[..] {
                    [grant] => self.work(request, grant),
                    grants => self.work_together(grants),
                }
                return true;
            }
            Reply::Denied => {
                self.answer(request, Outcome::Denied, "");
                if request.wait.is_none() {
                    self.pause(20);
                }
            }
            Reply::Refused(text) => {
                self.answer(request, Outcome::Refused, &text);
                self.pause(200);
            }
            Reply::Unknown => {
                self.answer(request, Outcome::Unknown, "");
                for key in request.keys() {
                    self.leave(key, &request.owner);
                }
            }
        }
        false
    }
}

fn way_of<W: Waiting>(_: &W) -> Way {
    W::WAY
}
