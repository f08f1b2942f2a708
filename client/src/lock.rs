//! A lock by its key: how to take it.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Wait};
use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::held::Held;
use crate::hold::Terms;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::owner::Owner;

/// A lock by its key, with the terms on which to take it. From [`Locks::lock`](crate::Locks::lock).
///
/// It is a mutex by [`acquire`](Lock::acquire), and a read/write lock by [`read`](Lock::read) and [`write`](Lock::write);
/// `acquire` and `write` are the same. It holds nothing itself: clone it, keep it, use it from many tasks.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::{Client, Error, Released};
/// use std::time::Duration;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let lock = client.lock("stock:42").lease(Duration::from_secs(30)).wait(Duration::from_secs(5));
/// match lock.acquire().await {
///     Ok(guard) => {
///         // … write with guard.token() …
///         if guard.release().await? != Released::Held {
///             eprintln!("somebody else may have had the lock meanwhile");
///         }
///     }
///     Err(Error::Busy { waited }) => eprintln!("still taken after {waited:?}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock {
    core: Arc<Core>,
    key: Arc<[u8]>,
    owner: Option<Owner>,
    lease: Duration,
    wait: Wait,
    renew: bool,
    reentrant: bool,
    max_hold: Option<Duration>,
}

impl Lock {
    pub(crate) fn new(core: Arc<Core>, key: &[u8]) -> Lock {
        Lock {
            core,
            key: key.into(),
            owner: None,
            lease: Lease::DEFAULT,
            wait: Wait::Forever,
            renew: true,
            reentrant: false,
            max_hold: None,
        }
    }

