//! A lock that a thread holds.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::blocking::park::{wait, wait_until};
use crate::error::{Error, Loss};
use crate::guard::Held;
use crate::release::Released;

/// A lock that is held; see [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// As [`crate::Guard::held`].
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::blocking::Guard) {
    /// let held = guard.held();
    /// std::thread::spawn(move || println!("still held: {}", held.is_valid()));
    /// # }
    /// ```
    pub fn held(&self) -> Held {
        self.0.held()
    }

    /// As [`crate::Guard::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<(), Error> {
        wait(self.0.renew())
    }

    /// As [`crate::Guard::renew_for`].
    ///
    /// # Errors
    /// As there.
    pub fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        wait(self.0.renew_for(lease))
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, Error> {
        wait(self.0.release())
    }

    /// As [`crate::Guard::upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(&mut self) -> Result<(), Error> {
        wait(self.0.upgrade())
    }

    /// As [`crate::Guard::upgrade_within`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade_within(&mut self, limit: Duration) -> Result<(), Error> {
        wait(self.0.upgrade_within(limit))
    }

    /// As [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        wait(self.0.downgrade())
    }

    /// Waits until the lock is lost; at the deadline at the latest.
    ///
    /// ```no_run
    /// # fn example(guard: mortise_client::blocking::Guard) {
    /// println!("no longer the leader: {}", guard.lost());
    /// # }
    /// ```
    pub fn lost(&self) -> Loss {
        wait(self.0.lost())
    }

    /// Waits up to `limit` for the lock to be lost; `None` if it is not.
    pub fn wait_lost(&self, limit: Duration) -> Option<Loss> {
        wait_until(self.0.lost(), Instant::now().checked_add(limit))
    }
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}
