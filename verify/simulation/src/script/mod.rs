//! What the tasks of a process do with its client: a few rounds of acquiring, changing and releasing locks, or not releasing them.

mod several;
mod sharing;

use std::time::Duration;

use crate::dice::Dice;
use crate::lock::client::{Client, Locks};
use crate::lock::{Guard, Lock, Owner};
use crate::parts::{Micros, Permits, ms};
use crate::plan::{Kind, Plan};
use crate::quorum::quorum::Quorum;
use crate::referee::{self, Ticket};
use crate::simulated::OfProcess;
use crate::value::clock::BootInstant;
use crate::value::mode::Mode;
use crate::value::{Error, Loss};
use crate::world::{self, this_process, with};

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
                let builder = Client::builder("redis://node0/").expect("an address");
                let builder = builder.connect_timeout(connecting);
                let builder = builder.response_timeout(plan.answer);
                Any::One(builder.build().expect("a runtime is there"))
            }
            Kind::Quorum(_) => {
                let servers = (0..plan.nodes()).map(|node| format!("redis://node{node}/"));
                let builder = Quorum::builder(servers).expect("addresses");
                let builder = builder.connect_timeout(connecting);
                let builder = builder.node_timeout(plan.answer);
                Any::Quorum(builder.build().expect("a runtime is there"))
            }
        }
    }

    pub(crate) fn lock(&self, key: &str) -> Lock {
        match self {
            Any::One(client) => client.lock_of(key.as_bytes()),
            Any::Quorum(quorum) => quorum.lock_of(key.as_bytes()),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Any::One(client) => client.close().await,
            Any::Quorum(quorum) => quorum.close().await,
        }
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
                at_least: None,
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

/// How long `at_least` keeps a lock taken, and until when by every clock if it was granted at once.
struct Staying {
    least: Duration,
    until: Micros,
}

impl Staying {
    fn from_now(millis: u64) -> Staying {
        let kept = ms(millis) - ms(millis) / 50;
        Staying {
            least: Duration::from_millis(millis),
            until: (now() + kept).saturating_sub(ms(2)),
        }
    }
}

struct Task {
    client: Any,
    plan: Plan,
    owner: Option<Owner>,
    /// How long the last lock stays taken.
    at_least: Option<Staying>,
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
        let ticket = referee::enter(guard.held(), guard.mode(), None);
        if self.owner.is_some() && self.dice.percent(40) {
            // Re-entry by the same owner.
            if let Ok(Some(inner)) = self.take_again(&guard).await {
                let inner_ticket = referee::enter(inner.held(), inner.mode(), None);
                sleep(self.dice.within(0..=20)).await;
                self.give_back(inner, inner_ticket).await?;
            }
        }
        if self.plan.kind == Kind::Several
            && self.owner.is_some()
            && self.dice.percent(50)
            && let Ok(Some(another)) = self.take(mode).await
        {
            // One key after the other, while other tasks acquire several at once.
            let ticket = referee::enter(another.held(), another.mode(), None);
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
            None => lock.wait_forever(),
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
            lock = lock.owner(owner).reentrant();
        }
        self.at_least = (self.plan.keeps_taken && self.owner.is_none() && dice.percent(50))
            .then(|| Staying::from_now(dice.within(1..=1_000)));
        if let Some(staying) = &self.at_least {
            lock = lock.at_least(staying.least);
        }
        let patience = dice.percent(25).then(|| dice.within(0..=400));
        let began = now();
        let taken = take(&lock, mode, patience).await;
        if let Some(limit) = limit {
            self.judge_wait(began, limit);
        }
        taken
    }

    async fn take_again(&mut self, outer: &Guard) -> Result<Option<Guard>, Error> {
        let key = String::from_utf8_lossy(outer.key()).into_owned();
        let lock = self.client.lock(&key).reentrant();
        let lock = lock.lease(Duration::from_millis(self.dice.pick(&self.plan.leases)));
        let lock = lock.wait(Duration::from_millis(200));
        let owner = self.owner.as_ref().expect("it has a name");
        let patience = self.dice.percent(25).then(|| self.dice.within(0..=50));
        take(&lock.owner(owner), outer.mode(), patience).await
    }

    /// No wait lasts much longer than its limit.
    fn judge_wait(&self, began: Micros, limit: u64) {
        let took = now() - began;
        let went_on = with(|world| world.processes[this_process()].went_on);
        let answers = ms(6 * self.plan.answer.as_millis() as u64);
        // A task with an owner may first wait for that owner's other requests.
        let most = ms(limit) + answers + ms(6_000);
        if took > most && went_on < began && self.owner.is_none() {
            world::fail(format!("{limit} ms of waiting took {} ms", took / 1_000));
        }
    }

    async fn hold(
        &mut self,
        mut guard: Guard,
        mut ticket: Ticket,
        permits: Option<Permits>,
    ) -> Result<(), Error> {
        for _ in 0..self.dice.within(0..=3) {
            if self.plan.kind.passes_on() && self.owner.is_none() && self.dice.percent(20) {
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
                    let limit = Duration::from_millis(self.dice.within(0..=300));
                    let patience = self.dice.percent(25).then(|| self.dice.within(0..=100));
                    let changed = within(patience, guard.upgrade_within(limit)).await;
                    if changed.is_some_and(|it| it.is_ok()) {
                        ticket = again(&guard, &ticket, permits);
                    }
                }
                9 if guard.mode() == Mode::Write
                    && self.owner.is_none()
                    && self.plan.is_on_one_server() =>
                {
                    referee::leave(&ticket);
                    ticket = referee::enter(guard.held(), Mode::Read, None);
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
            5 => {
                let lease = self.dice.pick(&self.plan.leases);
                let _ = guard.renew_for(Duration::from_millis(lease)).await;
            }
            _ => {
                if let Any::One(client) = &self.client {
                    let _ = client.guarded(guard).run(["SET", "log", "1"]).await;
                }
            }
        }
    }

    async fn give_back(&mut self, guard: Guard, ticket: Ticket) -> Result<(), Error> {
        match self.dice.within(0..=9) {
            0..=4 => {
                referee::leave(&ticket);
                let (held, mode) = (guard.held(), guard.mode());
                let released = guard.release().await;
                if let (Ok(()), Some(staying)) = (&released, &self.at_least) {
                    referee::keep_taken(&held, mode, staying.until);
                }
                world::note(|| format!("process {}: released: {released:?}", this_process()));
            }
            5 => {
                referee::leave(&ticket);
                let patience = Some(self.dice.within(0..=20));
                let _ = within(patience, guard.release()).await;
            }
            6 if self.owner.is_none() => {
                await_loss(std::slice::from_ref(&guard), guard.lost()).await;
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
    referee::enter(guard.held(), guard.mode(), permits)
}

/// Waits a while for the loss of a lock, or of the first of several. The client must report it in time.
async fn await_loss(guards: &[Guard], lost: impl Future<Output = Loss>) {
    let began = BootInstant::now();
    let mut lost = std::pin::pin!(lost);
    let first = || guards.iter().map(|guard| guard.deadline()).min();
    let first = || first().expect("there is a guard");
    let (mut deadline, mut is_lost, step) = (first(), false, Duration::from_millis(20));
    while !is_lost && began.elapsed() < Duration::from_secs(2) {
        // When the client notices a loss late, the deadline may move back.
        deadline = first();
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
    if is_lost && guards.iter().all(|guard| guard.is_valid()) {
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

async fn take(lock: &Lock, mode: Mode, patience: Option<u64>) -> Result<Option<Guard>, Error> {
    let taking = async {
        match mode {
            Mode::Write => lock.write().await,
            Mode::Read => lock.read().await,
        }
    };
    match within(patience, taking).await {
        None => Ok(None),
        Some(Err(Error::Busy { .. })) => Ok(None),
        Some(taken) => taken.map(Some),
    }
}
