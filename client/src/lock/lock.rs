//! A lock by its key, and the terms on which to take it.

use std::sync::Arc;
use std::time::Duration;

use crate::lock::{Owner, Source, Terms};

/// A lock by its key, with the terms on which to take it. From [`Locks::lock`](crate::Locks::lock).
///
/// It is a mutex by [`acquire`](Lock::acquire), and a read/write lock by [`read`](Lock::read) and [`write`](Lock::write);
/// `acquire` and `write` are the same. It holds nothing itself: clone it, keep it, use it from many tasks.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::{Client, Error};
/// use std::time::Duration;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let lock = client.lock("stock:42").lease(Duration::from_secs(30)).wait(Duration::from_secs(5));
/// match lock.acquire().await {
///     Ok(guard) => {
///         // … write with guard.token() …
///         guard.release().await?; // an error, if somebody else may have had the lock meanwhile
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
    pub(super) source: Arc<dyn Source>,
    pub(super) terms: Terms,
    pub(super) owner: Option<Owner>,
    pub(super) is_reentrant: bool,
}

impl Lock {
    pub(crate) fn new(source: Arc<dyn Source>, key: &[u8]) -> Lock {
        Lock {
            source,
            terms: Terms::new(key),
            owner: None,
            is_reentrant: false,
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
        &self.terms.key
    }
}

impl Lock {
    /// How long the lock stays taken if its holder dies: 10 seconds by default, at least a millisecond, in whole
    /// milliseconds. A living holder renews it at a third of that.
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
        self.terms.lease = lease;
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
        self.terms.wait = Some(limit);
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
        self.terms.wait = None;
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
    /// assert!(guard.owner().starts_with(me.name()), "and a number of its own");
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
        self.is_reentrant = true;
        self
    }

    /// Whether to renew in the background; `true` unless set. Without it the lock is lost when its lease is over, unless
    /// [`Guard::renew`](crate::Guard::renew) is called.
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
    /// let lock = client.lock("short").lease(Duration::from_millis(500)).auto_renew(false);
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::Expired);
    /// # Ok(())
    /// # }
    /// ```
    pub fn auto_renew(mut self, renew: bool) -> Lock {
        self.terms.renews = renew;
        self
    }

    /// The longest time to hold the lock, however often it is renewed: a holder that is stuck loses it then, and one that
    /// dies blocks others no longer, even if its lease is longer. Over a quorum it has the same minimum as a lease.
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
    /// let guard = client.lock("job").max_hold(Duration::from_millis(500)).acquire().await?;
    /// assert_eq!(guard.lost().await, Loss::HoldLimit);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Lock {
        self.terms.max_hold = Some(limit);
        self
    }

    /// Keeps the lock taken for `least` after its grant, however early it is given back: a job that does this runs at most once
    /// in that time, however short it is. What is left of the time begins when the guard is released or dropped: the server then
    /// passes the lock to a name that nobody uses (`LOCK.PASS`), with that as its lease.
    ///
    /// It promises nothing about holds that end in another way. A lost hold, or one whose holder dies, is free when its lease is
    /// over; so is a revoked one, which cannot be passed on. While the server grants nothing (`lock.grace`) it passes
    /// nothing on either: then the release fails, and the lock is free once it was repeated.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("mail:daily").at_least(Duration::from_secs(60));
    /// lock.acquire().await?.release().await?;
    /// assert!(lock.try_acquire().await?.is_none(), "for a minute");
    /// # Ok(())
    /// # }
    /// ```
    pub fn at_least(mut self, least: Duration) -> Lock {
        self.terms.at_least = least;
        self
    }
}
