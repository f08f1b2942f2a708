//! Holds are looked at when they are due: renewed, and found lost. One task for each client, on its runtime; there while
//! there is a hold.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};

use futures_util::future::{join_all, select};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::net::task;
use crate::proto::{Agenda, Slot};
use crate::run::trace;
use crate::value::{BootInstant, Error, LOOK, lock};

/// What is looked at when it is due.
pub(crate) trait Due: Send + Sync {
    /// Looks at it, and at when it is due again.
    fn look(self: Arc<Self>, now: BootInstant) -> Vec<Renewing>;

    /// The client is closed.
    fn close(self: Arc<Self>);
}

/// A renewal that was sent; the server's name and why, where it fails.
pub(crate) type Renewing = Pin<Box<dyn Future<Output = Option<(String, Error)>> + Send>>;

pub(crate) struct Schedule {
    runtime: Handle,
    state: Mutex<State>,
    /// Something is due before the task looks.
    earlier: Notify,
}

struct State {
    agenda: Agenda<Arc<dyn Due>>,
    /// When the task looks next, if it runs: not for what has been removed since, and comes again later.
    looks: Option<BootInstant>,
}

impl Schedule {
    pub(crate) fn new(runtime: Handle) -> Arc<Schedule> {
        let (agenda, looks) = (Agenda::new(), None);
        Arc::new(Schedule {
            runtime,
            state: Mutex::new(State { agenda, looks }),
            earlier: Notify::new(),
        })
    }

    /// Puts it there, or elsewhere than where it was. Returns where it is now.
    pub(crate) fn add(
        self: &Arc<Self>,
        what: Arc<dyn Due>,
        due: BootInstant,
        slot: Option<Slot>,
    ) -> Slot {
        let mut state = lock(&self.state);
        if let Some(slot) = slot
            && state.agenda.remove(slot).is_none()
        {
            // It is looked at now.
            return slot;
        }
        let slot = state.agenda.add(due, what);
        match state.looks.replace(due) {
            None => drop(task::spawn(&self.runtime, run(self.clone()))),
            Some(looks) if due < looks => self.earlier.notify_one(),
            looks => state.looks = looks,
        }
        slot
    }

    pub(crate) fn remove(&self, slot: Slot) {
        let gone = lock(&self.state).agenda.remove(slot);
        drop(gone);
    }

    pub(crate) fn all(&self) -> Vec<Arc<dyn Due>> {
        lock(&self.state).agenda.values().cloned().collect()
    }

    /// What is due now, or when the next is; neither, where there is nothing.
    fn next(&self, now: BootInstant) -> Option<Result<Arc<dyn Due>, BootInstant>> {
        let mut state = lock(&self.state);
        if let Some(due) = state.agenda.pop(now) {
            return Some(Ok(due));
        }
        state.looks = state.agenda.first();
        state.looks.map(Err)
    }
}

async fn run(schedule: Arc<Schedule>) {
    let mut renewing = Vec::new();
    while let Some(next) = schedule.next(BootInstant::now()) {
        let next = match next {
            Ok(due) => {
                renewing.extend(due.look(BootInstant::now()));
                continue;
            }
            Err(next) => next,
        };
        if !renewing.is_empty() {
            task::spawn(&schedule.runtime, renew(std::mem::take(&mut renewing)));
        }
        // Timers stand still in suspend.
        let pause = tokio::time::sleep(next.remaining().min(LOOK));
        select(pin!(pause), pin!(schedule.earlier.notified())).await;
    }
}

async fn renew(renewing: Vec<Renewing>) {
    let mut failed = BTreeMap::new();
    for (server, error) in join_all(renewing).await.into_iter().flatten() {
        failed.entry(server).or_insert((0, error)).0 += 1;
    }
    for (server, (holds, error)) in failed {
        trace::renewal_failed(&server, holds, &error);
    }
}
