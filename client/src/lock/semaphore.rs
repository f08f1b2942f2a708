//! Permits: a lock that a limited number share.

use std::time::Duration;

use crate::lock::client::Client;
use crate::lock::{Guard, Lock};
use crate::value::Error;
use crate::wire::command::Permits;

impl Lock {
    /// Shares the lock up to a total of `limit` permits, each request taking as many as it asks for: the lock is a semaphore.
    ///
    /// The server checks the limit when it grants a request, and stores none: all users of the key name the same. A writer of
    /// the lock queues with the others, and has it alone.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let pool = client.lock("pool").wait(Duration::from_millis(10)).limit(2);
    /// let (one, two) = (pool.acquire(1).await?, pool.acquire(1).await?);
    /// assert!(pool.acquire(1).await.unwrap_err().is_busy());
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(self, limit: u32) -> Semaphore {
        Semaphore { lock: self, limit }
    }
}

impl Client {
    /// The semaphore with this key, which has so many permits: a [`Lock`] with a [`limit`](Lock::limit). Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let pool = client.semaphore("pool", 10);
    /// let many = pool.acquire(8).await?;
    /// assert!(pool.try_acquire(3).await?.is_none());
    /// many.release().await?;
    /// assert!(pool.try_acquire(3).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, key: impl AsRef<[u8]>, limit: u32) -> Semaphore {
        self.lock(key).limit(limit)
    }
}

/// A lock that is shared up to a number of permits; from [`Client::semaphore`], or from [`Lock::limit`] with all terms of a
/// lock. On one server only: over a quorum each of three holders could have two permits of two
/// ([why](crate#what-it-does-not-do)).
///
/// A guard has all permits that it was acquired with, and gives them back together. It holds the lock to read.
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// let pool = client.semaphore("pool", 10);
/// let guard = pool.acquire(3).await?;
/// println!("three of ten, until {:?}", guard.deadline());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a semaphore gives no permits until they are acquired"]
pub struct Semaphore {
    lock: Lock,
    limit: u32,
}

impl Semaphore {
    /// As [`Lock::lease`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let pool = client.semaphore("pool", 10).lease(std::time::Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Semaphore {
        self.lock = self.lock.lease(lease);
        self
    }

    /// As [`Lock::wait`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let pool = client.semaphore("pool", 10).wait(std::time::Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Semaphore {
        self.lock = self.lock.wait(limit);
        self
    }

    /// Takes so many permits together, or none. Requests are served in their order: one for few permits does not overtake
    /// one for many.
    ///
    /// # Errors
    /// As for [`Lock::acquire`]; [`Error::Invalid`] for no permits, or more than there are; [`Error::NotOverQuorum`];
    /// [`Error::AlreadyHeld`] if the lock's [`owner`](Lock::owner) has permits: they are not added to.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.semaphore("pool", 10).acquire(3).await?;
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self, permits: u32) -> Result<Guard, Error> {
        self.of(permits)?.read().await
    }

    /// Takes so many permits if they are free now, and nobody queues for more; `None` otherwise.
    ///
    /// # Errors
    /// As for [`acquire`](Semaphore::acquire), but never [`Error::Busy`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert!(client.semaphore("pool", 10).try_acquire(10).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self, permits: u32) -> Result<Option<Guard>, Error> {
        self.of(permits)?.try_read().await
    }

    /// The lock that is read by so many permits.
    fn of(&self, permits: u32) -> Result<Lock, Error> {
        let mut lock = self.lock.clone();
        lock.terms.permits = Some(Permits::new(permits, self.limit)?);
        Ok(lock)
    }
}
