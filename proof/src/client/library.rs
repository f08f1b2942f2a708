//! Tasks that use the Rust client as its users do.

use std::sync::Arc;
use std::time::Duration;

use mortise_client::server::redis::sentinel::{SentinelClient, SentinelServerType};
use mortise_client::{Client, Error, Guard, Locks, Quorum, Server};
use mortise_harness::Dice;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::job::{Job, PRIMARY, Place};
use super::stop::Stop;
use crate::history::{Answer, Ask, Granted, Log, Mode, Outcome, Record, Way, Write, now};

const ANSWER: Duration = Duration::from_millis(1_500);
/// How often a task that is inside looks at its clock.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) fn run(job: &Job, log: &Log, stop: &Stop) -> Result<(), String> {
    let runtime = Runtime::new().map_err(|error| error.to_string())?;
    let side = Side::of(job, &runtime).map_err(|error| error.to_string())?;
    let side = Arc::new(side);
    std::thread::scope(|scope| {
        for number in 0..job.tasks {
            let (runtime, side) = (&runtime, side.clone());
            scope.spawn(move || {
                let task = Task {
                    job,
                    log,
                    stop,
                    side,
                    dice: Dice::new(job.seed.wrapping_mul(37).wrapping_add(number)),
                    name: format!("{}/{number}", job.name),
                    requests: 0,
                };
                runtime.block_on(task.run());
            });
        }
    });
    runtime.block_on(side.close());
    Ok(())
}

/// A client of one server, or of several.
enum Side {
    One(Client),
    Several(Quorum),
}

impl Side {
    fn of(job: &Job, runtime: &Runtime) -> Result<Side, Error> {
        let _inside = runtime.enter();
        let urls = |ports: &[u16]| -> Vec<String> {
            let url = |port| format!("redis://127.0.0.1:{port}/");
            ports.iter().map(url).collect()
        };
        let one = |builder: mortise_client::Builder| {
            let named = builder.name(job.name.clone());
            named.response_timeout(ANSWER).build().map(Side::One)
        };
        match &job.place {
            Place::One(port) => one(Client::builder(urls(&[*port]).remove(0))?),
            Place::Cluster(ports) => one(Client::builder(Server::cluster(urls(ports))?)?),
            Place::Sentinels(ports) => {
                let role = SentinelServerType::Master;
                let client = SentinelClient::build(urls(ports), PRIMARY.to_owned(), None, role);
                let client = client.map_err(|error| Error::Invalid(error.to_string()))?;
                one(Client::builder(client)?)
            }
            Place::Quorum(ports) => {
                let builder = Quorum::builder(urls(ports))?.name(job.name.clone());
                builder
                    .node_timeout(job.lease() / 10)
                    .build()
                    .map(Side::Several)
            }
        }
    }

    fn locks(&self) -> &dyn Locks {
        match self {
            Side::One(client) => client,
            Side::Several(quorum) => quorum,
        }
    }

    async fn close(&self) {
        match self {
            Side::One(client) => client.close().await,
            Side::Several(quorum) => quorum.close().await,
        }
    }
}

struct Task<'a> {
    job: &'a Job,
    log: &'a Log,
    stop: &'a Stop,
    side: Arc<Side>,
    dice: Dice,
    name: String,
    requests: u64,
}

