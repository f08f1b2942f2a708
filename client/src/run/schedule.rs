//! What is due when. Holds are renewed, and found lost, by one task for each client, on its runtime, which is there while
//! there is a hold. Whoever waits for a loss is woken at the deadline by a thread, whatever becomes of runtimes: the client's
//! may not run, and others may have no timers.

use std::collections::BTreeMap;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;

use futures_util::StreamExt;
use futures_util::future::select;
use futures_util::stream::FuturesUnordered;

use crate::net::task;
use crate::proto::{Agenda, Slot, Vote};
use crate::run::core::{Due, Renewing};
use crate::run::{Core, trace};
#[cfg(simulated)]
pub(crate) use crate::simulated::wake_at;
use crate::value::{BootInstant, Error, LOOK, lock};

impl Core {
    /// Has it looked at then, not when it was to be. Returns where it is now.
    pub(crate) fn look_at(
        self: &Arc<Self>,
        what: Arc<dyn Due>,
        due: BootInstant,
        slot: Option<Slot>,
    ) -> Slot {
        let mut agenda = lock(&self.agenda);
        if let Some(slot) = slot
            && agenda.remove(slot).is_none()
        {
            // It is looked at now.
            return slot;
        }
        let slot = agenda.add(due, what);
        match agenda.looks.replace(due) {
            None => drop(task::spawn(&self.runtime, run(self.clone()))),
            Some(looks) if due < looks => self.earlier.notify_one(),
            looks => agenda.looks = looks,
        }
        slot
    }
}

/// How many renewals have failed at a server, and why the first.
type Failed = BTreeMap<String, (usize, Error)>;

async fn run(core: Arc<Core>) {
    let next = || lock(&core.agenda).next(BootInstant::now());
    let (mut renewing, mut failed) = (FuturesUnordered::<Renewing>::new(), Failed::new());
    while let Some(next) = next() {
        let next = match next {
            Ok(due) => {
                renewing.extend(due.look(BootInstant::now()));
                continue;
            }
            Err(next) => next,
        };
        for (server, (holds, error)) in std::mem::take(&mut failed) {
            trace::renewal_failed(&server, holds, &error);
        }
        // Timers stand still in suspend.
        let pause = pin!(tokio::time::sleep(next.remaining().min(LOOK)));
        let earlier = pin!(core.earlier.notified());
        let answers = async {
            while let Some(round) = renewing.next().await {
                let votes = round.iter().flat_map(|round| round.iter());
                for (server, vote) in core.servers.iter().zip(votes) {
                    if let Vote::Unknown(error) | Vote::Failed(error) = vote {
                        let failed = failed.entry(server.name.clone());
                        failed.or_insert((0, error.clone())).0 += 1;
                    }
                }
            }
            pending::<()>().await;
        };
        select(select(pause, earlier), pin!(answers)).await;
    }
}

static WAKERS: Mutex<Agenda<Waker>> = Mutex::new(Agenda::new());
static CHANGED: Condvar = Condvar::new();

/// Wakes it then, from a thread of this process that does nothing else. A process that was forked has none of its parent's.
#[cfg(not(simulated))]
pub(crate) fn wake_at(when: BootInstant, waker: Waker) {
    static RUNS_IN: AtomicU32 = AtomicU32::new(0);
    lock(&WAKERS).add(when, waker);
    let process = std::process::id();
    if RUNS_IN.swap(process, Ordering::Relaxed) != process {
        let thread = std::thread::Builder::new().name("mortise-alarm".to_owned());
        // Where there can be no thread, renewal tells of a loss as long as its runtime runs.
        let _ = thread.spawn(wake);
    }
    CHANGED.notify_one();
}

fn wake() {
    let mut wakers = lock(&WAKERS);
    loop {
        let pause = match wakers.next(BootInstant::now()) {
            Some(Ok(waker)) => {
                drop(wakers);
                waker.wake();
                wakers = lock(&WAKERS);
                continue;
            }
            // Sleeps stand still in suspend, where the boot-time clock goes on.
            Some(Err(first)) => first.remaining().min(LOOK),
            None => LOOK * 60,
        };
        let woken = CHANGED.wait_timeout(wakers, pause);
        wakers = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    }
}
