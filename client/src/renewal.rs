//! Renewal in the background: one task and an agenda for all guards of a client, one pipeline for all that are due.
//!
//! A hold is due a third of its lease after its last renewal. A null answer ends it. Anything else that is no
//! confirmation is tried again until the deadline, and the deadline ends it: the agenda holds that, too, also while a
//! renewal is on its way, which may take longer than that.

use std::sync::{Arc, Weak};
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::agenda::Agenda;
use crate::clock::{BootInstant, LOOK, sleep_until};
use crate::hold::Hold;
use crate::renew::{self, Outcome};

/// The most holds in one pipeline: what comes behind it should not wait for long.
const LARGEST_BATCH: usize = 2000;

/// Sends holds to the task that renews them; the task ends when this goes.
#[derive(Debug)]
pub(crate) struct Renewal {
    holds: mpsc::UnboundedSender<Weak<Hold>>,
}

impl Renewal {
    pub(crate) fn start(runtime: &Handle) -> Renewal {
        let (holds, added) = mpsc::unbounded_channel();
        let watching = Watching {
            agenda: Agenda::default(),
            added,
        };
        runtime.spawn(watching.run());
        Renewal { holds }
    }

    /// Puts a hold on the agenda: to be renewed if that is wanted, and to be over at its deadline in any case.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        if let Err(mpsc::error::SendError(hold)) = self.holds.send(Arc::downgrade(hold)) {
            // The runtime is gone.
            end_in_time(vec![hold]);
        }
    }
}

/// What the task is doing.
struct Watching {
    agenda: Agenda,
    added: mpsc::UnboundedReceiver<Weak<Hold>>,
}

impl Watching {
    async fn run(mut self) {
        loop {
            let first = self.agenda.first();
            // However many holds come in, what is due is not kept waiting.
            if first.is_some_and(|at| at <= BootInstant::now()) {
                renew(self.agenda.due());
                continue;
            }
            match next(&mut self.added, first).await {
                Next::Added(hold) => self.agenda.add(&hold),
                Next::Due => renew(self.agenda.due()),
                Next::Closed => return,
            }
        }
    }
}

impl Drop for Watching {
    /// The client is gone, or the runtime is, and somebody elsewhere may still wait for the end of a hold.
    fn drop(&mut self) {
        self.added.close();
        while let Ok(hold) = self.added.try_recv() {
            self.agenda.add(&hold);
        }
        end_in_time(std::mem::take(&mut self.agenda).into_living());
    }
}

/// Has a thread end holds at their deadlines, where nobody renews them any more.
fn end_in_time(mut holds: Vec<Weak<Hold>>) {
    if holds.is_empty() {
        return;
    }
    let thread = thread::Builder::new().name("mortise-deadlines".to_owned());
    // Without a thread, belief ends by the clock all the same.
    let _ = thread.spawn(move || {
        loop {
            let mut first = None;
            holds.retain(|hold| {
                let Some(hold) = hold.upgrade() else {
                    return false;
                };
                let state = hold.state();
                first = first.into_iter().chain([state.deadline]).min();
                state.loss.is_none()
            });
            match first {
                Some(first) if !holds.is_empty() => thread::sleep(first.remaining().min(LOOK)),
                _ => return,
            }
        }
    });
}

enum Next {
    Added(Weak<Hold>),
    Due,
    Closed,
}

async fn next(added: &mut mpsc::UnboundedReceiver<Weak<Hold>>, first: Option<BootInstant>) -> Next {
    let recv = std::pin::pin!(added.recv());
    let due = std::pin::pin!(async {
        match first {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    });
    match futures_util::future::select(recv, due).await {
        futures_util::future::Either::Left((Some(hold), _)) => Next::Added(hold),
        futures_util::future::Either::Left((None, _)) => Next::Closed,
        futures_util::future::Either::Right(_) => Next::Due,
    }
}

fn renew(mut due: Vec<Arc<Hold>>) {
    // Servers that share no pipeline are not waited for together: one may hang.
    let is_cluster = |hold: &Arc<Hold>| hold.core.nodes.iter().any(|node| node.is_cluster());
    let size = match due.first() {
        Some(hold) if is_cluster(hold) => 1,
        _ => LARGEST_BATCH,
    };
    while !due.is_empty() {
        let batch = due.split_off(due.len().saturating_sub(size));
        tokio::spawn(renew_batch(batch));
    }
}

async fn renew_batch(holds: Vec<Arc<Hold>>) {
    let requests = holds.iter().filter_map(renew::request).collect();
    let core = holds[0].core.clone();
    let left = holds.iter().map(|hold| hold.state().deadline.remaining());
    let left = left.min().unwrap_or_default();
    let outcomes = renew::renew_in_time(&core, requests, left).await;
    for (hold, outcome) in outcomes {
        if let Outcome::Failed(_) = outcome {
            hold.retry_renewal();
        }
    }
    for hold in &holds {
        hold.state().in_renewal = false;
        core.renewal.watch(hold);
    }
}
