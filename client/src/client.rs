//! A client of one server, or of what counts as one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisResult;
use redis::aio::MultiplexedConnection;

use crate::builder::Builder;
use crate::connect::{Connect, SOME_SERVER, address};
use crate::core::Core;
use crate::error::{Error, Failed};
use crate::inspect::{LockInfo, TopEntry};
use crate::lock::Lock;
use crate::name::Bytes;
use crate::request;
use crate::settings::Source;

/// A client of one server, or of what counts as one: a Sentinel group, a cluster. Clones share its connections: one for all commands
/// and one that collects the answers of those who wait, to each server.
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
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Core>);

impl Client {
    /// Connects to the server at this URL, and finds out whether it has the module.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that cannot be understood; [`Error::Connection`], [`Error::NoModule`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let client = mortise_client::Client::connect("redis://127.0.0.1/").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(url: impl AsRef<str>) -> Result<Client, Error> {
        Client::builder(url)?.connect().await
    }

    /// Returns settings for a client of the server at this URL: `redis://`, `rediss://` (feature `tls`), or `unix://`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL that cannot be understood.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use std::time::Duration;
    ///
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.lease(Duration::from_secs(30)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: impl AsRef<str>) -> Result<Builder<Client>, Error> {
        let connect = Connect::to(address(url.as_ref())?);
        Ok(Builder::new(Source::Server(connect), Client))
    }

    /// Returns settings for a client whose connections this closure opens: each time one is needed for the first time, or has broken.
    /// The connections' own limit for a reply is lifted: the client has one for each call.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Client, redis};
    ///
    /// let redis = redis::Client::open("redis://127.0.0.1/").expect("an address");
    /// let client = Client::with(move || {
    ///     let redis = redis.clone();
    ///     async move { redis.get_multiplexed_async_connection().await }
    /// });
    /// let client = client.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn with<F, C>(connect: F) -> Builder<Client>
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        let connect = Connect::new(SOME_SERVER, move |_| connect()).without_limit();
        Builder::new(Source::Server(connect), Client)
    }

    /// Returns settings for a client of a Redis Cluster, by the URLs of some of its nodes. User, password and TLS are those of the
    /// first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a URL cannot be understood, or there is none.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let nodes = ["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/"];
    /// let client = mortise_client::Client::cluster(nodes)?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    pub fn cluster<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Builder<Client>, Error> {
        let seeds = urls.into_iter().map(|url| address(url.as_ref()));
        let seeds: Vec<_> = seeds.collect::<Result<_, _>>()?;
        match seeds.is_empty() {
            true => Err(Error::Invalid("a cluster needs an address".into())),
            false => Ok(Builder::new(Source::Cluster(seeds), Client)),
        }
    }

    /// Returns settings for a client of the primary that Sentinel names `primary`, by the URLs of some sentinels. Sentinel is asked for
    /// each new connection, so the client follows a failover. User, password, database and TLS of the primary are those
    /// of the first URL; for others see [`with`](Client::with).
    ///
    /// # Errors
    /// [`Error::Invalid`] if a URL cannot be understood.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/"];
    /// let client = mortise_client::Client::sentinel(sentinels, "mymaster")?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        primary: &str,
    ) -> Result<Builder<Client>, Error> {
        let sentinels = urls.into_iter().map(|url| address(url.as_ref()));
        let sentinels = sentinels.collect::<Result<_, _>>()?;
        let connect = Connect::to_primary(sentinels, primary)?;
        Ok(Builder::new(Source::Server(connect), Client))
    }

    /// Returns the lock with this key, which may be anything made of bytes. Nothing is sent yet.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// let lock = client.lock("stock:42");
    /// let also = client.lock([0xff, 0x00]);
    /// # }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.0, vec![key.as_ref().into()])
    }

    /// Returns a lock of 1 to 16 keys, which are acquired together to write: all or none, by one token. While it waits it holds
    /// none of them. In a cluster they are in one slot.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.locks(["{account}:7", "{account}:8"]).acquire().await?;
    /// assert!(client.lock("{account}:8").try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn locks<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Lock {
        let keys = keys.into_iter().map(|key| key.as_ref().into());
        Lock::new(&self.0, keys.collect())
    }

    /// Returns who holds a lock and who waits for it, at most 100 of each; `None` if nobody does.
    ///
    /// # Errors
    /// [`Error::Connection`], [`Error::NoModule`], [`Error::Refused`].
    ///
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
        let key: Bytes = key.as_ref().into();
        let info = request::info(&key);
        LockInfo::read(self.ask(key, &info).await?)
    }

    /// Returns the locks with the most waiters now, at most `count`, the longest queue first; in a cluster, of all its primaries.
    ///
    /// # Errors
    /// As for [`info`](Client::info).
    ///
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
        let core = &self.0;
        core.check_open()?;
        core.servers.route(&b"".as_slice().into()).await?;
        let top = request::top(count);
        let answers = core.servers.call_all(&top, core.settings.reply).await;
        let lists = answers.into_iter().map(|(_, answer)| answer);
        let lists = lists.map(|answer| Ok(answer.map_err(Failed::of_reply)?.value));
        TopEntry::first(lists.collect::<Result<_, Error>>()?, count)
    }

    /// Makes an owner's hold end with its current lease: no renewal succeeds any more. The next renewal reports the loss to its guard.
    /// The lock stays taken until that guard is dropped or the lease is over. [`info`](Client::info) shows the owners. Returns what is
    /// left of the lease; `None` if this owner holds nothing.
    ///
    /// # Errors
    /// As for [`info`](Client::info).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("job").acquire().await?;
    /// assert!(client.revoke("job", guard.owner()).await?.is_some());
    /// assert!(guard.renew().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn revoke(
        &self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
    ) -> Result<Option<Duration>, Error> {
        let (key, owner): (Bytes, Bytes) = (key.as_ref().into(), owner.as_ref().into());
        let revoke = request::revoke(&key, &owner);
        match request::number(self.ask(key, &revoke).await?) {
            Ok(left) => Ok(Some(Duration::from_millis(left))),
            Err(Failed::Denied) => Ok(None),
            Err(failed) => Err(failed.of_reply()),
        }
    }

    /// Releases what guards of this client still hold, ends what waits, and waits for `limit` at most until the servers have confirmed
    /// all releases, those of dropped guards, too. Returns whether they have. The client takes no more locks.
    ///
    /// Call it before the process or the runtime ends: a release that is not sent by then never is, and its lock
    /// stays taken until its lease is over.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    ///
    /// let client = mortise_client::Client::connect(&url).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(client.close(Duration::from_secs(5)).await);
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self, limit: Duration) -> bool {
        self.0.close(limit).await
    }

    /// Sends a command about a key.
    async fn ask(&self, key: Bytes, command: &redis::Cmd) -> Result<redis::Value, Error> {
        let core = &self.0;
        core.check_open()?;
        let place = core.servers.route(&key).await?;
        let reply = core
            .servers
            .call(&place, command, core.settings.reply)
            .await;
        reply.map(|reply| reply.value).map_err(Failed::of_reply)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.servers.nodes();
        f.debug_tuple("Client")
            .field(&nodes.first().map(|node| &*node.name))
            .finish()
    }
}
