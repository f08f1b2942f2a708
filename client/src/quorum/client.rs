//! A client of several independent servers.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::client::Client;
use crate::connect::{Connect, SOME_SERVER};
use crate::core::Core;
use crate::error::Error;
use crate::inspect::LockInfo;
use crate::lock::Lock;
use crate::request;
use crate::settings::Source;

/// A quorum of independent servers: the owner that holds a lock on a majority holds it. This is
/// Redlock, with fencing.
///
/// The servers are 3 or 5 primaries that know nothing of each other, each with the module and with `lock.grace`
/// at the longest lease in use, so that a server which restarts without its data takes no part until every lease that it may
/// have forgotten is over. A minority may be down, paused or cut off.
///
/// Tokens grow from one grant to the next over all majorities. Locks are acquired, kept and released as on one server, through the
/// same [`Lock`]. A quorum finds no deadlocks between owners, and has no permits, because they would not be safe:
/// [why](crate#what-it-does-not-do).
///
/// Tokens are made of the servers' clocks, so these have to agree: a server whose token is more than a second ahead of the
/// others' counts as failed ([`Error::Ahead`]).
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Quorum;
///
/// let quorum = Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
/// let guard = quorum.lock("ledger").acquire().await?;
/// println!("write with fencing token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(Arc<Core>);

/// What one server of a quorum answered; from [`Quorum::info`].
///
/// ```no_run
/// # async fn example(quorum: mortise_client::Quorum) {
/// let held = quorum.info("ledger").await.into_iter().filter(|there| matches!(there.answer, Ok(Some(_))));
/// println!("held on {} servers", held.count());
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerAnswer {
    /// The server's address.
    pub server: String,
    /// What it answered.
    pub answer: Result<Option<LockInfo>, Error>,
}

impl Quorum {
    /// Connects to an odd number of servers, at least a majority of which is there. They may be listed in any order.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] with each server's reason; [`Error::Invalid`] if an address cannot be understood, a
    /// server is there twice, under whatever addresses, or the number is even.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Error, Quorum};
    ///
    /// match Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await {
    ///     Err(Error::NoQuorum { nodes, .. }) => nodes.iter().for_each(|node| eprintln!("{}: {}", node.server, node.reason)),
    ///     other => drop(other?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Quorum, Error> {
        Quorum::builder(urls)?.connect().await
    }

    /// Returns settings for a quorum of the servers at these URLs.
    ///
    /// # Errors
    /// [`Error::Invalid`] as for [`connect`](Quorum::connect).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    /// use std::time::Duration;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?
    ///     .response_timeout(Duration::from_millis(20))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
    ) -> Result<Builder<Quorum>, Error> {
        let servers = urls.into_iter().map(Client::builder);
        Quorum::of(servers.collect::<Result<Vec<_>, _>>()?)
    }

    /// Returns settings for a quorum of the servers that these clients would have: primaries that sentinels name, or whatever a
    /// closure connects to. Of the settings of the clients only where their connections lead counts.
    ///
    /// # Errors
    /// [`Error::Invalid`] as for [`connect`](Quorum::connect), and for a cluster.
    ///
    /// ```no_run
    /// # async fn example(connect: impl Fn() -> redis::RedisFuture<'static, redis::aio::MultiplexedConnection> + Send + Sync + Clone + 'static) -> Result<(), mortise_client::Error> {
    /// # use mortise_client::redis;
    /// use mortise_client::{Client, Quorum};
    ///
    /// let servers = [Client::builder("redis://a/")?, Client::builder("redis://b/")?, Client::with(connect)];
    /// let quorum = Quorum::of(servers)?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(
        servers: impl IntoIterator<Item = Builder<Client>>,
    ) -> Result<Builder<Quorum>, Error> {
        let servers: Vec<_> = servers.into_iter().collect();
        if servers.len().is_multiple_of(2) {
            return Err(Error::Invalid(format!(
                "a quorum has an odd number of servers, not {}: another one would make it no safer",
                servers.len()
            )));
        }
        let servers = servers.into_iter().map(Builder::server);
        let servers: Vec<Connect> = servers.collect::<Result<_, _>>()?;
        let mut addresses = HashSet::new();
        let named = servers.iter().map(|connect| &*connect.server);
        let named = named.filter(|server| *server != SOME_SERVER);
        if let Some(twice) = named.into_iter().find(|server| !addresses.insert(*server)) {
            return Err(Error::Invalid(format!(
                "{twice} is there twice, and would vote twice"
            )));
        }
        Ok(Builder::new(Source::Quorum(servers), Quorum))
    }

    /// Returns the lock with this key. Nothing is sent yet.
    ///
    /// ```
    /// use mortise_client::{Error, Quorum};
    ///
    /// async fn write(quorum: &Quorum) -> Result<(), Error> {
    ///     quorum.lock("ledger").run(|guard| async move { Ok(println!("with fence {}", guard.token())) }).await
    /// }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.0, vec![key.as_ref().into()])
    }

    /// Returns who holds a lock and who waits for it, at most 100 of each, as each server sees it. An owner's name
    /// has another ending in each round; the owner that a majority names holds the lock.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// for there in quorum.info("ledger").await {
    ///     println!("{}: {:?}", there.server, there.answer);
    /// }
    /// # }
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Vec<ServerAnswer> {
        let (core, info) = (&self.0, request::info(key.as_ref()));
        let answers = core.servers.call_all(&info, core.settings.reply).await;
        let answers = answers.into_iter().map(|(node, answer)| ServerAnswer {
            server: node.name.to_string(),
            answer: match answer {
                Ok(reply) => LockInfo::read(reply.value),
                Err(failed) => Err(failed.of_reply()),
            },
        });
        answers.collect()
    }

    /// Releases what guards still hold, and waits for `limit` at most until the servers have confirmed that; as
    /// [`Client::close`](crate::Client::close). Returns whether they have.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// quorum.close(std::time::Duration::from_secs(5)).await;
    /// # }
    /// ```
    pub async fn close(&self, limit: Duration) -> bool {
        self.0.close(limit).await
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.0.servers.nodes();
        let names: Vec<_> = nodes.iter().map(|node| &*node.name).collect();
        f.debug_tuple("Quorum").field(&names).finish()
    }
}
