//! A task that speaks in commands: it asks, is inside, writes, renews, leaves or passes on, again and again.

use std::thread;
use std::time::Duration;

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Dice, command, int, is_nil};

use super::job::{Job, LIMIT};
use super::stop::Stop;
use super::wire::{Trouble, Wire};
use crate::history::{Answer, Ask, Granted, Log, Mode, Outcome, Record, Way, Write, now};

/// How long a reply may take that does not wait.
pub(crate) const REPLY: Duration = Duration::from_millis(1_500);
/// For how long what became of a request is asked for: by then its lease is over.
const LEAVING: u64 = 20_000;
const MILLI: u64 = 1_000_000;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) ask: String,
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) weight: u64,
    pub(crate) limit: u64,
    /// Milliseconds; none: it does not wait.
    pub(crate) wait: Option<u64>,
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Reply {
    /// By this token, believed in until then.
    Granted(u64, u64),
    Denied,
    Refused(String),
    Unknown,
}

/// One way to wait.
pub(crate) trait Waiting {
    const WAY: Way;

    fn acquire(&mut self, task: &mut Task<'_>, request: &Request) -> Reply;
}

pub(crate) struct Task<'a> {
    pub(crate) job: &'a Job,
    pub(crate) log: &'a Log,
    pub(crate) wire: Wire,
    stop: &'a Stop,
    dice: Dice,
    name: String,
    requests: u64,
}

