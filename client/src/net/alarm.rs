//! Wakes tasks at a moment of the boot-time clock, from a thread of this process that does nothing else: the caller's runtime
//! may have no timers, and the client's may not run. (A simulation has alarms of its own.)

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::Waker;
use std::time::Duration;

use super::schedule::{Due, Schedule};
use crate::value::{BootInstant, lock};

/// The wakers, by when they are due.
static ALARMS: Mutex<Schedule<Waker>> = Mutex::new(Schedule::new());
static CHANGED: Condvar = Condvar::new();

/// Wakes its task once the moment has come. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Alarm(Due);

impl Alarm {
    pub(crate) fn at(when: BootInstant, waker: Waker) -> Alarm {
        /// The process that the thread is in: one that was forked has no threads of its parent's.
        static RUNS_IN: AtomicU32 = AtomicU32::new(0);
        let mut alarms = lock(&ALARMS);
        let is_first = alarms.first().is_none_or(|first| when < first);
        let alarm = Alarm(alarms.add(when, waker));
        drop(alarms);
        let process = std::process::id();
        if RUNS_IN.swap(process, Ordering::Relaxed) != process {
            let thread = std::thread::Builder::new().name("mortise-alarm".to_owned());
            // If there can be no thread, renewal reports a loss as long as its runtime runs.
            let _ = thread.spawn(ring);
        }
        if is_first {
            CHANGED.notify_one();
        }
        alarm
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // The waker may hold a task, whose end may drop other alarms.
        let waker = lock(&ALARMS).remove(self.0);
        drop(waker);
    }
}

fn ring() {
    let mut alarms = lock(&ALARMS);
    loop {
        let pause = match alarms.first() {
            Some(first) if first <= BootInstant::now() => {
                let waker = alarms.pop_first();
                drop(alarms);
                waker.into_iter().for_each(Waker::wake);
                alarms = lock(&ALARMS);
                continue;
            }
            Some(first) => first.next_sleep(),
            None => Duration::from_secs(60),
        };
        let woken = CHANGED.wait_timeout(alarms, pause);
        alarms = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
    }
}
