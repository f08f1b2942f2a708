//! What most people use: `SET key owner NX PX lease` and a compare-and-delete script. On several servers this is Redlock as
//! documented: a majority, within the lease, less a drift.

use std::thread;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{Dice, command};

use super::job::{Job, Place};
use super::stop::Stop;
use super::wire::Wire;
use crate::history::{Answer, Ask, Granted, Log, Mode, Outcome, Record, Way, now};

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const REPLY: Duration = Duration::from_millis(200);

pub(crate) fn run(job: &Job, log: &Log, stop: &Stop) {
    thread::scope(|scope| {
        for number in 0..job.tasks {
            scope.spawn(move || {
                let ports = match &job.place {
                    Place::Quorum(ports) => ports.iter().map(|port| Place::One(*port)).collect(),
                    other => vec![other.clone()],
                };
                let mut task = Task {
                    job,
                    log,
                    wires: ports.into_iter().map(Wire::new).collect(),
                    dice: Dice::new(job.seed.wrapping_mul(41).wrapping_add(number)),
                    name: format!("{}/{number}", job.name),
                    requests: 0,
                };
                while !(task.round() && stop.is_last_round()) {}
            });
        }
    });
}

struct Task<'a> {
    job: &'a Job,
    log: &'a Log,
    wires: Vec<Wire>,
    dice: Dice,
    name: String,
    requests: u64,
}

impl Task<'_> {
    /// Makes one request. Returns whether it was answered.
    fn round(&mut self) -> bool {
        let key = format!("plain:{}", self.dice.pick(&self.job.locks));
        self.requests += 1;
        let owner = format!("{}#{}", self.name, self.requests);
        let sent = now();
        self.log.write(&Record::Ask(Ask {
            ask: owner.clone(),
            owner: owner.clone(),
            key: key.clone(),
            way: Way::Now,
            at: sent,
        }));
        let set = command!("SET", &key, &owner, "NX", "PX", self.job.lease);
        let replies = self.wires.iter_mut().map(|wire| wire.call(&set, REPLY));
        let granted = replies
            .filter(|reply| matches!(reply, Ok(Value::Okay)))
            .count();
        let until = sent + self.job.certain();
        let is_held = granted > self.wires.len() / 2 && now() < until;
        if is_held {
            self.work(&key, &owner, until);
        }
        self.log.write(&Record::Answer(Answer {
            ask: owner.clone(),
            outcome: if is_held {
                Outcome::Granted
            } else {
                Outcome::Denied
            },
            text: String::new(),
            at: now(),
        }));
        let release = command!("EVAL", RELEASE, 1, &key, &owner);
        for wire in &mut self.wires {
            let _ = wire.call(&release, REPLY);
        }
        thread::sleep(Duration::from_millis(5 + self.dice.roll(20)));
        is_held
    }

    fn work(&mut self, key: &str, owner: &str, until: u64) {
        let from = now();
        self.log.write(&Record::Granted(Granted {
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
        }));
        let stay = match self.dice.roll(4) {
            0 => self.job.lease,
            _ => self.dice.roll(self.job.lease / 4),
        };
        let end = (from + stay * 1_000_000).min(until);
        thread::sleep(Duration::from_nanos(end.saturating_sub(now())));
        self.log.write(&Record::Left {
            owner: owner.to_owned(),
            key: key.to_owned(),
            token: from,
            at: now(),
        });
    }
}
