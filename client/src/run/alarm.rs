//! Wakes whoever waits for a moment, on whatever runtime, or none: the client's may not run, and others may have no timers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::Waker;

use crate::proto::Agenda;
use crate::value::{BootInstant, LOOK, lock};

static DUE: Mutex<Agenda<Waker>> = Mutex::new(Agenda::new());
static CHANGED: Condvar = Condvar::new();

#[cfg(simulated)]
pub(crate) use crate::simulated::wake_at;

/// Wakes it then, from a thread of this process that does nothing else. A process that was forked has none of its parent's.
#[cfg(not(simulated))]
pub(crate) fn wake_at(when: BootInstant, waker: Waker) {
    static RUNS_IN: AtomicU32 = AtomicU32::new(0);
    lock(&DUE).add(when, waker);
    let process = std::process::id();
    if RUNS_IN.swap(process, Ordering::Relaxed) != process {
        let thread = std::thread::Builder::new().name("mortise-alarm".to_owned());
        // Where there can be no thread, renewal tells of a loss as long as its runtime runs.
        let _ = thread.spawn(run);
    }
    CHANGED.notify_one();
}

fn run() {
    let mut due = lock(&DUE);
    loop {
        if let Some(waker) = due.pop(BootInstant::now()) {
            drop(due);
            waker.wake();
            due = lock(&DUE);
            continue;
        }
        // Sleeps stand still in suspend, where the boot-time clock goes on.
        let first = due.first().map(|first| first.remaining().min(LOOK));
        let pause = first.unwrap_or(LOOK * 60);
        let woken = CHANGED.wait_timeout(due, pause);
        due = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    }
}
