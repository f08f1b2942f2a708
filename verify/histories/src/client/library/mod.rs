//! Tasks that use the Rust client as its users do.

mod several;

use std::sync::Arc;
use std::time::Duration;

use mortise_client::{Builder, Client, Error, Guard, Lock, Quorum, redis};
use mortise_harness::Dice;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::job::{Job, LIMIT, PRIMARY, Place};
use super::stop::Stop;
use crate::history::{Granted, Log, Mode, Outcome, Way, now};

const ANSWER: Duration = Duration::from_millis(1_500);
/// How long closing waits for what is to be released.
const CLOSING: Duration = Duration::from_secs(60);
/// How often a task inside checks its clock.
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
        let mut urls = job.place.urls();
        let one = |builder: Builder<Client>| {
            let replicas = job.confirming.map_or(0, |how| how.replicas);
            let replicas = u32::try_from(replicas).expect("a few");
            let named = builder.name(job.name.clone()).replicas(replicas);
            named.response_timeout(ANSWER).build().map(Side::One)
        };
        match &job.place {
            Place::One(_) => one(Client::builder(urls.remove(0))?),
            Place::Cluster(_) => one(Client::cluster(urls)?),
            Place::Sentinels(_) => one(Client::sentinel(urls, PRIMARY)?),
            Place::Quorum(_) => {
                let builder = Quorum::builder(urls)?;
                builder
                    .name(job.name.clone())
                    .response_timeout(job.lease() / 10)
                    .build()
                    .map(Side::Several)
            }
        }
    }

    fn lock(&self, key: &str) -> Lock {
        match self {
            Side::One(client) => client.lock(key),
            Side::Several(quorum) => quorum.lock(key),
        }
    }

    async fn close(&self) {
        match self {
            Side::One(client) => client.close(CLOSING).await,
            Side::Several(quorum) => quorum.close(CLOSING).await,
        };
    }
}

/// One acquisition.
struct Request {
    key: String,
    mode: Mode,
    /// Permits of a pool; 0 for a lock.
    permits: u64,
    /// Whether it stays taken for a while after its guard.
    is_kept: bool,
    wait: Duration,
    /// When the future is dropped.
    patience: Duration,
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

    /// The next request.
    fn draw(&mut self, last: bool) -> Request {
        let is_one = matches!(*self.side, Side::One(_));
        let pools = &self.job.pools;
        let of_pool = is_one && !pools.is_empty() && self.dice.roll(4) == 0;
        let keys = if of_pool { pools } else { &self.job.locks };
        let writes = !of_pool && self.dice.roll(10) < 6;
        let (patience, wait) = (self.draw_patience(last), self.draw_wait(last));
        Request {
            key: self.dice.pick(keys).clone(),
            mode: if writes { Mode::Write } else { Mode::Read },
            permits: if of_pool { 1 + self.dice.roll(3) } else { 0 },
            is_kept: writes && is_one && self.dice.roll(40) == 0,
            wait,
            patience,
        }
    }

    fn draw_patience(&mut self, last: bool) -> Duration {
        match self.dice.roll(10) {
            // Some drop the future.
            0 if !last => Duration::from_millis(self.dice.roll(300)),
            _ => Duration::from_secs(120),
        }
    }

    fn draw_wait(&mut self, last: bool) -> Duration {
        Duration::from_millis(match last {
            true => 60_000,
            false => 1 + self.dice.roll(5_000),
        })
    }

    /// Makes one request. Returns whether it was answered.
    async fn round(&mut self, last: bool) -> bool {
        if let Some(client) = self.draws_several() {
            return self.round_of_several(&client, last).await;
        }
        let request = self.draw(last);
        let ask = self.asks(&request.key, "", Way::Library);
        let lock = self.side.lock(&request.key);
        let lock = lock.lease(self.job.lease()).wait(request.wait);
        let taken = async {
            match (request.permits, request.mode) {
                (0, Mode::Read) => lock.clone().read().await,
                (0, Mode::Write) => lock.clone().acquire().await,
                (permits, _) => {
                    let pool = lock.clone().permits(permits as u32, LIMIT as u32);
                    pool.acquire().await
                }
            }
        };
        let Some(guard) = self.taken(&ask, request.patience, taken).await else {
            return false;
        };
        let grant = self.granted(&ask, &request, &guard);
        self.log.answer(&ask, Outcome::Granted, "");
        self.work(&guard, &grant).await;
        if matches!(*self.side, Side::One(_)) && self.dice.roll(20) == 0 {
            self.pass(lock, guard, &request).await;
        } else if request.is_kept {
            // Whoever waits waits a little longer.
            if guard.keep_for(self.job.lease() / 10).await.is_ok() {
                self.log.released(&grant);
            }
        } else {
            self.end(guard, &grant).await;
        }
        true
    }

