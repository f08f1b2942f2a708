//! What the tasks of a process do with its client: a few rounds of acquiring, changing and releasing locks, or not releasing them.

mod several;
mod sharing;

use std::time::Duration;

use crate::client::Client;
use crate::dice::Dice;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::lock::Lock;
use crate::name::{Mode, Owner};
use crate::parts::{Micros, Permits, ms};
use crate::plan::{Kind, Plan};
use crate::quorum::client::Quorum;
use crate::referee::{self, Ticket};
use crate::simulated::{OfProcess, connect};
use crate::time::BootInstant;
use crate::world::{self, this_process, with};

/// Longer than any lease.
const CLOSING: Duration = Duration::from_secs(300);
/// How late a loss may be noticed: clocks differ, and timers count in milliseconds.
const LATE: Duration = Duration::from_millis(30);

/// A client of one server, or a quorum.
#[derive(Debug, Clone)]
pub(crate) enum Any {
    One(Client),
    Quorum(Quorum),
}

impl Any {
    pub(crate) fn new(plan: &Plan) -> Any {
        let connecting = Duration::from_millis(500);
        match plan.kind {
            Kind::One | Kind::Sharing | Kind::Several => {
                let builder = Client::with(connect(0)).connect_timeout(connecting);
                let builder = builder.response_timeout(plan.answer);
                Any::One(builder.build().expect("a runtime is there"))
            }
            Kind::Quorum(_) => {
                let servers = (0..plan.nodes()).map(|node| Client::with(connect(node)));
                let builder = Quorum::of(servers).expect("an odd number");
                let builder = builder.connect_timeout(connecting);
                let builder = builder.response_timeout(plan.answer);
                Any::Quorum(builder.build().expect("a runtime is there"))
            }
        }
    }

    pub(crate) fn lock(&self, key: &str) -> Lock {
        match self {
            Any::One(client) => client.lock(key),
            Any::Quorum(quorum) => quorum.lock(key),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Any::One(client) => client.close(CLOSING).await,
            Any::Quorum(quorum) => quorum.close(CLOSING).await,
        };
    }
}

/// A key that is shared by permits.
pub(crate) const POOL: &str = "pool";

pub(crate) fn key(number: u64) -> String {
    format!("key{number}")
}

