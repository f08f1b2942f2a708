//! Settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::connect::Connect;
use crate::core::Core;
use crate::error::Error;
use crate::runtime::Runtime;
use crate::servers::Servers;
use crate::settings::{Kind, Settings};

/// What errors call a server whose address only the application knows.
pub(crate) const SOME_SERVER: &str = "the server";

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
pub struct Builder {
    source: Source,
    pub(crate) settings: Settings,
    runtime: Option<Handle>,
}

/// Where connections of a client lead.
#[derive(Clone)]
pub(crate) enum Source {
    Server(Connect),
    #[cfg(feature = "cluster")]
    Cluster(Vec<redis::ConnectionInfo>),
}

impl Builder {
    pub(crate) fn new(source: Source) -> Builder {
        let servers = match source {
            Source::Server(_) => Kind::One,
            #[cfg(feature = "cluster")]
            Source::Cluster(_) => Kind::Cluster,
        };
        let limit = Duration::from_secs(2);
        Builder {
            source,
            settings: Settings::new(servers, limit, limit),
            runtime: None,
        }
    }

    /// What opens connections to its server, if that is one.
    pub(crate) fn server(self) -> Result<Connect, Error> {
        match self.source {
            Source::Server(connect) => Ok(connect),
            #[cfg(feature = "cluster")]
            Source::Cluster(_) => Err(Error::Invalid("a cluster is no server of a quorum".into())),
        }
    }

    /// Makes a client's core of the servers that `servers` makes.
    pub(crate) fn core(
        self,
        servers: impl FnOnce(Source, &Settings, &Runtime) -> Servers,
    ) -> Result<Arc<Core>, Error> {
        let current = || Handle::try_current().map_err(|_| Error::NoRuntime);
        let runtime = Runtime::new(self.runtime.map_or_else(current, Ok)?);
        let servers = servers(self.source, &self.settings, &runtime);
        Core::new(servers, self.settings, runtime).map(Arc::new)
    }

    /// Sets the name of the client: 1 to 100 printable characters. Its connections carry it, and its owners begin with it.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// let client = mortise_client::Client::builder("redis://127.0.0.1/")?.name("billing-7").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the lease of locks that set none: 10 s unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder) {
    /// let builder = builder.lease(std::time::Duration::from_secs(30));
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.settings.lease = lease;
        self
    }

    /// Sets how long locks wait that do not set it: without limit unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder) {
    /// let builder = builder.wait(std::time::Duration::from_secs(60));
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Builder {
        self.settings.wait = Some(limit);
        self
    }

    /// Sets how long the server may take to answer a request: 2 s unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder) {
    /// let builder = builder.response_timeout(std::time::Duration::from_millis(300));
    /// # }
    /// ```
    pub fn response_timeout(mut self, limit: Duration) -> Builder {
        self.settings.reply = limit;
        self
    }

    /// Sets how long opening a connection may take: 2 s unless set.
    ///
    /// ```no_run
    /// # fn example(builder: mortise_client::Builder) {
    /// let builder = builder.connect_timeout(std::time::Duration::from_secs(1));
    /// # }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> Builder {
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
    pub fn replicas(mut self, count: u32) -> Builder {
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
    pub fn runtime(mut self, runtime: Handle) -> Builder {
        self.runtime = Some(runtime);
        self
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}
