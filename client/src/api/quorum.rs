//! A lock over several independent servers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::api::builder::Builder;
use crate::api::client::{Locks, sealed};
use crate::api::lock::Lock;
use crate::api::server::{IntoServer, Server};
use crate::api::settings::setters;
use crate::net::connection::Limits;
use crate::proto::{LockInfo, ServerAnswer, TopEntry};
use crate::run::Core;
use crate::value::Error;

/// A quorum of independent servers: a lock is held by whoever holds it on a majority. This is Redlock, with fencing.
///
/// The servers are primaries that know nothing of each other, 3 or 5 of them, each with the module and with `lock.grace`
/// at the longest lease in use, so that one which restarts without its data takes no part until every lease it may have
/// forgotten is over. A minority may be down, paused or cut off, and costs nothing once a majority has answered.
///
/// [`Guard::token`](crate::Held::token) grows from one grant to the next over all majorities. Locks are taken, kept and
/// given back as on one server, through the same [`Lock`]. What a quorum cannot offer: deadlocks are not found between
/// owners, and there are no semaphores, because they would not be safe: [why](crate#what-it-does-not-do).
///
/// Tokens are made of the servers' clocks, so these have to agree: a server whose token is more than a second ahead of the
/// others' counts as failed ([`NodeReason::Ahead`](crate::NodeReason::Ahead)), and if only two answer, nobody can tell which of them is right.
///
/// All clients of the same locks must name the servers in the same order: that is the order in which they queue.
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
#[derive(Debug, Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(Arc<Core>);

impl Quorum {
    /// Connects to an odd number of servers, at least a majority of which is there.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] with each server's reason, [`Error::Invalid`] if an address cannot be understood, a
    /// server is there twice, under whatever addresses, or the number is even.
    ///
    /// # Examples
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
    pub async fn connect<S: IntoServer>(
        servers: impl IntoIterator<Item = S>,
    ) -> Result<Quorum, Error> {
        Quorum::builder(servers)?.connect().await
    }

    /// Settings, for a quorum of these servers.
    ///
    /// # Errors
    /// [`Error::Invalid`] as for [`connect`](Quorum::connect).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    /// use std::time::Duration;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?
    ///     .node_timeout(Duration::from_millis(20))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<S: IntoServer>(
        servers: impl IntoIterator<Item = S>,
    ) -> Result<QuorumBuilder, Error> {
        let servers = servers.into_iter().map(IntoServer::into_server);
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        if servers.len().is_multiple_of(2) {
            return Err(Error::Invalid(format!(
                "a quorum has an odd number of servers, not {}: another one would make it no safer",
                servers.len()
            )));
        }
        let mut names = HashSet::new();
        let is_twice = |it: &&Server| it.has_address() && !names.insert(it.name.clone());
        if let Some(twice) = servers.iter().find(is_twice) {
            return Err(Error::Invalid(format!(
                "{} is there twice, and would vote twice",
                twice.name
            )));
        }
        let limits = Limits {
            connect: Duration::from_millis(500),
            answer: Duration::from_millis(50),
            impatient: true,
        };
        Ok(Builder::of(servers, limits))
    }

    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::{Error, Quorum};
    ///
    /// async fn write(quorum: &Quorum) -> Result<(), Error> {
    ///     quorum.lock("ledger").run(|held| async move { Ok(println!("with fence {}", held.token())) }).await
    /// }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it, at most 100 of each, as each server sees it, in their order. An owner's name
    /// has another ending in each round; whoever is named by a majority holds the lock.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// for there in quorum.info("ledger").await {
    ///     println!("{}: {:?}", there.server, there.answer);
    /// }
    /// # }
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Vec<ServerAnswer<Option<LockInfo>>> {
        self.info_on_each(key.as_ref()).await
    }

    /// The locks with the most waiters now on each server, at most `count`, the longest queue first.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// let on_the_first = quorum.top(10).await.remove(0);
    /// println!("{}: {:?}", on_the_first.server, on_the_first.answer);
    /// # }
    /// ```
    pub async fn top(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        self.top_on_each(count).await
    }

    /// Gives back what guards still hold, and waits until everything is said; as [`Client::close`](crate::Client::close).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// quorum.close().await;
    /// # }
    /// ```
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Locks for Quorum {}

impl sealed::Locks for Quorum {
    fn of(core: Arc<Core>) -> Quorum {
        Quorum(core)
    }

    fn core(&self) -> &Arc<Core> {
        &self.0
    }
}

/// Settings of a [`Quorum`]; from [`Quorum::builder`].
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Quorum;
/// use std::time::Duration;
///
/// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?
///     .node_timeout(Duration::from_millis(30))
///     .connect_timeout(Duration::from_millis(300))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub type QuorumBuilder = Builder<Quorum>;

setters! { Builder<Quorum> {
    /// How long one server may take to answer before the others make do without it: 50 ms unless set. It should be small
    /// against the lease (for 10 seconds, 5 to 50 ms), and larger than a round trip.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    /// use std::time::Duration;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.node_timeout(Duration::from_millis(20)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    node_timeout(limit: Duration) => .settings.limits.answer = limit;
} }
