//! A lock that a thread holds.

use std::mem;
use std::ops::Deref;
use std::time::{Duration, Instant};

use crate::blocking::park::{wait, wait_until};
use crate::run::Held;
use crate::value::{ChangeFailed, Error, Loss, Released};

/// A lock that is held; see [`crate::Guard`].
///
/// Dropped, it is released, which is waited for as long as an answer may take: the process may end right after that.
/// [`release`](Guard::release) tells whether the lock was held to the end. In a process that is forked from the one that took
/// the lock a guard is nobody's, and does nothing.
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
pub struct Guard {
    /// There until it is released.
    guard: Option<crate::Guard>,
    process: u32,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Guard {
        Guard {
            guard: Some(guard),
            process: std::process::id(),
        }
    }

    fn any(&self) -> &crate::Guard {
        self.guard.as_ref().expect("a guard until it is released")
    }

    /// The guard, in the process that it was taken in: a fork has copied it, and its client's threads are the parent's alone.
    pub(super) fn inner(&self) -> Result<&crate::Guard, Error> {
        match self.process == std::process::id() {
            true => Ok(self.any()),
            false => Err(Error::Closed),
        }
    }

    fn inner_mut(&mut self) -> Result<&mut crate::Guard, Error> {
        self.inner()?;
        Ok(self.guard.as_mut().expect("a guard until it is released"))
    }

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
        self.any().held()
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
        wait(self.inner()?.renew())
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
        wait(self.inner()?.renew_for(lease))
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
    pub fn release(mut self) -> Result<Released, Error> {
        self.inner()?;
        let guard = self.guard.take();
        guard.map_or(Ok(Released::Lost), |guard| wait(guard.release()))
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
    pub fn upgrade(&mut self) -> Result<(), ChangeFailed> {
        wait(self.inner_mut()?.upgrade())
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
    pub fn upgrade_within(&mut self, limit: Duration) -> Result<(), ChangeFailed> {
        wait(self.inner_mut()?.upgrade_within(limit))
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
    pub fn downgrade(&mut self) -> Result<(), ChangeFailed> {
        wait(self.inner_mut()?.downgrade())
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
    /// let guard = client.lock("job").max_hold(Duration::from_millis(500)).acquire()?;
    /// assert_eq!(guard.lost(), Loss::HoldLimit);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> Loss {
        wait(self.any().lost())
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
    /// let guard = client.lock("job").max_hold(Duration::from_millis(500)).acquire()?;
    /// assert_eq!(guard.wait_lost(Duration::from_secs(60)), Some(Loss::HoldLimit));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_lost(&self, limit: Duration) -> Option<Loss> {
        wait_until(self.any().lost(), Instant::now().checked_add(limit))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        match self.guard.take() {
            Some(guard) if self.process == std::process::id() => {
                let until = Instant::now().checked_add(guard.answer_limit());
                // What is not answered by then is said again in the background.
                let _ = wait_until(guard.release(), until);
            }
            // The parent has it.
            guard => mem::forget(guard),
        }
    }
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        self.any()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::value::clock::BootInstant;

    #[test]
    fn a_guard_whose_runtime_does_not_run_is_lost_at_its_deadline() {
        let server = mortise_harness::Server::start();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let client = crate::Client::connect(server.url()).await.unwrap();
            let lock = client.lock("k").lease(Duration::from_millis(500));
            Guard::new(lock.acquire().await.unwrap())
        });
        let (sender, lost) = mpsc::channel();
        thread::spawn(move || {
            assert_eq!(guard.wait_lost(Duration::from_millis(50)), None);
            sender.send((guard.lost(), BootInstant::now() >= guard.deadline()))
        });
        let lost = lost.recv_timeout(Duration::from_secs(10));
        assert_eq!(lost, Ok((Loss::Expired, true)));
    }
}
