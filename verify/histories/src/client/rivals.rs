//! The crates `rslock` and `redlock`, used as their documentation shows. Neither tries again by itself here: the task does.

use std::time::Duration;

use super::job::Job;
use super::other::{Other, Taken};
use crate::history::now;

pub(crate) struct Rslock {
    manager: rslock::LockManager,
    runtime: tokio::runtime::Runtime,
    lease: Duration,
}

impl Other for Rslock {
    type Held = rslock::Lock;

    fn connect(job: &Job) -> Rslock {
        let mut manager = rslock::LockManager::new(job.place.urls());
        manager.set_retry(1, Duration::from_millis(1));
        Rslock {
            manager,
            runtime: tokio::runtime::Runtime::new().expect("threads can be started"),
            lease: job.lease(),
        }
    }

    fn take(&mut self, key: &str, _: &str) -> Option<Taken<rslock::Lock>> {
        let lock = self.manager.lock(key.as_bytes(), self.lease);
        let held = self.runtime.block_on(lock).ok()?;
        let until = believed(held.validity_time, self.lease);
        Some(Taken { held, until })
    }

    fn release(&mut self, held: rslock::Lock) {
        self.runtime.block_on(held.release());
    }
}

pub(crate) struct Redlock {
    /// Its locks borrow it, and are released by the task that took them, which never ends before the process.
    manager: &'static redlock::RedLock,
    lease: Duration,
}

impl Other for Redlock {
    type Held = redlock::Lock<'static>;

    fn connect(job: &Job) -> Redlock {
        let mut manager = redlock::RedLock::new(job.place.urls());
        manager.set_retry(1, 1);
        Redlock {
            manager: Box::leak(Box::new(manager)),
            lease: job.lease(),
        }
    }

    fn take(&mut self, key: &str, _: &str) -> Option<Taken<redlock::Lock<'static>>> {
        let lease = self.lease.as_millis() as usize;
        let held = self.manager.lock(key.as_bytes(), lease).ok()??;
        let until = believed(held.validity_time, self.lease);
        Some(Taken { held, until })
    }

    fn release(&mut self, held: redlock::Lock<'static>) {
        self.manager.unlock(&held);
    }
}

/// Until when a lock counts as held that the crate calls valid for so many milliseconds. The subtraction in `redlock` can go below zero and
/// wrap, so it is never longer than the lease.
fn believed(valid: usize, lease: Duration) -> u64 {
    let valid = Duration::from_millis(valid as u64).min(lease);
    now() + valid.as_nanos() as u64
}
