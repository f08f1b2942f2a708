//! A lock by its key, for threads.

use std::sync::Arc;
use std::time::Duration;

use crate::api::client::sealed::Locks;
use crate::api::settings::setters;
use crate::blocking::guard::Guard;
use crate::blocking::park::{Source, wait};
use crate::run::{Held, Owner, Request};
use crate::value::{Error, Loss, Released};

/// A lock by its key, with the terms on which to take it; see [`crate::Lock`].
///
/// ```
/// # fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::blocking::Client::connect(server.url())?;
/// use mortise_client::{Error, Owner};
/// use std::time::Duration;
///
/// let lock = client
///     .lock("stock:42")
///     .lease(Duration::from_secs(10))
///     .wait(Duration::from_millis(20));
/// let guard = lock.acquire()?; // or write()
/// assert!(matches!(lock.acquire(), Err(Error::Busy { .. })));
/// assert!(lock.try_acquire()?.is_none()); // or try_write()
/// guard.release()?;
///
/// let readers = (lock.read()?, lock.try_read()?);
/// drop(readers);
///
/// let mine = lock.wait_forever().owner(&Owner::new()).reentrant();
/// let (outer, inner) = (mine.acquire()?, mine.acquire()?);
/// assert_eq!(outer.token(), inner.token());
/// drop((outer, inner));
///
/// let brief = mine.auto_renew(false).max_hold(Duration::from_secs(60));
/// brief.run(|held| held.check().map(drop))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock {
    source: Arc<Source>,
    request: Request,
}

impl Lock {
    pub(super) fn new(source: Arc<Source>, key: &[u8]) -> Lock {
        let request = Request::new(key);
        Lock { source, request }
    }

    /// The lock in this process.
    fn here(&self) -> Result<crate::Lock, Error> {
        let client = self.source.here()?;
        Ok(crate::Lock::of(client.core().clone(), self.request.clone()))
    }

    /// As [`crate::Lock::key`].
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) {
    /// assert_eq!(client.lock("stock").key(), b"stock");
    /// # }
    /// ```
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// assert_eq!(client.lock("a").key(), b"a");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.request.key
    }
}

setters! { Lock {

    /// As [`crate::Lock::lease`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a").lease(Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    lease(lease: Duration) => .request.lease = lease;

    /// As [`crate::Lock::wait`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a").wait(Duration::from_millis(20));
    /// let first = lock.acquire()?;
    /// assert!(lock.acquire().is_err_and(|error| error.is_busy()));
    /// # Ok(())
    /// # }
    /// ```
    wait(limit: Duration) => .request.wait = Some(limit);

    /// As [`crate::Lock::wait_forever`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("a").wait_forever();
    /// # Ok(())
    /// # }
    /// ```
    wait_forever() => .request.wait = None;

    /// As [`crate::Lock::owner`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let me = mortise_client::Owner::new();
    /// let guard = client.lock("a").owner(&me).acquire()?;
    /// assert!(guard.owner().starts_with(me.name()));
    /// # Ok(())
    /// # }
    /// ```
    owner(owner: &Owner) => .request.owner = Some(owner.clone());

    /// As [`crate::Lock::reentrant`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("a").owner(&mortise_client::Owner::new()).reentrant();
    /// let (outer, inner) = (lock.acquire()?, lock.acquire()?);
    /// assert_eq!(outer.token(), inner.token());
    /// # Ok(())
    /// # }
    /// ```
    reentrant() => .request.reentrant = true;

    /// As [`crate::Lock::auto_renew`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("a").auto_renew(false);
    /// # Ok(())
    /// # }
    /// ```
    auto_renew(renew: bool) => .request.renews = renew;

    /// As [`crate::Lock::max_hold`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a").max_hold(Duration::from_secs(3600));
    /// # Ok(())
    /// # }
    /// ```
    max_hold(limit: Duration) => .request.max_hold = Some(limit);
} }

impl Lock {
    /// As [`crate::Lock::acquire`].
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
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> Result<Guard, Error> {
        wait(self.here()?.acquire()).map(Guard::new)
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("a");
    /// let first = lock.try_acquire()?;
    /// assert!(first.is_some() && lock.try_acquire()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.here()?.try_acquire())?.map(Guard::new))
    }

    /// As [`crate::Lock::write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// use mortise_client::Mode;
    ///
    /// assert_eq!(client.lock("a").write()?.mode(), Mode::Write);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self) -> Result<Guard, Error> {
        self.acquire()
    }

    /// As [`crate::Lock::try_write`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let reader = client.lock("a").read()?;
    /// assert!(client.lock("a").try_write()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire()
    }

    /// As [`crate::Lock::read`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let lock = client.lock("a");
    /// let readers = (lock.read()?, lock.read()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self) -> Result<Guard, Error> {
        wait(self.here()?.read()).map(Guard::new)
    }

    /// As [`crate::Lock::try_read`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let writer = client.lock("a").write()?;
    /// assert!(client.lock("a").try_read()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.here()?.try_read())?.map(Guard::new))
    }

    /// Runs `work` under the lock and always releases. It cannot be cancelled: it should look at
    /// [`Held::is_valid`] where it matters. The value comes back only if the lock was held to the end.
    ///
    /// # Errors
    /// As for [`crate::Lock::run`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let stock = client.lock("stock:42").run(|held| {
    ///     assert!(held.is_valid());
    ///     Ok::<_, mortise_client::Error>(41)
    /// })?;
    /// assert_eq!(stock, 41);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<T, E: From<Error>>(&self, work: impl FnOnce(&Held) -> Result<T, E>) -> Result<T, E> {
        scope(self.acquire()?, work)
    }

    /// Like [`run`](Lock::run), under the lock taken for reading.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::blocking::Client) -> Result<(), mortise_client::Error> {
    /// let stock: u32 = client.lock("stock").run_read(|_held| Ok::<_, mortise_client::Error>(7))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`crate::Lock::run_read`].
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::blocking::Client::connect(server.url())?;
    /// let stock = client.lock("stock:42").run_read(|_| Ok::<_, mortise_client::Error>(41))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_read<T, E: From<Error>>(
        &self,
        work: impl FnOnce(&Held) -> Result<T, E>,
    ) -> Result<T, E> {
        scope(self.read()?, work)
    }
}

fn scope<T, E: From<Error>>(
    guard: Guard,
    work: impl FnOnce(&Held) -> Result<T, E>,
) -> Result<T, E> {
    let value = work(&guard)?;
    match (guard.loss(), guard.release()) {
        (Some(loss), _) => Err(Error::Lost(loss).into()),
        (None, Ok(Released::Lost)) => Err(Error::Lost(Loss::Denied).into()),
        // Held when the work ended; that the release has not been answered takes nothing from that.
        (None, _) => Ok(value),
    }
}
