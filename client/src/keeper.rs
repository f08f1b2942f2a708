//! The one task of a client that renews its holds and watches their deadlines.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join_all, select};
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::belief::Which;
use crate::error::{Error, Failed, Loss, NodeFailure};
use crate::hold::{Hold, Renewal, Ticket};
use crate::node::{Place, Route};
use crate::request;
use crate::runtime::Runtime;
use crate::servers::Servers;
use crate::settings::Settings;
use crate::sync::lock;
use crate::time::BootInstant;
use crate::trace;

pub(crate) struct Keeper {
    servers: Arc<Servers>,
    settings: Settings,
    schedule: Mutex<Schedule>,
    /// There is something to do earlier than it sleeps.
    wake: Notify,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Schedule {
    holds: BTreeMap<Ticket, Arc<Hold>>,
    last: u64,
    /// When the keeper wakes by itself.
    sleeps_until: Option<BootInstant>,
    /// The runtime is gone.
    is_over: bool,
}

/// The keeper's task. If it ends with its runtime, nobody renews the holds any more.
struct Keeping(Arc<Keeper>);

impl Drop for Keeping {
    fn drop(&mut self) {
        lock(&self.0.schedule).is_over = true;
        for hold in self.0.holds() {
            hold.end(Loss::Expired);
        }
    }
}

impl Keeper {
    /// Starts the task, which ends with [`stop`](Keeper::stop), and keeps `life` until then.
    pub(crate) fn start(
        servers: Arc<Servers>,
        settings: Settings,
        runtime: &Runtime,
        life: Arc<()>,
    ) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper {
            servers,
            settings,
            schedule: Mutex::default(),
            wake: Notify::new(),
            task: OnceLock::new(),
        });
        let (keeping, clock) = (Keeping(keeper.clone()), runtime.clone());
        let task = runtime.spawn(async move {
            let _life = life;
            keeping.0.keep(&clock).await;
        });
        let _ = keeper.task.set(task);
        keeper
    }

    /// Ends the task: its client is gone, and nothing is held.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// Has the keeper look at a hold when something is due.
    pub(crate) fn schedule(&self, hold: &Arc<Hold>) {
        let due = hold.due();
        let mut schedule = lock(&self.schedule);
        schedule.remove(hold);
        let Some(due) = due else { return };
        if schedule.is_over {
            drop(schedule);
            hold.end(Loss::Expired);
            return;
        }
        schedule.last += 1;
        let ticket = (due, schedule.last);
        hold.ticket(|it| *it = Some(ticket));
        schedule.holds.insert(ticket, hold.clone());
        if schedule.sleeps_until.is_none_or(|until| due < until) {
            schedule.sleeps_until = Some(due);
            drop(schedule);
            self.wake.notify_one();
        }
    }

    /// Has the keeper look at a hold no more.
    pub(crate) fn forget(&self, hold: &Hold) {
        lock(&self.schedule).remove(hold);
    }

    /// Every hold that is not over.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        lock(&self.schedule).holds.values().cloned().collect()
    }

    /// Renews parts of a hold now. Returns once the servers have answered: how many have confirmed it.
    pub(crate) async fn renew_now(&self, hold: &Arc<Hold>) -> Result<(), Error> {
        let began = BootInstant::now();
        let batches = self.batches(hold.begin_renewals(Which::All));
        let failures = join_all(batches.into_iter().map(|it| self.renew(it))).await;
        hold.check()?;
        let confirmed = hold.belief(|belief| belief.confirmed_since(began));
        let needed = hold.belief(|belief| belief.needed());
        match confirmed >= needed {
            true => Ok(()),
            false => Err(Error::of_failures(
                failures.concat(),
                confirmed,
                needed,
                self.settings.is_quorum(),
            )),
        }
    }

    /// Renewals to each server.
    fn batches(&self, renewals: Vec<Renewal>) -> Vec<Vec<Renewal>> {
        let mut batches: Vec<Vec<Renewal>> = Vec::new();
        for mut renewal in renewals {
            renewal.place.node = self.servers.home(&renewal.place);
            let node = &renewal.place.node;
            let is_its = |batch: &&mut Vec<Renewal>| Arc::ptr_eq(&batch[0].place.node, node);
            match batches.iter_mut().find(is_its) {
                Some(batch) => batch.push(renewal),
                None => batches.push(vec![renewal]),
            }
        }
        batches
    }

    /// Sends renewals to a server, and takes in the answers. Returns the failures, which say nothing of the holds.
    async fn renew(&self, renewals: Vec<Renewal>) -> Vec<NodeFailure> {
        let calls = renewals.iter().map(|it| (it.place.clone(), it.command()));
        let calls: Vec<_> = calls.collect();
        let periods = renewals.iter().map(|it| it.lease.renewal_period());
        let limit = periods.fold(self.settings.reply, Duration::min);
        let mut failures = Vec::new();
        let replies = match &renewals[0].place.node.replicas {
            Some(replicas) => {
                let commands = calls.into_iter().map(|(_, command)| command);
                replicas.confirm(commands.collect()).await
            }
            None => self.servers.call_each(&calls, limit).await,
        };
        for (renewal, reply) in renewals.iter().zip(replies) {
            let answer = reply.and_then(|reply| request::granted(reply, renewal.lease));
            renewal.answered(&answer);
            self.schedule(&renewal.hold);
            let Err(failed) = answer else { continue };
            let Place { node, key } = &renewal.place;
            drop(
                self.servers
                    .redirected(&Route::to(node.clone()), key, &failed),
            );
            if let Failed::Refused(error) | Failed::Unknown(error) = failed {
                trace::renewal_failed(&node.name, key, &error);
                failures.push(NodeFailure::new(&node.name, error));
            }
        }
        failures
    }

    async fn keep(&self, runtime: &Runtime) {
        let mut renewing = FuturesUnordered::new();
        loop {
            let mut renewals = Vec::new();
            for hold in self.due() {
                renewals.append(&mut hold.begin_renewals(Which::Due));
                self.schedule(&hold);
            }
            for batch in self.batches(renewals) {
                renewing.push(self.renew(batch));
            }
            let next = self.next();
            let asleep = pin!(async {
                let woken = self.wake.notified();
                match next {
                    Some(next) => drop(runtime.limited(next.next_sleep(), woken).await),
                    None => woken.await,
                }
            });
            match renewing.is_empty() {
                true => asleep.await,
                false => drop(select(asleep, renewing.next()).await),
            }
        }
    }

    /// The holds that are due now.
    fn due(&self) -> Vec<Arc<Hold>> {
        let schedule = lock(&self.schedule);
        let due = schedule.holds.range(..=(BootInstant::now(), u64::MAX));
        due.map(|(_, hold)| hold.clone()).collect()
    }

    /// When the next hold is due. A lock that is taken and released again and again wakes the keeper once in a while only.
    fn next(&self) -> Option<BootInstant> {
        let mut schedule = lock(&self.schedule);
        let first = schedule.holds.first_key_value().map(|(first, _)| first.0);
        let planned = schedule.sleeps_until;
        let next = first.or_else(|| planned.filter(|until| !until.remaining().is_zero()));
        schedule.sleeps_until = next;
        next
    }
}

impl Schedule {
    fn remove(&mut self, hold: &Hold) {
        if let Some(ticket) = hold.ticket(Option::take) {
            self.holds.remove(&ticket);
        }
    }
}
