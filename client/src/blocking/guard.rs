//! A lock that a thread holds.

use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::blocking::park::{wait, wait_until};
use crate::error::{Error, Loss};
use crate::held::Held;
use crate::release::Released;

/// A lock that is held; see [`crate::Guard`].
///
/// ```
/// # fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::blocking::Client::connect(server.url())?;
/// use std::time::Duration;
///
/// let mut guard = client.lock("report").read()?;
/// guard.upgrade()?; // or upgrade_within(…)
/// println!("write with fencing token {}", guard.token());
/// guard.downgrade()?;
/// guard.renew()?;
/// guard.renew_for(Duration::from_secs(60))?;
/// assert!(guard.is_valid());
/// assert!(guard.release()?.was_held());
/// # Ok(())
/// # }
/// ```
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
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let guard = client.lock("a").acquire()?;
    /// assert!(guard.held().is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn held(&self) -> Held {
        self.0.held()
    }

    /// As [`crate::Guard::renew`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let guard = client.lock("a").auto_renew(false).acquire()?;
    /// guard.renew()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew(&self) -> Result<(), Error> {
        wait(self.0.renew())
    }

    /// As [`crate::Guard::renew_for`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let guard = client.lock("a").acquire()?;
    /// guard.renew_for(std::time::Duration::from_secs(60))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        wait(self.0.renew_for(lease))
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let guard = client.lock("a").acquire()?;
    /// assert!(guard.release()?.was_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(self) -> Result<Released, Error> {
        wait(self.0.release())
    }

    /// As [`crate::Guard::upgrade`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let mut guard = client.lock("a").read()?;
    /// guard.upgrade()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade(&mut self) -> Result<(), Error> {
        wait(self.0.upgrade())
    }

    /// As [`crate::Guard::upgrade_within`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let mut guard = client.lock("a").read()?;
    /// guard.upgrade_within(std::time::Duration::from_secs(1))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn upgrade_within(&mut self, limit: Duration) -> Result<(), Error> {
        wait(self.0.upgrade_within(limit))
    }

    /// As [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let mut guard = client.lock("a").write()?;
    /// guard.downgrade()?;
    /// assert!(client.lock("a").try_read()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
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
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::Loss;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("job").max_hold(Duration::from_millis(50)).acquire()?;
    /// assert_eq!(guard.lost(), Loss::HoldLimit);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> Loss {
        wait(self.0.lost())
    }

    /// Waits up to `limit` for the lock to be lost; `None` if it is not.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::Loss;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("job").max_hold(Duration::from_millis(50)).acquire()?;
    /// assert_eq!(guard.wait_lost(Duration::from_secs(60)), Some(Loss::HoldLimit));
    /// # Ok(())
    /// # }
    /// ```
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