    /// The key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert_eq!(client.lock("stock:42").key(), b"stock:42");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How long the lock stays taken if its holder dies: 10 seconds unless set, at least a millisecond, in whole
    /// milliseconds. A holder that lives renews it at a third of that.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("report").lease(Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Lock {
        self.lease = lease;
        self
    }

    /// Waits up to `limit` for others to leave; zero does not wait. Without it, there is no limit.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Error;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("report").wait(Duration::from_millis(20));
    /// let first = lock.acquire().await?;
    /// assert!(matches!(lock.acquire().await, Err(Error::Busy { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Lock {
        self.wait = if limit.is_zero() {
            Wait::No
        } else {
            Wait::Limit(limit)
        };
        self
    }

    /// Waits without limit for others to leave, as is the default.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("report").wait(Duration::from_secs(5));
    /// let patient = lock.clone().wait_forever();
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_forever(mut self) -> Lock {
        self.wait = Wait::Forever;
        self
    }

    /// Takes the lock as `owner`, so that deadlocks are found between owners. Without it, every acquisition is made by a
    /// new owner.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::{Error, Owner};
    ///
    /// let me = Owner::new();
    /// let guard = client.lock("a").owner(&me).acquire().await?;
    /// assert_eq!(guard.owner(), me.name());
    /// // The same task again: it would wait for itself.
    /// assert!(matches!(client.lock("a").owner(&me).acquire().await, Err(Error::AlreadyHeld)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Lock {
        self.owner = Some(owner.clone());
        self
    }

    /// Lets an owner that holds the lock take it again; it is free when every guard is released. Means something only
    /// together with [`owner`](Lock::owner).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Owner;
    ///
    /// let lock = client.lock("a").owner(&Owner::new()).reentrant();
    /// let outer = lock.acquire().await?;
    /// let inner = lock.acquire().await?;
    /// assert_eq!(inner.token(), outer.token());
    /// inner.release().await?;
    /// assert!(outer.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn reentrant(mut self) -> Lock {
        self.reentrant = true;
        self
    }

    /// Whether to renew in the background; `true` unless set. Without it the lock is lost when its lease is over, unless
    /// [`Guard::renew`] is called.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Loss;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("short").lease(Duration::from_millis(50)).auto_renew(false);
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn auto_renew(mut self, renew: bool) -> Lock {
        self.renew = renew;
        self
    }

    /// The longest time to hold the lock, however often it is renewed: a holder that is stuck loses it then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Loss;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("job").max_hold(Duration::from_millis(50)).acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::HoldLimit);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Lock {
        self.max_hold = Some(limit);
        self
    }

    /// Takes the lock for writing: alone.
    ///
    /// # Errors
    /// [`Error::Busy`] if others held it for as long as the wait may last, [`Error::Deadlock`], [`Error::AlreadyHeld`],
    /// [`Error::NoQuorum`], [`Error::NoModule`], [`Error::TooManyWaits`], [`Error::Refused`] with the server's error,
    /// [`Error::Invalid`] for a lease below a millisecond, [`Error::Connection`]; [`Error::Lost`] if the lock was granted,
    /// and its lease over before the guard could be handed out.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves neither lock nor place in the queue behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("stock:42").acquire().await?;
    /// // … only this task is here …
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.take(Mode::Write, self.wait).await
    }

    /// Takes the lock for writing if it is free now; `None` if others hold it or queue for it.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire), but never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("job");
    /// let first = lock.try_acquire().await?;
    /// assert!(first.is_some());
    /// assert!(lock.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_take(Mode::Write).await
    }

    /// Takes the lock for writing; the same as [`acquire`](Lock::acquire).
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Mode;
    ///
    /// let guard = client.lock("report").write().await?;
    /// assert_eq!(guard.mode(), Mode::Write);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn write(&self) -> Result<Guard, Error> {
        self.acquire().await
    }

    /// The same as [`try_acquire`](Lock::try_acquire).
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let reader = lock.read().await?;
    /// assert!(lock.try_write().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire().await
    }

    /// Takes the lock for reading: together with other readers.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Lock::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let (one, two) = (lock.read().await?, lock.read().await?);
    /// assert!(one.is_valid() && two.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(&self) -> Result<Guard, Error> {
        self.take(Mode::Read, self.wait).await
    }

    /// Takes the lock for reading if no writer holds it or queues for it now.
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let writer = lock.write().await?;
    /// assert!(lock.try_read().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.try_take(Mode::Read).await
    }

    /// Runs `work` under the lock, taken for writing: cancels it when the lock is lost, and always releases.
    ///
    /// The value comes back only if the lock was held to the end.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire); [`Error::Lost`] if the lock was lost before `work` had ended.
    ///
    /// ```no_run
    /// # async fn charge(order: u64, fence: u64) {}
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// client.lock("order:7").run(|held| async move { charge(7, held.token().get()).await }).await
    /// # }
    /// ```
    pub async fn run<T, F>(&self, work: impl FnOnce(Held) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        crate::scope::run(self.acquire().await?, work).await
    }

    /// Like [`run`](Lock::run), under the lock taken for reading.
    ///
    /// # Errors
    /// As for [`run`](Lock::run).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("report");
    /// let length = lock.run_read(|_| async { "the report".len() }).await?;
    /// assert_eq!(length, 10);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_read<T, F>(&self, work: impl FnOnce(Held) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        crate::scope::run(self.read().await?, work).await
    }

    async fn try_take(&self, mode: Mode) -> Result<Option<Guard>, Error> {
        match self.take(mode, Wait::No).await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take(&self, mode: Mode, wait: Wait) -> Result<Guard, Error> {
        let terms = Terms {
            mode,
            lease: Lease::new(self.lease)?,
            renew: self.renew,
            max_hold: self.max_hold,
        };
        let (owner, slot) = match &self.owner {
            Some(owner) => (owner.shared_name(), owner.slot(self.core.id, &self.key)),
            None => (Owner::new().shared_name(), acquire::new_slot()),
        };
        acquire::submit(acquire::Request {
            core: self.core.clone(),
            key: self.key.clone(),
            owner,
            slot,
            terms,
            wait,
            reentrant: self.reentrant,
            part_of: None,
        })
        .await
    }
}
