//! Runs one seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::dice::Dice;
use crate::parts::{Life, Micros, ProcessId, ms};
use crate::plan::{Kind, Plan};
use crate::referee;
use crate::script::{self, Any};
use crate::simulated::OfProcess;
use crate::world::{self, World, with};

/// How long the processes may take to finish once there are no more faults.
const PATIENCE: u64 = 90_000;
/// How long clean-up in the background may take.
const CLEANING: u64 = 15_000;
/// How long a box may live whose letters were sent and not forgotten.
const BOXES: u64 = 52_000;

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    pub failure: Option<String>,
    pub trace: Vec<String>,
    pub granted: u64,
    pub messages: u64,
    /// In simulated milliseconds.
    pub lasted: u64,
}

pub fn simulate(kind: Kind, seed: u64, is_traced: bool) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing");
    let (lasted, failure) = runtime.block_on(live(kind, seed, is_traced));
    let mut world = World::end();
    let granted = referee::end().granted;
    drop(runtime);
    Run {
        failure,
        trace: world.take_trace(),
        granted,
        messages: world.messages,
        lasted: lasted / 1_000,
    }
}

async fn live(kind: Kind, seed: u64, is_traced: bool) -> (Micros, Option<String>) {
    let mut dice = Dice::new(seed);
    let plan = Plan::of(kind, &mut dice);
    World::begin(dice.branch(), plan.fates, is_traced);
    referee::begin(&plan);
    world::note(|| format!("seed {seed}: {plan:?}"));
    with(|world| plan.lay_out(world, &mut dice));
    play(&plan, &mut dice).await;
    with(|world| (world.now(), world.failure.take()))
}

async fn play(plan: &Plan, dice: &mut Dice) {
    let living: Vec<_> = (0..plan.processes)
        .map(|process| spawn(process, script::live(plan.clone(), dice.branch())))
        .collect();
    let all_done = || {
        let is_done = |(process, done): (usize, &Done)| done.get() || is_dead(process);
        living.iter().enumerate().all(is_done)
    };
    let limit = plan.fates.until + ms(PATIENCE);
    if !go_on(limit, all_done).await {
        let waiting = living.iter().position(|done| !done.get());
        return world::fail(format!("process {waiting:?} never ends"));
    }
    if has_failed() {
        return;
    }
    if plan.ends_clean() {
        judge_leftovers("after all have closed their clients", false);
    }
    let now = with(|world| world.now());
    go_on(now.max(plan.fates.until) + ms(CLEANING), || false).await;
    judge_leftovers("after all leases", false);
    judge_last(plan).await;
    let now = with(|world| world.now());
    go_on(now + ms(BOXES), || false).await;
    judge_leftovers("after all boxes", true);
}

/// One more process finds every lock free.
async fn judge_last(plan: &Plan) {
    let (last, keys) = (plan.processes, plan.keys);
    let client_plan = plan.clone();
    let done = spawn(last, async move {
        let client = Any::new(&client_plan);
        let pool = (client_plan.permits > 0).then(|| script::POOL.to_owned());
        for key in (1..=keys as u64).map(script::key).chain(pool) {
            let lock = client.lock(&key).wait(Duration::from_millis(50));
            match lock.acquire().await {
                Ok(guard) => {
                    let ticket = referee::enter(crate::held::Held::of(&guard), guard.mode(), None);
                    referee::leave(&ticket);
                    let _ = guard.release().await;
                }
                Err(error) => world::fail(format!("{key} cannot be taken at the end: {error}")),
            }
        }
        client.close().await;
    });
    let limit = with(|world| world.now()) + ms(10_000);
    if !go_on(limit, || done.get()).await {
        world::fail("the last process never ends".to_owned());
    }
}

async fn go_on(limit: Micros, is_over: impl Fn() -> bool) -> bool {
    world::go_on(limit, || {
        referee::judge_servers();
        has_failed() || is_over()
    })
    .await
}

fn has_failed() -> bool {
    with(|world| world.failure.is_some())
}

fn is_dead(process: ProcessId) -> bool {
    with(|world| world.processes[process].life == Life::Dead)
}

fn spawn(process: ProcessId, task: impl Future<Output = ()> + Send + 'static) -> Done {
    let done = Done::default();
    let is_done = done.clone();
    tokio::spawn(OfProcess::new(process, async move {
        task.await;
        is_done.0.store(true, Ordering::Relaxed);
        // The loop that checks whether all are done runs when something happens.
        with(World::wake);
    }));
    done
}

/// Whether a task has ended.
#[derive(Debug, Clone, Default)]
struct Done(Arc<AtomicBool>);

impl Done {
    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn judge_leftovers(when: &str, with_mail: bool) {
    with(|world| {
        let now = world.now();
        for number in 0..world.nodes.len() {
            let server = &mut world.nodes[number].server;
            let local = server.clock.at(now);
            let found = server.leftovers(local, with_mail, &world.jobs_ever);
            if !found.is_empty() {
                return world.fail(format!(
                    "{when} something is left at node {number}: {found}"
                ));
            }
        }
    });
}