impl Task<'_> {
    async fn run(mut self) {
        loop {
            let last = self.stop.is_last_round();
            let served = self.round(last).await;
            if last && served {
                return;
            }
        }
    }

    /// Asks once. Whether it was served.
    async fn round(&mut self, last: bool) -> bool {
        let key = self.dice.pick(&self.job.locks).clone();
        let mode = if self.dice.roll(10) < 6 {
            Mode::Write
        } else {
            Mode::Read
        };
        self.requests += 1;
        let ask = format!("{}#{}", self.name, self.requests);
        let wait = if last {
            60_000
        } else {
            1 + self.dice.roll(5_000)
        };
        let mut lock = self.side.locks().lock_of(key.as_bytes());
        lock = lock
            .lease(self.job.lease())
            .wait(Duration::from_millis(wait));
        if self.dice.roll(40) == 0 && mode == Mode::Write && matches!(*self.side, Side::One(_)) {
            lock = lock.at_least(self.job.lease() / 10);
        }
        // Some lose patience, and drop the future.
        let patience = match self.dice.roll(10) {
            0 if !last => Duration::from_millis(self.dice.roll(300)),
            _ => Duration::from_secs(120),
        };
        self.log.write(&Record::Ask(Ask {
            ask: ask.clone(),
            owner: String::new(),
            key: key.clone(),
            way: Way::Library,
            at: now(),
        }));
        let taken = async {
            match mode {
                Mode::Read => lock.read().await,
                Mode::Write => lock.acquire().await,
            }
        };
        match timeout(patience, taken).await {
            Ok(Ok(guard)) => {
                let grant = granted(&ask, &key, mode, &guard);
                self.log.write(&Record::Granted(grant.clone()));
                self.answer(&ask, Outcome::Granted, "");
                self.work(guard, &grant).await;
                return true;
            }
            Ok(Err(error)) => {
                let outcome = if error.is_busy() {
                    Outcome::Denied
                } else {
                    Outcome::Refused
                };
                self.answer(&ask, outcome, &error.to_string());
                self.pause(50).await;
            }
            Err(_) => self.answer(&ask, Outcome::Unknown, "dropped"),
        }
        false
    }

    fn answer(&self, ask: &str, outcome: Outcome, text: &str) {
        self.log.write(&Record::Answer(Answer {
            ask: ask.to_owned(),
            outcome,
            text: text.to_owned(),
            at: now(),
        }));
    }

    /// Is inside for a while; the client renews meanwhile.
    async fn work(&mut self, guard: Guard, grant: &Granted) {
        let lease = self.job.lease;
        let stay = match self.dice.roll(60) {
            0..48 => self.dice.roll(10),
            48..58 => self.dice.roll(lease / 8),
            _ => lease + self.dice.roll(lease / 2),
        };
        let end = now() + stay * 1_000_000;
        self.write(&guard, grant).await;
        let mut until = grant.until;
        while now() < end && guard.is_valid() {
            sleep(LOOK.min(Duration::from_nanos(end.saturating_sub(now())))).await;
            let believed = until_of(&guard);
            if guard.is_valid() && believed > until {
                until = believed;
                self.log.write(&Record::Kept {
                    owner: grant.owner.clone(),
                    key: grant.key.clone(),
                    token: grant.token,
                    until,
                });
            }
        }
        self.write(&guard, grant).await;
        self.log.write(&Record::Left {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            token: grant.token,
            at: now(),
        });
        // Half of them forget to ask how it went.
        if self.dice.roll(2) == 0 {
            drop(guard);
        } else if guard.release().await.is_ok() {
            self.log.write(&Record::Released {
                owner: grant.owner.clone(),
                key: grant.key.clone(),
                token: grant.token,
                at: now(),
            });
        }
    }

    async fn write(&mut self, guard: &Guard, grant: &Granted) {
        let Side::One(client) = &*self.side else {
            return;
        };
        if self.dice.roll(2) == 0 {
            return;
        }
        let mode = match grant.mode {
            Mode::Read => "read",
            Mode::Write => "write",
        };
        let line = format!("{mode}:{}:{}", grant.token, grant.owner);
        let sent = now();
        let list = Job::list(&grant.key);
        let reply = client.guarded(guard).run(["RPUSH", &list, &line]).await;
        let done = match reply {
            Ok(_) => Some(true),
            Err(Error::Connection { .. }) => None,
            Err(_) => Some(false),
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

    async fn pause(&mut self, ms: u64) {
        sleep(Duration::from_millis(1 + self.dice.roll(ms))).await;
    }
}

fn granted(ask: &str, key: &str, mode: Mode, guard: &Guard) -> Granted {
    let until = until_of(guard);
    Granted {
        ask: ask.to_owned(),
        owner: String::from_utf8_lossy(guard.owner()).into_owned(),
        key: key.to_owned(),
        mode,
        weight: 1,
        limit: 0,
        token: guard.token().get(),
        from: now(),
        until,
        together: Vec::new(),
    }
}

/// Until when the client believes, not later than it says: the clock is read first.
fn until_of(guard: &Guard) -> u64 {
    let now = now();
    now + u64::try_from(guard.remaining().as_nanos()).unwrap_or(0)
}
