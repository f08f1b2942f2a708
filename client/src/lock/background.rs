//! Renews holds, and finds them lost: one task for each client, on its runtime, which is there while there is a hold.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{pending, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use crate::lock::holds::{Holds, Next, Scheduled};
use crate::lock::{Core, trace};
use crate::net::schedule::Due;
use crate::net::task;
use crate::value::{BootInstant, Error, lock};

impl Core {
    /// Schedules a new hold. An error once the client is closed.
    pub(super) fn schedule(
        self: &Arc<Self>,
        hold: Arc<dyn Scheduled>,
        due: BootInstant,
    ) -> Result<Due, Error> {
        let mut holds = lock(&self.holds);
        match holds.is_closed {
            true => Err(Error::Closed),
            false => {
                let added = holds.schedule.add(due, hold);
                self.wake_by(&mut holds, due);
                Ok(added)
            }
        }
    }

    /// Schedules a hold for another moment than before; `None` if the task has it in hand right now.
    pub(super) fn reschedule(
        self: &Arc<Self>,
        hold: Arc<dyn Scheduled>,
        scheduled: Option<Due>,
        due: BootInstant,
    ) -> Option<Due> {
        let mut holds = lock(&self.holds);
        if scheduled.is_some_and(|scheduled| holds.schedule.remove(scheduled).is_none()) {
            return None;
        }
        let added = holds.schedule.add(due, hold);
        self.wake_by(&mut holds, due);
        Some(added)
    }

    fn wake_by(self: &Arc<Self>, holds: &mut Holds, due: BootInstant) {
        match holds.wakes_at {
            None => {
                holds.wakes_at = Some(due);
                drop(task::spawn(&self.runtime, run(self.clone())));
            }
            Some(wakes_at) if due < wakes_at => {
                holds.wakes_at = Some(due);
                self.earlier.notify_one();
            }
            Some(_) => {}
        }
    }
}

async fn run(core: Arc<Core>) {
    let mut renewing = FuturesUnordered::new();
    let mut failures = Failures::default();
    loop {
        let next = lock(&core.holds).next();
        let wakes_at = match next {
            Next::Due(hold) => {
                // The application's code that is woken, or receives an event, may panic. That concerns one hold, and no other.
                let done = catch_unwind(AssertUnwindSafe(|| hold.on_due()));
                let renewal = done.ok().flatten();
                renewing.extend(renewal.map(|it| AssertUnwindSafe(it).catch_unwind()));
                continue;
            }
            Next::SleepUntil(wakes_at) => wakes_at,
            Next::End => return,
        };
        mem::take(&mut failures).report(&core);
        let pause = pin!(tokio::time::sleep(wakes_at.next_sleep()));
        let earlier = pin!(core.earlier.notified());
        let answers = pin!(async {
            while let Some(renewed) = renewing.next().await {
                failures.note(renewed.unwrap_or(Ok(())));
            }
            pending::<()>().await;
        });
        select(select(pause, earlier), answers).await;
    }
}

/// The renewals that have failed since they were reported.
#[derive(Default)]
struct Failures {
    holds: usize,
    first: Option<Error>,
}

impl Failures {
    fn note(&mut self, renewed: Result<(), Error>) {
        if let Err(error) = renewed {
            self.holds += 1;
            self.first.get_or_insert(error);
        }
    }

    fn report(self, core: &Core) {
        if let Some(error) = &self.first {
            trace::renewal_failed(&core.endpoint.name, self.holds, error);
        }
    }
}
