//! A lock by its key, for threads.

use std::time::Duration;

use crate::blocking::Guard;
use crate::blocking::park::wait;
use crate::error::{Error, Loss};
use crate::guard::Held;
use crate::owner::Owner;
use crate::release::Released;

/// A lock by its key, with the terms on which to take it; see [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock(pub(super) crate::Lock);

impl Lock {
    /// As [`crate::Lock::key`].
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) {
    /// assert_eq!(client.lock("stock").key(), b"stock");
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// As [`crate::Lock::lease`].
    pub fn lease(self, lease: Duration) -> Lock {
        Lock(self.0.lease(lease))
    }

    /// As [`crate::Lock::wait`].
    pub fn wait(self, limit: Duration) -> Lock {
        Lock(self.0.wait(limit))
    }

    /// As [`crate::Lock::wait_forever`].
    pub fn wait_forever(self) -> Lock {
        Lock(self.0.wait_forever())
    }

    /// As [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Lock {
        Lock(self.0.owner(owner))
    }

    /// As [`crate::Lock::reentrant`].
    pub fn reentrant(self) -> Lock {
        Lock(self.0.reentrant())
    }

    /// As [`crate::Lock::auto_renew`].
    pub fn auto_renew(self, renew: bool) -> Lock {
        Lock(self.0.auto_renew(renew))
    }

    /// As [`crate::Lock::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Lock {
        Lock(self.0.max_hold(limit))
    }

    /// As [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard, Error> {
        wait(self.0.acquire()).map(Guard)
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_acquire())?.map(Guard))
    }

    /// As [`crate::Lock::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<Guard, Error> {
        self.acquire()
    }

    /// As [`crate::Lock::try_write`].
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire()
    }

    /// As [`crate::Lock::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<Guard, Error> {
        wait(self.0.read()).map(Guard)
    }

    /// As [`crate::Lock::try_read`].
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_read())?.map(Guard))
    }

    /// Runs `work` under the lock and always releases. It cannot be cancelled: it should look at
    /// [`Held::is_valid`] where it matters. The value comes back only if the lock was held to the end.
    ///
    /// # Errors
    /// As for [`crate::Lock::run`].
    pub fn run<T>(&self, work: impl FnOnce(&Held) -> T) -> Result<T, Error> {
        scope(self.acquire()?, work)
    }

    /// Like [`run`](Lock::run), under the lock taken for reading.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) -> Result<(), mortise_client::Error> {
    /// let stock: u32 = client.lock("stock").run_read(|_held| 7)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`crate::Lock::run_read`].
    pub fn run_read<T>(&self, work: impl FnOnce(&Held) -> T) -> Result<T, Error> {
        scope(self.read()?, work)
    }
}

fn scope<T>(guard: Guard, work: impl FnOnce(&Held) -> T) -> Result<T, Error> {
    let value = work(&guard);
    let loss = guard.loss();
    match (loss, guard.release()) {
        (Some(loss), _) => Err(Error::Lost(loss)),
        (None, Ok(Released::Lost)) => Err(Error::Lost(Loss::Denied)),
        (None, _) => Ok(value),
    }
}
