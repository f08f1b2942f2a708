//! The one task of a client that renews its holds and watches their deadlines.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::belief::{Grant, Which};
use crate::error::{Failed, Loss, NodeFailure};
use crate::link::Reply;
use crate::name::Bytes;
use crate::node::Place;
use crate::request;
use crate::runtime::Runtime;
use crate::servers::Servers;
use crate::sync::lock;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::trace;

/// What the keeper keeps: a hold.
pub(crate) trait Kept: Send + Sync {
    /// Where it stands in the keeper's schedule; only the keeper uses it.
    fn ticket(&self) -> &Mutex<Option<Ticket>>;

    /// When the keeper has to look at it next; `None` once it is over.
    fn due(&self) -> Option<BootInstant>;

    /// What to renew now. Reports a loss.
    fn begin_renewals(self: Arc<Self>, which: Which) -> Vec<Renewal>;

    /// Takes in the answer to a renewal.
    fn answered(&self, renewal: &Renewal, answer: Result<Grant, Failed>);

    /// Ends it, for the first reason.
    fn end(&self, loss: Loss) -> bool;

    /// Removes it from its servers in the background.
    fn leave(&self);
}

/// When a hold is due, and its number.
pub(crate) type Ticket = (BootInstant, u64);

/// A renewal of one part of a hold.
pub(crate) struct Renewal {
    pub(crate) hold: Arc<dyn Kept>,
    pub(crate) place: Place,
    pub(crate) owner: Bytes,
    pub(crate) lease: Lease,
    pub(crate) part: usize,
    /// The token that it names.
    pub(crate) asked: Option<Token>,
}

pub(crate) struct Keeper {
    servers: Arc<Servers>,
    /// How long an answer may take.
    limit: Duration,
    schedule: Mutex<Schedule>,
    /// There is something to do earlier than it sleeps.
    wake: Notify,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Schedule {
    holds: BTreeMap<Ticket, Arc<dyn Kept>>,
    last: u64,
    /// When the keeper wakes by itself.
    sleeps_until: Option<BootInstant>,
}

/// What the keeper has to do, and when it has to look again.
struct Due {
    renewals: Vec<Renewal>,
    next: Option<BootInstant>,
}

/// The keeper's task. If it ends with its runtime, nobody renews the holds any more.
struct Keeping(Arc<Keeper>);

impl Drop for Keeping {
    fn drop(&mut self) {
        for hold in self.0.holds() {
            hold.end(Loss::Expired);
        }
    }
}

impl Keeper {
    /// Starts the task, which ends with [`stop`](Keeper::stop).
    pub(crate) fn start(servers: Arc<Servers>, limit: Duration, runtime: &Runtime) -> Arc<Keeper> {
        let (schedule, wake, task) = (Mutex::default(), Notify::new(), OnceLock::new());
        let keeper = Arc::new(Keeper {
            servers,
            limit,
            schedule,
            wake,
            task,
        });
        let (keeping, clock) = (Keeping(keeper.clone()), runtime.clone());
        let task = runtime.spawn(async move { keeping.0.keep(&clock).await });
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
    pub(crate) fn schedule(&self, hold: Arc<dyn Kept>) {
        let due = hold.due();
        let mut schedule = lock(&self.schedule);
        schedule.remove(&*hold);
        let Some(due) = due else { return };
        schedule.last += 1;
        let ticket = (due, schedule.last);
        *lock(hold.ticket()) = Some(ticket);
        schedule.holds.insert(ticket, hold);
        if schedule.sleeps_until.is_none_or(|until| due < until) {
            schedule.sleeps_until = Some(due);
            drop(schedule);
            self.wake.notify_one();
        }
    }

    /// Has the keeper look at a hold no more.
    pub(crate) fn forget(&self, hold: &dyn Kept) {
        lock(&self.schedule).remove(hold);
    }

    /// Every hold that is not over.
    pub(crate) fn holds(&self) -> Vec<Arc<dyn Kept>> {
        lock(&self.schedule).holds.values().cloned().collect()
    }

    /// Sends renewals, and takes in the answers. Returns the failures, which say nothing of the holds.
    pub(crate) async fn renew(&self, renewals: Vec<Renewal>) -> Vec<NodeFailure> {
        let calls: Vec<_> = renewals.iter().map(Renewal::call).collect();
        let periods = renewals
            .iter()
            .map(|renewal| renewal.lease.renewal_period());
        let replies = self
            .servers
            .call_each(&calls, periods.fold(self.limit, Duration::min))
            .await;
        let mut failures = Vec::new();
        for (renewal, reply) in renewals.iter().zip(replies) {
            let answer = reply.and_then(|reply| renewal.grant(reply));
            if let Err(Failed::Refused(error) | Failed::Unknown(error)) = &answer {
                trace::renewal_failed(&renewal.place.node.name, &renewal.place.key, error);
                failures.push(NodeFailure {
                    server: renewal.place.node.name.to_string(),
                    reason: error.clone().into(),
                });
            }
            renewal.hold.answered(renewal, answer);
            self.schedule(renewal.hold.clone());
        }
        failures
    }

    async fn keep(&self, runtime: &Runtime) {
        let mut renewing = FuturesUnordered::new();
        loop {
            let Due { renewals, next } = self.due();
            if !renewals.is_empty() {
                renewing.push(self.renew(renewals));
            }
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

    /// What is due now. Reports losses.
    fn due(&self) -> Due {
        let now = BootInstant::now();
        let mut holds = Vec::new();
        {
            let mut schedule = lock(&self.schedule);
            while let Some(first) = schedule.holds.first_entry()
                && first.key().0 <= now
            {
                holds.push(first.remove());
            }
        }
        let mut renewals = Vec::new();
        for hold in holds {
            renewals.append(&mut hold.clone().begin_renewals(Which::Due));
            self.schedule(hold);
        }
        let mut schedule = lock(&self.schedule);
        schedule.sleeps_until = match schedule.holds.first_key_value() {
            Some((first, _)) => Some(first.0),
            // A lock that is taken and released again and again wakes the keeper once in a while only.
            None => schedule.sleeps_until.filter(|until| *until > now),
        };
        Due {
            renewals,
            next: schedule.sleeps_until,
        }
    }
}

impl Schedule {
    fn remove(&mut self, hold: &dyn Kept) {
        if let Some(ticket) = lock(hold.ticket()).take() {
            self.holds.remove(&ticket);
        }
    }
}

impl Renewal {
    fn call(&self) -> (Place, redis::Cmd) {
        let renew = request::renew(&self.place.key, &self.owner, self.lease, self.asked);
        (self.place.clone(), renew)
    }

    fn grant(&self, reply: Reply) -> Result<Grant, Failed> {
        let token = request::token(reply.value)?;
        let until = self.lease.believed_until(reply.sent);
        Ok(Grant {
            token,
            since: reply.sent,
            until,
        })
    }
}
