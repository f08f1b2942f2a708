//! The critical section under the lock. It counts the clients inside, and so notices a lock granted to two.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A check of the servers at the moment of a grant.
type Probe = Box<dyn Fn() + Send + Sync>;

/// The critical section: clients enter it under the lock.
#[derive(Default)]
pub(crate) struct Room {
    hold: Duration,
    inside: AtomicUsize,
    shared: AtomicUsize,
    probe: Option<Probe>,
}

impl Room {
    /// A critical section in which every client stays for `hold`.
    pub(crate) fn new(hold: Duration) -> Room {
        Room {
            hold,
            ..Room::default()
        }
    }

    /// A critical section with a check of the servers at each entry.
    pub(crate) fn watched(probe: Probe) -> Room {
        Room {
            probe: Some(probe),
            ..Room::default()
        }
    }

    /// How often a client entered while another was inside.
    pub(crate) fn shared(&self) -> usize {
        self.shared.load(Ordering::Relaxed)
    }

    /// Enters, stays and leaves; returns when it entered.
    pub(crate) async fn stay(&self) -> Instant {
        let came = self.enter();
        if !self.hold.is_zero() {
            tokio::time::sleep(self.hold).await;
        }
        self.leave();
        came
    }

    fn enter(&self) -> Instant {
        let came = Instant::now();
        if self.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            self.shared.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(probe) = &self.probe {
            probe();
        }
        came
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("hold", &self.hold)
            .field("inside", &self.inside)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
