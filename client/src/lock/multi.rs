//! Several locks on one server, all or none (`LOCK.MACQUIRE`): one request and one token. Each is a hold like any other.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::lock::acquire::take;
use crate::lock::attempt::Granted;
use crate::lock::{Ask, Core, Guard, Terms, trace};
use crate::value::{BootInstant, Error, Loss, Mode, Token};
use crate::wire::{Grant, Name};

use crate::lock::client::Client;

impl Client {
    /// The locks of 1 to 16 keys, to be taken together to write: all in one instant, or none. Nothing is held while they are
    /// waited for, so programs that name the same keys in different orders never wait for each other. In a cluster the keys
    /// have one slot, as by a `{hash tag}`. Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let transfer = client.locks(["account:1", "account:2"]).acquire().await?;
    /// println!("write both with fencing token {}", transfer.check()?);
    /// transfer.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> MultiLock {
        let keys: Arc<[Arc<[u8]>]> = keys.into_iter().map(|key| key.as_ref().into()).collect();
        let first = keys.first().map_or(&[][..], |key| key);
        MultiLock {
            core: self.0.clone(),
            terms: Terms {
                keys: Some(keys.clone()),
                ..Terms::new(first)
            },
        }
    }
}

/// Several locks that are taken together; from [`Client::locks`]. On one server only.
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// use std::time::Duration;
///
/// let both = client.locks(["a", "b"]).lease(Duration::from_secs(30)).wait(Duration::from_secs(5));
/// both.acquire().await?.release().await
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "locks hold nothing until they are acquired"]
pub struct MultiLock {
    core: Arc<Core>,
    terms: Terms,
}

impl MultiLock {
    /// As [`Lock::lease`](crate::Lock::lease), for each.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let both = client.locks(["a", "b"]).lease(std::time::Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> MultiLock {
        self.terms.lease = lease;
        self
    }

    /// As [`Lock::wait`](crate::Lock::wait), for all of them.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let both = client.locks(["a", "b"]).wait(std::time::Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> MultiLock {
        self.terms.wait = Some(limit);
        self
    }

    /// Takes all of them.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire); [`Error::Invalid`] without a key, and [`Error::Refused`] for a key that is
    /// named twice, for too many, and in a cluster for keys of several slots.
    ///
    /// # Cancel safety
    /// Dropping the future at any point leaves no lock and no place in a queue behind, at no key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let both = client.locks(["a", "b"]).acquire().await?;
    /// assert_eq!(both.guards()[0].token(), both.guards()[1].token());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        let (started, key) = (BootInstant::now(), &self.terms.key);
        if self.terms.keys.as_ref().is_none_or(|keys| keys.is_empty()) {
            return Err(Error::Invalid("several locks are at least one".to_owned()));
        }
        let names = &self.core.names;
        let taking = take::<MultiGuard>(&self.core, names, &self.terms, Mode::Write);
        let taken = trace::acquiring(key, Mode::Write, taking).await;
        match &taken {
            Ok(all) => trace::granted(key, Mode::Write, all.token(), started.elapsed()),
            Err(error) => trace::refused(key, Mode::Write, error),
        }
        taken
    }

    /// Takes all of them if they are free now; `None` otherwise.
    ///
    /// # Errors
    /// As for [`acquire`](MultiLock::acquire), but never [`Error::Busy`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("b").acquire().await?;
    /// assert!(client.locks(["a", "b"]).try_acquire().await?.is_none());
    /// assert!(client.info("a").await?.is_none(), "none of them");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        Error::unless_busy(self.clone().wait(Duration::ZERO).acquire().await)
    }
}

/// Several locks that are held, by one token; from [`MultiLock`]. Each is renewed by itself, all in one pipeline. Dropped, it
/// releases them in the background.
///
/// ```no_run
/// # async fn job() {}
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// let both = client.locks(["a", "b"]).acquire().await?;
/// tokio::select! {
///     _ = job() => both.release().await?,
///     loss = both.lost() => eprintln!("stopped: {loss}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the locks are released as soon as their guard is dropped"]
pub struct MultiGuard(Vec<Guard>);

impl Granted for MultiGuard {
    fn new(core: &Arc<Core>, name: &Name, grant: Grant, ask: &Ask) -> Result<MultiGuard, Error> {
        let guards = name.each().map(|name| Guard::new(core, &name, grant, ask));
        guards.collect::<Result<_, _>>().map(MultiGuard)
    }

    fn guards(&self) -> &[Guard] {
        &self.0
    }
}

impl MultiGuard {
    /// Each of them, in the order of the keys.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(both: mortise_client::MultiGuard) {
    /// both.guards().iter().for_each(|guard| println!("{guard:?}"));
    /// # }
    /// ```
    pub fn guards(&self) -> &[Guard] {
        &self.0
    }

    /// The fencing token of all of them.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(both: mortise_client::MultiGuard) {
    /// println!("UPDATE … WHERE fence <= {}", both.token());
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.0[0].token()
    }

    /// That all of them are still held, and their token; as [`Held::check`](crate::Held::check).
    ///
    /// # Errors
    /// [`Error::Lost`] if one is not.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(both: mortise_client::MultiGuard) -> Result<(), mortise_client::Error> {
    /// let fence = both.check()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<Token, Error> {
        self.0
            .iter()
            .try_for_each(|guard| guard.check().map(drop))?;
        Ok(self.token())
    }

    /// Waits until one of them is lost or released; as [`Held::lost`](crate::Held::lost).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(both: mortise_client::MultiGuard) {
    /// eprintln!("stopped: {}", both.lost().await);
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let lost = select_all(self.0.iter().map(|guard| guard.lost()));
        async move { lost.await.0 }
    }

    /// Gives all of them back, in one pipeline. It succeeds if all were held until then.
    ///
    /// # Errors
    /// As for [`Guard::release`], the first one.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the releases.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(both: mortise_client::MultiGuard) -> Result<(), mortise_client::Error> {
    /// both.release().await
    /// # }
    /// ```
    pub fn release(self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let releasing: Vec<_> = self.0.into_iter().map(Guard::release).collect();
        async move { join_all(releasing).await.into_iter().collect() }
    }
}
