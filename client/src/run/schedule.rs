//! Holds are looked at when they are due: renewed, and found lost. One task for each client, on its runtime; there while
//! there is a hold.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use crate::net::task;
use crate::proto::{Agenda, Slot};
use crate::run::trace;
use crate::value::{BootInstant, Error, LOOK, lock};

/// What is looked at.
pub(crate) trait Due: Send + Sync {
    /// It is due: what it sends is answered later. When it is due next; `None` if it is over.
    fn look(self: Arc<Self>, now: BootInstant, answers: &mut Answers) -> Option<BootInstant>;
    /// Where on the schedule it is now.
    fn moved(&self, slot: Slot);
    /// Gives back what it has.
    fn close(&self);
}

/// What has been sent; resolves to the server that failed, and how.
pub(crate) type Answers = FuturesUnordered<Pin<Box<dyn Future<Output = Failed> + Send>>>;
pub(crate) type Failed = Option<(String, Error)>;

pub(crate) struct Schedule {
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    agenda: Agenda<Arc<dyn Due>>,
    is_running: bool,
    /// When the task looks next, unless it is woken.
    looks: Option<BootInstant>,
    task: Option<Waker>,
}

impl Schedule {
    pub(crate) fn new(runtime: Handle) -> Arc<Schedule> {
        let state = Mutex::default();
        Arc::new(Schedule { runtime, state })
    }

    /// Has it looked at by then; instead of at `slot`, if it is there.
    pub(crate) fn add(self: &Arc<Self>, what: Arc<dyn Due>, due: BootInstant, slot: Option<Slot>) {
        let mut state = lock(&self.state);
        if slot.is_some_and(|slot| state.agenda.remove(slot).is_none()) {
            // It is looked at now.
            return;
        }
        let slot = state.agenda.add(due, what.clone());
        what.moved(slot);
        let is_running = std::mem::replace(&mut state.is_running, true);
        let looks_then = state.looks.is_some_and(|looks| looks <= due);
        let task = state.task.take_if(|_| !looks_then);
        drop(state);
        task.into_iter().for_each(Waker::wake);
        if !is_running {
            task::spawn(&self.runtime, run(End(self.clone(), false)));
        }
    }

    pub(crate) fn remove(&self, slot: Slot) {
        let gone = lock(&self.state).agenda.remove(slot);
        drop(gone);
    }

    /// All that is there now.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Due>> {
        lock(&self.state).agenda.values().cloned().collect()
    }

    /// Looks at what is due; when to look next, or `None` if there is nothing left.
    fn look(&self, answers: &mut Answers, context: &mut Context<'_>) -> Option<BootInstant> {
        let now = BootInstant::now();
        loop {
            let due = lock(&self.state).agenda.pop(now);
            let Some(due) = due else { break };
            if let Some(next) = due.clone().look(now, answers) {
                let mut state = lock(&self.state);
                let slot = state.agenda.add(next, due.clone());
                due.moved(slot);
            }
        }
        tell_failures(answers, context);
        let mut state = lock(&self.state);
        let first = state.agenda.first();
        state.is_running = first.is_some() || !answers.is_empty();
        state.looks = first;
        state.task = Some(context.waker().clone());
        // Timers stand still in suspend.
        state
            .is_running
            .then(|| first.unwrap_or(now + LOOK).min(now + LOOK))
    }
}

async fn run(mut end: End) {
    let mut answers = Answers::new();
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        while let Some(next) = end.0.look(&mut answers, context) {
            let next = tokio::time::Instant::now() + next.remaining();
            timer.as_mut().reset(next);
            ready!(timer.as_mut().poll(context));
        }
        Poll::Ready(())
    })
    .await;
    end.1 = true;
}

fn tell_failures(answers: &mut Answers, context: &mut Context<'_>) {
    let mut failed = BTreeMap::new();
    while let Poll::Ready(Some(answer)) = answers.poll_next_unpin(context) {
        if let Some((server, error)) = answer {
            failed.entry(server).or_insert((0, error)).0 += 1;
        }
    }
    for (server, (holds, error)) in failed {
        trace::renewal_failed(&server, holds, &error);
    }
}

/// The task, from when it is spawned, and whether it has come to its end: otherwise its runtime has.
struct End(Arc<Schedule>, bool);

impl Drop for End {
    fn drop(&mut self) {
        if !self.1 {
            let left = std::mem::take(&mut *lock(&self.0.state));
            drop(left);
        }
    }
}
