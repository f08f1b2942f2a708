//! Wakes tasks at a moment of the boot-time clock, from a thread of this process that does nothing else: the runtime of
//! whoever waits may have no timers, and the client's may not run.

use std::future::poll_fn;
#[cfg(not(simulated))]
use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(simulated))]
use std::sync::{Condvar, Mutex};
use std::task::{Context, Poll, Waker};
#[cfg(not(simulated))]
use std::time::Duration;

#[cfg(simulated)]
pub(crate) use crate::simulated::Alarm;
use crate::value::BootInstant;
#[cfg(not(simulated))]
use crate::value::lock;

/// What is due when.
#[cfg(not(simulated))]
static ALARMS: Mutex<Schedule<Waker>> = Mutex::new(Schedule::new());
#[cfg(not(simulated))]
static CHANGED: Condvar = Condvar::new();

#[cfg(not(simulated))]
use super::schedule::{Due, Schedule};

/// Wakes its task once the moment has come. Dropped, it leaves nothing behind.
#[cfg(not(simulated))]
#[derive(Debug)]
pub(crate) struct Alarm(Due);

#[cfg(not(simulated))]
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

#[cfg(not(simulated))]
impl Drop for Alarm {
    fn drop(&mut self) {
        // The waker may hold a task, whose end may drop other alarms.
        let waker = lock(&ALARMS).remove(self.0);
        drop(waker);
    }
}

#[cfg(not(simulated))]
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

/// Resolves at that moment, on whatever runtime; at once, if it has passed.
pub(crate) async fn sleep_until(when: BootInstant) {
    let mut sleep = SleepUntil { when, alarm: None };
    poll_fn(|context| sleep.poll(context)).await;
}

struct SleepUntil {
    when: BootInstant,
    alarm: Option<Alarm>,
}

impl SleepUntil {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.alarm = None;
        if self.when.remaining().is_zero() {
            return Poll::Ready(());
        }
        self.alarm = Some(Alarm::at(self.when, context.waker().clone()));
        Poll::Pending
    }
}