/// Runs all tasks of the process until each was served in the last round.
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
        let wait = match dice.roll(8) {
            0 => None,
            1 => Some(1 + dice.roll(50)),
            _ => Some(2_000 + dice.roll(3_000)),
        };
        let limit = if shared { LIMIT } else { 0 };
        let (ask, owner) = self.fresh();
        Request {
            ask,
            owner,
            key,
            mode,
            weight,
            limit,
            wait,
        }
    }

    /// No name is used twice, by no incarnation of this client.
    fn fresh(&mut self) -> (String, String) {
        self.requests += 1;
        let name = format!("{}#{}", self.name, self.requests);
        (name.clone(), name)
    }

    /// Asks once. Whether it was served.
    fn round(&mut self, waiting: &mut impl Waiting, request: &Request) -> bool {
        let way = match request.wait {
            None => Way::Now,
            Some(_) => way_of(waiting),
        };
        self.asks(request, way);
        match waiting.acquire(self, request) {
            Reply::Granted(token, until) => {
                let grant = self.granted(request, token, until);
                self.answer(request, Outcome::Granted, "");
                self.work(request, &grant);
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
                self.pause(50);
            }
            Reply::Unknown => {
                self.answer(request, Outcome::Unknown, "");
                self.leave(&request.key, &request.owner);
            }
        }
        false
    }

    fn asks(&self, request: &Request, way: Way) {
        self.log.write(&Record::Ask(Ask {
            ask: request.ask.clone(),
            owner: request.owner.clone(),
            key: request.key.clone(),
            way,
            at: now(),
        }));
    }

    fn answer(&self, request: &Request, outcome: Outcome, text: &str) {
        self.log.write(&Record::Answer(Answer {
            ask: request.ask.clone(),
            outcome,
            text: text.to_owned(),
            at: now(),
        }));
    }

    fn granted(&self, request: &Request, token: u64, until: u64) -> Granted {
        let grant = Granted {
            ask: request.ask.clone(),
            owner: request.owner.clone(),
            key: request.key.clone(),
            mode: request.mode,
            weight: request.weight,
            limit: request.limit,
            token,
            from: now(),
            until,
            together: Vec::new(),
        };
        self.log.write(&Record::Granted(grant.clone()));
        grant
    }

    /// Is inside for a while, and ends that one way or another.
    fn work(&mut self, request: &Request, grant: &Granted) {
        let lease = self.job.lease;
        let (stay, renews) = match self.dice.roll(60) {
            0..48 => (self.dice.roll(10), true),
            48..57 => (self.dice.roll(lease / 8), true),
            57 => (lease + self.dice.roll(lease / 2), true),
            // It does not look at its clock, and writes when its lease is over.
            58 => (lease + self.dice.roll(lease / 2), false),
            _ => (lease / 2, true),
        };
        self.write(grant);
        let valid = self.stay(grant, now() + stay * MILLI, renews);
        self.log.write(&Record::Left {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            token: grant.token,
            at: now(),
        });
        if !renews {
            self.write(grant);
        }
        match self.dice.roll(40) {
            0..2 if valid => self.pass(request, grant),
            2..4 => self.leave(&grant.key, &grant.owner),
            // It forgets. The lease ends by itself.
            4 => {}
            _ => self.release(grant),
        }
    }

    /// Whether the belief has lasted until the end.
    fn stay(&mut self, grant: &Granted, end: u64, renews: bool) -> bool {
        let mut until = grant.until;
        let third = self.job.lease * MILLI / 3;
        let mut next = grant.from + third;
        while now() < end {
            let wake = if renews { next.min(until) } else { end }.min(end);
            thread::sleep(Duration::from_nanos(wake.saturating_sub(now())));
            if renews && now() >= until {
                return false;
            }
            if !renews || now() < next {
                continue;
            }
            let sent = now();
            next = sent + third;
            let renewal = command!(
                "LOCK.RENEW",
                &grant.key,
                &grant.owner,
                self.job.lease,
                "TOKEN",
                grant.token
            );
            match self
                .wire
                .call(&renewal, Duration::from_nanos(until.saturating_sub(sent)))
            {
                Ok(Value::Int(_)) if now() < until => {
                    until = until.max(sent + self.job.certain());
                    self.log.write(&Record::Kept {
                        owner: grant.owner.clone(),
                        key: grant.key.clone(),
                        token: grant.token,
                        until,
                    });
                    self.write(grant);
                }
                Ok(_) => return false,
                Err(Trouble::Refused(_)) => next = sent + third / 10,
                Err(Trouble::Lost) => {}
            }
        }
        now() < until
    }

    /// Writes where the lock keeps others out.
    fn write(&mut self, grant: &Granted) {
        if self.dice.roll(3) == 0 {
            return;
        }
        let mode = match grant.mode {
            Mode::Read => "read",
            Mode::Write => "write",
        };
        let line = format!("{mode}:{}:{}", grant.token, grant.owner);
        let list = Job::list(&grant.key);
        let write = if self.job.guards {
            command!(
                "LOCK.GUARD",
                &grant.key,
                &grant.owner,
                grant.token,
                "RPUSH",
                list,
                line
            )
        } else {
            command!("RPUSH", list, line)
        };
        let sent = now();
        let done = match self.wire.call(&write, REPLY) {
            Ok(_) => Some(true),
            Err(Trouble::Refused(_)) => Some(false),
            Err(Trouble::Lost) => None,
        };
        self.log.write(&Record::Write(Write {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            mode: grant.mode,
            token: grant.token,
            sent,
            at: now(),
            done,
        }));
    }

    fn release(&mut self, grant: &Granted) {
        let release = command!(
            "LOCK.RELEASE",
            &grant.key,
            &grant.owner,
            "ALL",
            "TOKEN",
            grant.token
        );
        for _ in 0..20 {
            match self.wire.call(&release, REPLY) {
                Ok(left) => {
                    if !is_nil(&left) && int(&left) == 0 {
                        self.log.write(&Record::Released {
                            owner: grant.owner.clone(),
                            key: grant.key.clone(),
                            token: grant.token,
                            at: now(),
                        });
                    }
                    return;
                }
                Err(Trouble::Refused(_)) => self.pause(100),
                Err(Trouble::Lost) => return self.leave(&grant.key, &grant.owner),
            }
        }
    }

    /// Nobody believes in the old hold from here on.
    fn pass(&mut self, request: &Request, grant: &Granted) {
        let (ask, owner) = self.fresh();
        let next = Request {
            ask,
            owner,
            wait: None,
            ..request.clone()
        };
        self.asks(&next, Way::Pass);
        let sent = now();
        let pass = command!(
            "LOCK.PASS",
            &grant.key,
            &grant.owner,
            &next.owner,
            self.job.lease,
            "TOKEN",
            grant.token
        );
        match self.wire.call(&pass, REPLY) {
            Ok(Value::Int(token)) => {
                let taken = self.granted(&next, token.cast_unsigned(), sent + self.job.certain());
                self.answer(&next, Outcome::Granted, "");
                self.write(&taken);
                let stay = self.dice.roll(20);
                self.stay(&taken, now() + stay * MILLI, true);
                self.log.write(&Record::Left {
                    owner: taken.owner.clone(),
                    key: taken.key.clone(),
                    token: taken.token,
                    at: now(),
                });
                self.release(&taken);
            }
            Ok(_) => self.answer(&next, Outcome::Denied, ""),
            Err(Trouble::Refused(text)) => {
                self.answer(&next, Outcome::Refused, &text);
                self.release(grant);
            }
            Err(Trouble::Lost) => {
                self.answer(&next, Outcome::Unknown, "");
                self.leave(&grant.key, &grant.owner);
                self.leave(&next.key, &next.owner);
            }
        }
    }

    /// Says that nobody of that name wants anything any more, until that was heard.
    pub(crate) fn leave(&mut self, key: &str, owner: &str) {
        let leave = command!("LOCK.LEAVE", key, owner, "FOR", LEAVING);
        let end = now() + LEAVING * MILLI;
        while now() < end {
            if self.wire.call(&leave, REPLY).is_ok() {
                return;
            }
            self.pause(50);
        }
    }

    pub(crate) fn pause(&mut self, ms: u64) {
        thread::sleep(Duration::from_millis(1 + self.dice.roll(ms)));
    }

    /// What is sent for a request, without how it waits.
    pub(crate) fn acquire_command(&self, request: &Request) -> Cmd {
        let name = match request.mode {
            Mode::Read => "LOCK.RLOCK",
            Mode::Write => "LOCK.ACQUIRE",
        };
        let mut command = command!(
            name,
            &request.key,
            &request.owner,
            self.job.lease,
            "HOLDS",
            request.weight
        );
        if request.limit > 0 {
            command.arg("LIMIT").arg(request.limit);
        }
        command
    }
}

fn way_of<W: Waiting>(_: &W) -> Way {
    W::WAY
}
