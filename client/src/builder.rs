//! Settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::connect::Connect;
use crate::core::Core;
use crate::error::Error;
use crate::node::Node;
use crate::quorum::nodes::nodes;
use crate::runtime::Runtime;
use crate::servers::{Servers, not_over_quorum};
use crate::settings::{Settings, Source};

/// Settings of a [`Client`](crate::Client) or a [`Quorum`](crate::Quorum).
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use std::time::Duration;
///
/// let client = mortise_client::Client::builder("redis://127.0.0.1/")?
///     .name("billing-7")
///     .lease(Duration::from_secs(30))
///     .wait(Duration::from_secs(60))
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "settings do nothing until a client is made of them"]
pub struct Builder<C> {
    settings: Settings,
    runtime: Option<Handle>,
    client: fn(Arc<Core>) -> C,
}

impl<C> Builder<C> {
    /// Returns a builder with the usual settings for `source`. `connect` returns what `client` makes of the core.
    pub(crate) fn new(source: Source, client: fn(Arc<Core>) -> C) -> Builder<C> {
        let ms = Duration::from_millis;
        let (connect, reply) = match source {
            Source::Quorum(_) => (ms(500), ms(50)),
            _ => (ms(2000), ms(2000)),
        };
        let settings = Settings {
            source,
            name: None,
            lease: Duration::from_secs(10),
            wait: None,
            connect,
            reply,
            replicas: 0,
        };
        Builder {
            settings,
            runtime: None,
            client,
        }
    }

    /// What opens connections to its server, if that is one.
    pub(crate) fn server(self) -> Result<Connect, Error> {
        match self.settings.source {
            Source::Server(connect) => Ok(connect),
            _ => Err(Error::Invalid("a cluster is no server of a quorum".into())),
        }
    }

    fn core(self) -> Result<Arc<Core>, Error> {
        let current = || Handle::try_current().map_err(|_| Error::NoRuntime);
        let runtime = Runtime::new(self.runtime.map_or_else(current, Ok)?);
        let settings = self.settings;
        let servers = match settings.source.clone() {
            Source::Server(connect) => {
                Servers::One(Arc::new(Node::new(connect, &settings, &runtime)))
            }
            #[cfg(feature = "cluster")]
            Source::Cluster(seeds) => Servers::Cluster(Cluster::new(seeds, &settings, &runtime)),
            Source::Quorum(_) if settings.replicas > 0 => {
                return Err(not_over_quorum("its servers have no replicas that count"));
            }
            Source::Quorum(servers) => Servers::Quorum(nodes(servers, &settings, &runtime)),
        };
        Core::new(servers, settings, runtime)
    }

    /// Makes a client that connects when it is first used: it starts although the server may come later.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a runtime, where none was named; [`Error::Invalid`] for a name that cannot be, and for
    /// [`replicas`](Builder::replicas) of a quorum.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(self) -> Result<C, Error> {
        let client = self.client;
        self.core().map(client)
    }

    /// Makes a client that is connected to a server that has the module, or to a majority of a quorum's servers.
    ///
    /// # Errors
    /// As for [`Client::connect`](crate::Client::connect) or [`Quorum::connect`](crate::Quorum::connect), and [`build`](Builder::build).
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<C, Error> {
        let client = self.client;
        let core = self.core()?;
        core.find().await?;
        Ok(client(core))
    }

    /// Sets the name of the client: 1 to 100 printable characters. Its connections carry it, and its owners begin with it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.name("billing-7").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder<C> {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the lease of locks that set none: 10 s unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder<mortise_client::Client>) {
    /// let builder = builder.lease(std::time::Duration::from_secs(30));
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Builder<C> {
        self.settings.lease = lease;
        self
    }

    /// Sets how long locks wait that do not set it: without limit unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder<mortise_client::Client>) {
    /// let builder = builder.wait(std::time::Duration::from_secs(60));
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Builder<C> {
        self.settings.wait = Some(limit);
        self
    }

    /// Sets how long a server may take to answer a request: 2 s unless set, 50 ms over a quorum.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder<mortise_client::Client>) {
    /// let builder = builder.response_timeout(std::time::Duration::from_millis(300));
    /// # }
    /// ```
    pub fn response_timeout(mut self, limit: Duration) -> Builder<C> {
        self.settings.reply = limit;
        self
    }

    /// Sets how long opening a connection may take: 2 s unless set, 500 ms over a quorum.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder<mortise_client::Client>) {
    /// let builder = builder.connect_timeout(std::time::Duration::from_secs(1));
    /// # }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> Builder<C> {
        self.settings.connect = limit;
        self
    }

    /// Sets how many replicas must have each grant and each renewal before a guard relies on it: none unless set. If all clients of
    /// a lock do so, a failover takes no lock from a guard that relies on it, and needs no pause (`lock.promotion-grace 0`).
    ///
    /// Name the number of replicas that may ever be promoted. With fewer of them attached no lock is granted
    /// ([`Error::Unconfirmed`]), and none is renewed. Each acquisition takes a second round trip, and the slowest replica's.
    /// `docs/guarantees.md` says what it takes besides.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/"];
    /// let client = mortise_client::Client::sentinel(sentinels, "mymaster")?.replicas(1).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn replicas(mut self, count: u32) -> Builder<C> {
        self.settings.replicas = count;
        self
    }

    /// Sets the runtime to work on, with I/O and time enabled: the current one unless set.
    ///
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.runtime(runtime.handle().clone()).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> Builder<C> {
        self.runtime = Some(runtime);
        self
    }
}

impl<C> fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