fn now() -> Micros {
    with(|world| world.now())
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// The life of a process.
pub(crate) async fn live(plan: Plan, mut dice: Dice) {
    let client = Any::new(&plan);
    let owner = Owner::new();
    let tasks: Vec<_> = (0..plan.tasks)
        .map(|_| {
            let task = Task {
                client: client.clone(),
                plan: plan.clone(),
                owner: dice.percent(30).then(|| owner.clone()),
                kept: None,
                dice: dice.branch(),
            };
            tokio::spawn(OfProcess::new(this_process(), task.run()))
        })
        .collect();
    // Some processes close their client while their tasks still run.
    if dice.percent(20) {
        sleep(dice.within(0..=3_000)).await;
        close(&client).await;
    }
    for task in tasks {
        if let Err(error) = task.await
            && error.is_panic()
        {
            world::fail("a task has panicked".to_owned());
        }
    }
    close(&client).await;
}

/// Closing ends, however bad the network: every lease ends.
async fn close(client: &Any) {
    referee::closes(this_process());
    world::note(|| format!("process {}: closes its client", this_process()));
    client.close().await;
    world::note(|| format!("process {}: has closed its client", this_process()));
}

/// Until when by every clock a lock is taken that is kept for so long from now.
fn kept_until(millis: u64) -> Micros {
    let kept = ms(millis) - ms(millis) / 50;
    (now() + kept).saturating_sub(ms(2))
}

struct Task {
    client: Any,
    plan: Plan,
    owner: Option<Owner>,
    /// For how many milliseconds the last lock is kept after its guard.
    kept: Option<u64>,
    dice: Dice,
}

impl Task {
    async fn run(mut self) {
        for _ in 0..self.plan.rounds {
            sleep(self.dice.pick(&[0, 0, 1, 20, 300])).await;
            match self.round().await {
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(error) => {
                    world::note(|| format!("process {}: {error}", this_process()));
                    if let Error::Invalid(why) = error {
                        world::fail(why);
                    }
                }
            }
        }
    }

    /// Acquires a lock, holds it and releases it.
    async fn round(&mut self) -> Result<(), Error> {
        match self.plan.kind {
            Kind::Sharing => match self.dice.within(0..=9) {
                0..=2 => return self.use_pool().await,
                3..=4 => return self.run_job().await,
                5 => return self.revoke().await,
                _ => {}
            },
            Kind::Several => match self.dice.within(0..=9) {
                0..=3 => return self.use_several().await,
                4 => return self.run_job().await,
                5 => return self.revoke().await,
                _ => {}
            },
            Kind::One | Kind::Quorum(_) => {}
        }
        let mode = if self.dice.percent(70) {
            Mode::Write
        } else {
            Mode::Read
        };
        let Some(guard) = self.take(mode).await? else {
            return Ok(());
        };
        let ticket = referee::enter(Held::of(&guard), guard.mode(), None);
        if self.dice.percent(20) {
            // Another guard of the same hold, which ends with the last.
            let inner = guard.reenter();
            sleep(self.dice.within(0..=20)).await;
            let _ = inner.release().await;
        }
        if self.plan.kind == Kind::Several
            && self.owner.is_some()
            && self.dice.percent(50)
            // It may be a key that the task has already: then it would wait for itself.
            && let Some(Ok(Some(another))) = within(Some(1_500), self.take(mode)).await
        {
            // One key after the other, while other tasks acquire several at once.
            let ticket = referee::enter(Held::of(&another), another.mode(), None);
            sleep(self.dice.pick(&[0, 1, 10, 100])).await;
            self.give_back(another, ticket).await?;
        }
        self.hold(guard, ticket, None).await
    }

    /// `None` if the task gave up.
    async fn take(&mut self, mode: Mode) -> Result<Option<Guard>, Error> {
        let dice = &mut self.dice;
        let mut key = key(dice.within(1..=self.plan.keys as u64));
        if self.plan.kind == Kind::Sharing && mode == Mode::Write && dice.percent(15) {
            // The whole pool.
            POOL.clone_into(&mut key);
        }
        let (lease, renews) = (dice.pick(&self.plan.leases), dice.percent(75));
        let limit = wait_limit(dice);
        let mut lock = self.client.lock(&key);
        lock = lock.lease(Duration::from_millis(lease)).auto_renew(renews);
        lock = match limit {
            Some(limit) => lock.wait(Duration::from_millis(limit)),
            None => lock,
        };
        if dice.percent(10) {
            let least = match self.plan.kind {
                Kind::One | Kind::Sharing | Kind::Several => 1,
                // A lease has to outlast the servers' replies.
                Kind::Quorum(_) => 5 * self.plan.answer.as_millis() as u64,
            };
            lock = lock.max_hold(Duration::from_millis(least + dice.within(0..=1_000)));
        }
        if let Some(owner) = &self.owner {
            lock = lock.owner(owner);
        }
        self.kept = (self.plan.keeps_taken && dice.percent(50)).then(|| dice.within(3..=1_000));
        let patience = dice.percent(25).then(|| dice.within(0..=400));
        let began = now();
        let taken = take(lock, mode, patience).await;
        if let Some(limit) = limit {
            self.judge_wait(began, limit);
        }
        taken
    }

    /// No wait lasts much longer than its limit.
    fn judge_wait(&self, began: Micros, limit: u64) {
        let took = now() - began;
        let went_on = with(|world| world.processes[this_process()].went_on);
        let answers = ms(6 * self.plan.answer.as_millis() as u64);
        let most = ms(limit) + answers + ms(6_000);
        if took > most && went_on < began {
            world::fail(format!("{limit} ms of waiting took {} ms", took / 1_000));
        }
    }

    async fn hold(
        &mut self,
        guard: Guard,
        mut ticket: Ticket,
        permits: Option<Permits>,
    ) -> Result<(), Error> {
        for _ in 0..self.dice.within(0..=3) {
            if self.plan.kind.passes_on() && self.dice.percent(20) {
                // The client decides whether the guard is valid meanwhile.
                if !self.pass_on(&guard, permits).await {
                    referee::leave(&ticket);
                    return Ok(());
                }
                ticket = again(&guard, &ticket, permits);
            }
            match self.dice.within(0..=9) {
                common @ 0..=6 => self.use_lock(&guard, common).await,
                7 => {
                    let is_over = guard.deadline().remaining().is_zero();
                    if is_over && guard.check().is_ok() {
                        world::fail("a guard whose time is over is fine".to_owned());
                    }
                }
                8 if guard.mode() == Mode::Read && self.plan.is_on_one_server() => {
                    let patience = Some(self.dice.within(0..=300));
                    let changed = within(patience, guard.upgrade()).await;
                    if changed.is_some_and(|it| it.is_ok()) {
                        ticket = again(&guard, &ticket, permits);
                    }
                }
                9 if guard.mode() == Mode::Write && self.plan.is_on_one_server() => {
                    referee::leave(&ticket);
                    ticket = referee::enter(Held::of(&guard), Mode::Read, None);
                    let patience = self.dice.percent(25).then(|| self.dice.within(0..=100));
                    let changed = within(patience, guard.downgrade()).await;
                    if changed.is_some_and(|it| it.is_err()) && guard.mode() == Mode::Write {
                        ticket = again(&guard, &ticket, permits);
                    }
                }
                _ => {}
            }
        }
        self.give_back(guard, ticket).await
    }

    /// One of the seven things that can be done with every lock.
    async fn use_lock(&mut self, guard: &Guard, what: u64) {
        match what {
            0..=3 => sleep(self.dice.pick(&[0, 1, 10, 100, 700, 2_000])).await,
            4 => {
                let _ = guard.renew().await;
            }
            _ => {
                if matches!(self.client, Any::One(_)) {
                    let _ = guard.guarded(redis::cmd("SET").arg("log").arg(1)).await;
                }
            }
        }
    }

    async fn give_back(&mut self, guard: Guard, ticket: Ticket) -> Result<(), Error> {
        match self.dice.within(0..=9) {
            0..=4 => {
                referee::leave(&ticket);
                let (held, mode) = (Held::of(&guard), guard.mode());
                let released = match self.kept {
                    Some(millis) => {
                        let until = kept_until(millis);
                        let kept = guard.keep_for(Duration::from_millis(millis)).await;
                        if kept.is_ok() {
                            referee::keep_taken(&held, mode, until);
                        }
                        kept
                    }
                    None => guard.release().await,
                };
                world::note(|| format!("process {}: released: {released:?}", this_process()));
            }
            5 => {
                referee::leave(&ticket);
                let patience = Some(self.dice.within(0..=20));
                let _ = within(patience, guard.release()).await;
            }
            6 => {
                await_loss(&guard).await;
                referee::leave(&ticket);
            }
            _ => {
                referee::leave(&ticket);
                drop(guard);
            }
        }
        Ok(())
    }
}

/// Registers a guard again, whose mode may have changed.
fn again(guard: &Guard, ticket: &Ticket, permits: Option<Permits>) -> Ticket {
    referee::leave(ticket);
    referee::enter(Held::of(guard), guard.mode(), permits)
}

/// Waits a while for the loss of a lock. The client must report it in time.
async fn await_loss(guard: &Guard) {
    let began = BootInstant::now();
    let mut lost = std::pin::pin!(guard.lost());
    let (mut deadline, mut is_lost, step) = (guard.deadline(), false, Duration::from_millis(20));
    while !is_lost && began.elapsed() < Duration::from_secs(2) {
        // When the client notices a loss late, the deadline may move back.
        deadline = guard.deadline();
        is_lost = tokio::time::timeout(step, &mut lost).await.is_ok();
    }
    let late = BootInstant::now().since(deadline);
    let process = this_process();
    let went_on = with(|world| {
        let process = &world.processes[process];
        process.clock.at(process.went_on)
    });
    let went_on = BootInstant::default() + Duration::from_micros(went_on);
    // A process that was stopped notices the loss when it continues.
    let late = late.min(BootInstant::now().since(went_on.max(began)));
    if late > LATE {
        world::fail(format!("a loss was told of {late:?} after the deadline"));
    }
    if is_lost && guard.is_valid() {
        world::fail("a guard that was lost is valid".to_owned());
    }
}

/// In milliseconds: none, a while, or no limit.
fn wait_limit(dice: &mut Dice) -> Option<u64> {
    match dice.within(0..=9) {
        0..=1 => Some(0),
        2..=6 => Some(dice.within(1..=1_500)),
        _ => None,
    }
}

async fn within<F: Future>(patience: Option<u64>, future: F) -> Option<F::Output> {
    match patience {
        None => Some(future.await),
        Some(patience) => {
            let patience = Duration::from_millis(patience);
            tokio::time::timeout(patience, future).await.ok()
        }
    }
}

async fn take(lock: Lock, mode: Mode, patience: Option<u64>) -> Result<Option<Guard>, Error> {
    let taking = async {
        match mode {
            Mode::Write => lock.acquire().await,
            Mode::Read => lock.read().await,
        }
    };
    match within(patience, taking).await {
        None => Ok(None),
        Some(Err(Error::Busy { .. })) => Ok(None),
        Some(taken) => taken.map(Some),
    }
}