    /// What a request has taken. If it has failed, or is dropped after so long, that is its answer.
    async fn taken<T>(
        &mut self,
        ask: &str,
        patience: Duration,
        taking: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        match timeout(patience, taking).await {
            Ok(Ok(taken)) => return Some(taken),
            Ok(Err(error)) => {
                self.fails(ask, &error);
                self.pause(50).await;
            }
            Err(_) => self.log.answer(ask, Outcome::Unknown, "dropped"),
        }
        None
    }

    /// Passes the lock on, and takes it over under the new name.
    async fn pass(&mut self, lock: Lock, guard: Guard, request: &Request) {
        let name = format!("{}#{}'", self.name, self.requests);
        let ask = self.asks(&request.key, &name, Way::Pass);
        let taken = async {
            let token = guard.pass_to(&name, self.job.lease()).await?;
            lock.take_over(&name, token).await
        };
        match taken.await {
            Ok(next) => {
                let grant = self.granted(&ask, request, &next);
                self.log.answer(&ask, Outcome::Granted, "");
                self.work(&next, &grant).await;
                self.end(next, &grant).await;
            }
            Err(error) => self.fails(&ask, &error),
        }
    }

    fn asks(&mut self, key: &str, owner: &str, way: Way) -> String {
        self.requests += 1;
        let ask = format!("{}#{}", self.name, self.requests);
        self.log.asks(&ask, owner, key, way);
        ask
    }

    fn fails(&self, ask: &str, error: &Error) {
        let outcome = match error {
            Error::Busy { .. } => Outcome::Denied,
            _ => Outcome::Refused,
        };
        self.log.answer(ask, outcome, &error.to_string());
    }

    fn granted(&self, ask: &str, request: &Request, guard: &Guard) -> Granted {
        let grant = Granted {
            mode: request.mode,
            weight: request.permits.max(1),
            limit: if request.permits > 0 { LIMIT } else { 0 },
            ..written(ask, &request.key, guard)
        };
        self.log.granted(&grant, &[]).remove(0)
    }

    /// Stays inside for a while, and then stops believing; the client renews meanwhile.
    async fn work(&mut self, guard: &Guard, grant: &Granted) {
        let lease = self.job.lease;
        let stay = match self.dice.roll(60) {
            0..48 if self.job.lingers => self.dice.roll(lease),
            0..48 => self.dice.roll(10),
            48..58 => self.dice.roll(lease / 8),
            _ => lease + self.dice.roll(lease / 2),
        };
        let end = now() + stay * 1_000_000;
        self.write(guard, grant).await;
        let mut until = grant.until;
        while now() < end && guard.is_valid() {
            let believed = until_of(guard);
            if guard.is_valid() && believed > until {
                until = believed;
                self.log.kept(grant, until);
            }
            sleep(LOOK.min(Duration::from_nanos(end.saturating_sub(now())))).await;
        }
        self.write(guard, grant).await;
        self.log.left(grant);
    }

    /// Half of them do not wait for the result.
    async fn end(&mut self, guard: Guard, grant: &Granted) {
        if self.dice.roll(2) == 0 {
            drop(guard);
        } else if guard.release().await.is_ok() {
            self.log.released(grant);
        }
    }

    async fn write(&mut self, guard: &Guard, grant: &Granted) {
        let is_one = matches!(&*self.side, Side::One(_));
        if !is_one || self.dice.roll(2) == 0 {
            return;
        }
        let line = grant.line();
        let sent = now();
        let list = Job::list(&grant.key);
        let mut push = redis::cmd("RPUSH");
        let reply = guard.guarded(push.arg(&list).arg(&line)).await;
        let done = match reply {
            Ok(_) => Some(true),
            Err(Error::Connection { .. }) => None,
            Err(_) => Some(false),
        };
        self.log.wrote(grant, sent, done);
    }

    async fn pause(&mut self, ms: u64) {
        sleep(Duration::from_millis(1 + self.dice.roll(ms))).await;
    }
}

/// The grant of a lock to write.
fn written(ask: &str, key: &str, guard: &Guard) -> Granted {
    let until = until_of(guard);
    Granted {
        ask: ask.to_owned(),
        owner: String::from_utf8_lossy(guard.owner()).into_owned(),
        key: key.to_owned(),
        mode: Mode::Write,
        weight: 1,
        limit: 0,
        token: guard.token().get(),
        from: now(),
        until,
        together: Vec::new(),
    }
}

/// Until when the client believes. Never later than the truth, because the clock is read first.
fn until_of(guard: &Guard) -> u64 {
    let now = now();
    now + u64::try_from(guard.deadline().remaining().as_nanos()).unwrap_or(0)
}
