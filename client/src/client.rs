//! A client of one server.

use std::pin::Pin;
use std::sync::Arc;

use crate::builder::{Builder, IntoServer};
use crate::core::Core;
use crate::error::Error;
use crate::info::{self, LockInfo, ServerAnswer, TopEntry};
use crate::lock::Lock;

/// Whatever locks can be taken from: one server ([`Client`]) or a quorum of several ([`Quorum`](crate::Quorum)). Code
/// that asks for this can switch.
///
/// ```no_run
/// use mortise_client::{Client, Error, Locks, Quorum};
///
/// async fn job(locks: &impl Locks) -> Result<(), Error> {
///     locks.lock("job").run(|held| async move { println!("as number {}", held.token()) }).await
/// }
///
/// # async fn example() -> Result<(), Error> {
/// job(&Client::connect("redis://127.0.0.1/").await?).await?;
/// job(&Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?).await
/// # }
/// ```
pub trait Locks: std::fmt::Debug + Send + Sync {
    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use mortise_client::Locks;
    ///
    /// let lock = client.lock_of(b"stock:42");
    /// # Ok(())
    /// # }
    /// ```
    fn lock_of(&self, key: &[u8]) -> Lock;

    /// Who holds a lock and who waits for it, at most 100 of each, as each server sees it: one answer from one server,
    /// and of a quorum all of them, in their order. `None` where nobody does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Locks;
    ///
    /// let answers = client.info_on_each(b"nobody's").await;
    /// assert!(matches!(answers[0].answer, Ok(None)));
    /// # Ok(())
    /// # }
    /// ```
    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>>;

    /// The locks with the most waiters now, at most `count`, the longest queue first, as each server sees it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Locks;
    ///
    /// assert_eq!(client.top_on_each(10).await.len(), 1, "one answer from one server");
    /// # Ok(())
    /// # }
    /// ```
    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>>;

    /// The lock with this key, which may be anything made of bytes.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// use mortise_client::Locks;
    ///
    /// fn stock(locks: &impl Locks, number: u32) -> mortise_client::Lock {
    ///     locks.lock(format!("stock:{number}"))
    /// }
    /// let lock = stock(&client, 42);
    /// # Ok(())
    /// # }
    /// ```
    fn lock(&self, key: impl AsRef<[u8]>) -> Lock
    where
        Self: Sized,
    {
        self.lock_of(key.as_ref())
    }
}

/// What becomes the answer of each server; from [`Locks`]. It borrows nothing.
///
/// ```
/// use mortise_client::{Answers, LockInfo, Locks};
///
/// fn both(locks: &dyn Locks) -> [Answers<Option<LockInfo>>; 2] {
///     [locks.info_on_each(b"a"), locks.info_on_each(b"b")]
/// }
/// ```
pub type Answers<T> = Pin<Box<dyn Future<Output = Vec<ServerAnswer<T>>> + Send>>;

impl Locks for Client {
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.core.clone(), key)
    }

    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>> {
        let (core, cmd) = (self.core.clone(), info::info(key));
        Box::pin(async move { core.ask_each(cmd, LockInfo::parse).await })
    }

    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>> {
        let (core, cmd) = (self.core.clone(), info::top(count));
        Box::pin(async move {
            let parse = |value| TopEntry::parse(value, count);
            core.ask_each(cmd, parse).await
        })
    }
}

/// A client of one server, or of what counts as one: a Sentinel group, a cluster. Clones share its connections.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Client;
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// let other = client.clone();
/// tokio::spawn(async move { other.lock("report").acquire().await });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    pub(crate) fn new(core: Arc<Core>) -> Client {
        Client { core }
    }

    /// Connects to a server: `redis://127.0.0.1/`, `unix:///run/redis.sock`, with the feature `tls` `rediss://…`, or
    /// anything else that is [`IntoServer`]. For certificates that the system does not trust, give a [`redis::Client`]
    /// made with `build_with_tls`.
    ///
    /// Tasks run on the runtime this is called in, and the client lives no longer than that.
    ///
    /// # Errors
    /// [`Error::Connection`] if the server cannot be reached, [`Error::NoModule`] if it does not have the module.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Client, Error};
    ///
    /// match Client::connect("redis://user:password@127.0.0.1:6379/0").await {
    ///     Err(error @ Error::NoModule { .. }) => eprintln!("{error}"), // and how to load it
    ///     other => drop(other?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(server: impl IntoServer) -> Result<Client, Error> {
        Builder::new(server)?.connect().await
    }

    /// Settings, for a client of `server`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address cannot be understood.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?
    ///     .response_timeout(Duration::from_millis(500))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(server: impl IntoServer) -> Result<Builder, Error> {
        Builder::new(server)
    }

    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let lock = client.lock("stock:42");
    /// let also = client.lock([0xff, 0x00]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it, at most 100 of each; `None` if nobody does.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::NoModule`], [`Error::Refused`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert!(client.info("nobody's").await?.is_none());
    /// let guard = client.lock("mine").acquire().await?;
    /// assert!(client.info("mine").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        LockInfo::parse(self.ask(info::info(key.as_ref())).await?)
    }

    /// The locks with the most waiters now, at most `count`, the longest queue first; in a cluster, of all its primaries.
    ///
    /// # Errors
    /// As for [`info`](Client::info).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// assert!(client.top(10).await?.is_empty(), "nobody waits");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        TopEntry::parse(self.ask(info::top(count)).await?, count)
    }

    /// Waits until the server has answered that it has the module.
    pub(crate) async fn find_module(&self) -> Result<(), Error> {
        let node = self.core.nodes[0].clone();
        let task = self
            .core
            .runtime
            .spawn(async move { node.find_module().await });
        task.await.map_err(|_| Error::Closed)?
    }

    async fn ask(&self, cmd: redis::Cmd) -> Result<redis::Value, Error> {
        let node = self.core.nodes[0].clone();
        let task = self.core.runtime.spawn(async move { node.ask(&cmd).await });
        task.await.map_err(|_| Error::Closed)?
    }
}
