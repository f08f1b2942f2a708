//! A lock over several independent servers.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use crate::api::builder::runtime_or_current;
use crate::api::client::{Answers, Locks, find_module, info_on_each, sealed, top_on_each};
use crate::api::lock::Lock;
use crate::api::server::{IntoServer, Seat, Server};
use crate::net::connection::Limits;
use crate::net::dial::{Identities, Identity};
use crate::proto::info::{LockInfo, ServerAnswer, TopEntry};
use crate::run::core::Core;
use crate::value::error::{Error, NodeFailure, NodeReason};

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
/// others' counts as failed ([`NodeReason::Ahead`]), and if only two answer, nobody can tell which of them is right.
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
pub struct Quorum {
    core: Arc<Core>,
}

impl Quorum {
    #[cfg(feature = "blocking")]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

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
        QuorumBuilder::new(servers)
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
        self.core.close().await;
    }
}

impl sealed::Locks for Quorum {}

impl Locks for Quorum {
    fn lock_of(&self, key: &[u8]) -> Lock {
        Lock::new(self.core.clone(), key)
    }

    fn info_on_each(&self, key: &[u8]) -> Answers<Option<LockInfo>> {
        info_on_each(self.core.clone(), key.to_vec())
    }

    fn top_on_each(&self, count: usize) -> Answers<Vec<TopEntry>> {
        top_on_each(self.core.clone(), count)
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
#[derive(Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct QuorumBuilder {
    servers: Vec<Server>,
    limits: Limits,
    runtime: Option<Handle>,
}

impl QuorumBuilder {
    fn new<S: IntoServer>(servers: impl IntoIterator<Item = S>) -> Result<QuorumBuilder, Error> {
        let servers = servers
            .into_iter()
            .map(IntoServer::into_server)
            .collect::<Result<Vec<_>, _>>()?;
        if servers.len().is_multiple_of(2) {
            return Err(Error::Invalid(format!(
                "a quorum has an odd number of servers, not {}: another one would make it no safer",
                servers.len()
            )));
        }
        let mut names = HashSet::new();
        if let Some(twice) = servers.iter().find(|server| !names.insert(&server.name)) {
            return Err(Error::Invalid(format!(
                "{} is there twice, and would vote twice",
                twice.name
            )));
        }
        Ok(QuorumBuilder {
            servers,
            limits: Limits {
                connect: Duration::from_millis(500),
                answer: Duration::from_millis(50),
                impatient: true,
            },
            runtime: None,
        })
    }

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
    pub fn node_timeout(mut self, limit: Duration) -> QuorumBuilder {
        self.limits.answer = limit;
        self
    }

    /// How long opening a connection to a server may take: 500 ms unless set. Nobody waits for it longer than
    /// [`node_timeout`](QuorumBuilder::node_timeout); it goes on in the background.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    /// use std::time::Duration;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.connect_timeout(Duration::from_millis(200)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> QuorumBuilder {
        self.limits.connect = limit;
        self
    }

    /// The runtime to work on, with I/O and time enabled; the current one unless set.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Quorum;
    ///
    /// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?
    ///     .runtime(runtime.handle().clone())
    ///     .build()?;
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> QuorumBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// A quorum that connects when it is first used.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a runtime, where none was named.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Error, Quorum};
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.build()?;
    /// // An even number makes no quorum safer.
    /// assert!(matches!(Quorum::builder(["redis://a/", "redis://b/"]), Err(Error::Invalid(_))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(self) -> Result<Quorum, Error> {
        let runtime = runtime_or_current(self.runtime)?;
        let identities = Arc::<Identities>::default();
        let servers = self
            .servers
            .into_iter()
            .enumerate()
            .map(|(number, server)| {
                let of = identities.clone();
                let seat = Seat {
                    identity: Some(Identity { of, number }),
                    given: None,
                };
                server.at(seat, self.limits, runtime.clone())
            });
        let servers = servers.collect();
        Ok(Quorum {
            core: Core::new(servers, self.limits, identities.clone(), runtime),
        })
    }

    /// A quorum, a majority of which is connected and has the module.
    ///
    /// # Errors
    /// As for [`Quorum::connect`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Quorum, Error> {
        // Until a first answer, connecting may take as long as was allowed.
        let patience = self.limits.connect;
        let quorum = self.build()?;
        let core = &quorum.core;
        let mut answers: FuturesUnordered<_> = (0..core.servers.len())
            .map(|server| async move { (server, find_module_in(core, server, patience).await) })
            .collect();
        let (mut there, mut nodes) = (0, Vec::new());
        while let Some((server, answer)) = answers.next().await {
            match answer {
                Ok(()) => there += 1,
                Err(error) => nodes.push(NodeFailure {
                    server: core.servers[server].name.clone(),
                    reason: NodeReason::of(error),
                }),
            }
            if let Some((one, twin)) = core.identities.twins() {
                return Err(Error::Invalid(format!(
                    "{} and {} are the same server, which would vote twice",
                    core.servers[one].name, core.servers[twin].name
                )));
            }
            if there >= core.majority() {
                drop(answers);
                return Ok(quorum);
            }
        }
        Err(Error::NoQuorum {
            needed: core.majority(),
            granted: there,
            nodes,
        })
    }
}

/// Looks for the module until there is an answer, or connecting has taken too long.
async fn find_module_in(core: &Core, server: usize, patience: Duration) -> Result<(), Error> {
    let end = crate::value::clock::BootInstant::now() + patience;
    loop {
        match find_module(core, server).await {
            Err(Error::Connection { error, .. })
                if error.is_timeout() && !end.remaining().is_zero() => {}
            found => return found,
        }
        core.pause(Duration::from_millis(10)).await;
    }
}

impl fmt::Debug for QuorumBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumBuilder")
            .field("servers", &self.servers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
