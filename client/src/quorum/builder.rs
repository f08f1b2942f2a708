//! On what terms a quorum connects.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;

use crate::lock::builder::Settings;
use crate::lock::client::find_module;
use crate::net::connect::Identity;
use crate::net::{Identities, IntoServer, Server, Timeouts, WhileClosed};
use crate::quorum::Servers;
use crate::quorum::clocks::Clocks;
use crate::quorum::quorum::Quorum;
use crate::value::{Error, NodeReason};

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
        QuorumBuilder::new(servers.collect::<Result<_, _>>()?)
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
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct QuorumBuilder {
    servers: Vec<Server>,
    settings: Settings,
}

impl QuorumBuilder {
    pub(super) fn new(servers: Vec<Server>) -> Result<QuorumBuilder, Error> {
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
        let timeouts = Timeouts {
            connect: Duration::from_millis(500),
            answer: Duration::from_millis(50),
            while_closed: WhileClosed::FailFast,
        };
        let settings = Settings::new(timeouts);
        Ok(QuorumBuilder { servers, settings })
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
        self.settings.timeouts.answer = limit;
        self
    }

    /// How long opening a connection may take: 500 ms unless set. No request waits for that longer than
    /// [`node_timeout`](QuorumBuilder::node_timeout); it goes on in the background.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    /// use std::time::Duration;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.connect_timeout(Duration::from_secs(1)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> QuorumBuilder {
        self.settings.timeouts.connect = limit;
        self
    }

    /// A name for this client, as for [`Builder::name`](crate::Builder::name).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Quorum;
    ///
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.name("billing-7").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> QuorumBuilder {
        self.settings.name = Some(name.into());
        self
    }

    /// The runtime to work on, with I/O and time enabled; the current one unless set.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Quorum;
    ///
    /// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.runtime(runtime.handle().clone()).build()?;
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> QuorumBuilder {
        self.settings.runtime = Some(runtime);
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
    /// use mortise_client::Quorum;
    ///
    /// // Starts although the servers may come later.
    /// let quorum = Quorum::builder(["redis://a/", "redis://b/", "redis://c/"])?.build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(self) -> Result<Quorum, Error> {
        let settings = self.settings;
        let identities = Arc::<Identities>::default();
        let mut all = Vec::with_capacity(self.servers.len());
        for (number, server) in self.servers.into_iter().enumerate() {
            let among = identities.clone();
            let identity = Some(Identity { among, number });
            all.push(settings.core(server, identity)?);
        }
        let clocks = Mutex::new(Clocks::new(all.len()));
        Ok(Quorum(Arc::new(Servers {
            all,
            names: settings.names()?,
            timeouts: settings.timeouts,
            clocks,
            identities,
        })))
    }

    /// A quorum that is connected to a majority of servers that have the module.
    ///
    /// # Errors
    /// As for [`Quorum::connect`](crate::Quorum::connect).
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
        let quorum = self.build()?;
        let servers = &quorum.0;
        let find = |(number, core)| find_module(core).map(move |found| (number, found));
        let mut finding: FuturesUnordered<_> = servers.all.iter().enumerate().map(find).collect();
        let (mut found, mut reasons) = (0, Vec::new());
        while let Some((number, answer)) = finding.next().await {
            match answer {
                Ok(()) => found += 1,
                Err(error) => reasons.push((number, NodeReason::of(error))),
            }
            if let Some([one, other]) = servers.identities.duplicates() {
                return Err(Error::Invalid(format!(
                    "{} and {} are the same server, which would vote twice",
                    servers.all[one].endpoint.name, servers.all[other].endpoint.name
                )));
            }
            if found >= servers.majority() {
                drop(finding);
                return Ok(quorum);
            }
        }
        Err(servers.no_quorum(found, reasons))
    }
}
