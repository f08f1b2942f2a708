//! Saying which server, and on what terms.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::client::Client;
use crate::config::Config;
use crate::connector::Connector;
use crate::core::Core;
use crate::error::Error;
use crate::link::Link;
use crate::node::Node;

/// Where connections come from.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::{Client, IntoServer, Server};
///
/// let server: Server = "redis://127.0.0.1/".into_server()?;
/// let client = Client::connect(server).await?;
/// # Ok(())
/// # }
/// ```
pub struct Server {
    pub(crate) name: String,
    pub(crate) connector: Connector,
}

/// What a [`Server`] can be made of: a URL, a [`redis::Client`], and with the feature `sentinel` a
/// `redis::sentinel::SentinelClient`. A cluster is made of its nodes' URLs: `Server::cluster`, with the feature `cluster`.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::{Client, redis};
///
/// let client = Client::connect("redis://127.0.0.1/").await?;
/// // With all that a client of the `redis` crate can be told.
/// let redis = redis::Client::open("redis://127.0.0.1/").expect("an address");
/// let client = Client::connect(redis).await?;
/// # Ok(())
/// # }
/// ```
pub trait IntoServer {
    /// Makes it one. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the address cannot be understood.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::{Error, IntoServer};
    ///
    /// assert!("redis://127.0.0.1/".into_server().is_ok());
    /// assert!(matches!("127.0.0.1".into_server(), Err(Error::Invalid(_))));
    /// ```
    fn into_server(self) -> Result<Server, Error>;
}

impl IntoServer for Server {
    fn into_server(self) -> Result<Server, Error> {
        Ok(self)
    }
}

impl IntoServer for &str {
    fn into_server(self) -> Result<Server, Error> {
        redis::Client::open(self)
            .map_err(|error| {
                Error::Invalid(format!(
                    "{self:?} is no server's address, such as redis://HOST:PORT/: {error}"
                ))
            })?
            .into_server()
    }
}

impl IntoServer for String {
    fn into_server(self) -> Result<Server, Error> {
        self.as_str().into_server()
    }
}

impl IntoServer for &String {
    fn into_server(self) -> Result<Server, Error> {
        self.as_str().into_server()
    }
}

impl IntoServer for redis::Client {
    fn into_server(self) -> Result<Server, Error> {
        Ok(Server {
            name: self.get_connection_info().addr().to_string(),
            connector: Connector::Direct(Box::new(self)),
        })
    }
}

#[cfg(feature = "sentinel")]
impl IntoServer for redis::sentinel::SentinelClient {
    fn into_server(self) -> Result<Server, Error> {
        Ok(Server {
            name: "the primary that Sentinel names".to_owned(),
            connector: Connector::Sentinel(Box::new(tokio::sync::Mutex::new(self))),
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Settings of a [`Client`]; from [`Client::builder`].
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Client;
/// use std::time::Duration;
///
/// let client = Client::builder("redis://127.0.0.1/")?
///     .response_timeout(Duration::from_millis(500))
///     .max_waits(100)
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "settings do nothing until they are built"]
pub struct Builder {
    server: Server,
    config: Config,
    given: Option<Link>,
    runtime: Option<Handle>,
}

impl Builder {
    pub(crate) fn new(server: impl IntoServer) -> Result<Builder, Error> {
        Ok(Builder {
            server: server.into_server()?,
            config: Config::for_one_server(),
            given: None,
            runtime: None,
        })
    }

    /// How long opening a connection may take: 2 seconds unless set. To a cluster, each of its nodes may take a fourth of that.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.connect_timeout(Duration::from_secs(1)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_timeout(mut self, limit: Duration) -> Builder {
        self.config.connect_timeout = limit;
        self
    }

    /// How long the server may take to answer a command that does not wait, and how long it may be silent while a request
    /// waits: 2 seconds unless set.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    /// use std::time::Duration;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.response_timeout(Duration::from_millis(300)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn response_timeout(mut self, limit: Duration) -> Builder {
        self.config.response_timeout = limit;
        self
    }

    /// How many requests may wait at the same time: 1000 unless set. Each waits on a connection of its own; one more is
    /// [`Error::TooManyWaits`], never a queue inside the client: whoever holds the lock may need a connection to go on.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.max_waits(100).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_waits(mut self, limit: usize) -> Builder {
        self.config.max_waits = limit;
        self
    }

    /// How many connections are kept open for the next who has to wait: 16 unless set.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.idle_connections(4).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn idle_connections(mut self, count: usize) -> Builder {
        self.config.idle_connections = count;
        self
    }

    /// Uses a connection that the application has already for everything that does not wait. Requests that wait still
    /// open connections of their own.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Client, redis};
    ///
    /// # let error = |_| mortise_client::Error::Closed;
    /// let redis = redis::Client::open("redis://127.0.0.1/").map_err(error)?;
    /// let shared = redis.get_multiplexed_async_connection().await.map_err(error)?;
    /// let client = Client::builder(redis)?.connection(shared.clone()).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn connection(mut self, connection: MultiplexedConnection) -> Builder {
        self.given = Some(Link::One(connection));
        self
    }

    /// The runtime to work on, with I/O and time enabled; the current one unless set.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::Client;
    ///
    /// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// let client = Client::builder("redis://127.0.0.1/")?
    ///     .runtime(runtime.handle().clone())
    ///     .build()?;
    /// # Ok::<(), mortise_client::Error>(())
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> Builder {
        self.runtime = Some(runtime);
        self
    }

    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// [`Error::Closed`] outside of a runtime.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    ///
    /// // Starts although the server may come later.
    /// let client = Client::builder("redis://127.0.0.1/")?.build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn build(self) -> Result<Client, Error> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| Error::Closed)?,
        };
        let Server { name, connector } = self.server;
        let node = Node::new(name, connector, self.config, self.given);
        Ok(Client::new(Core::new(vec![node], runtime)))
    }

    /// A client that is connected to a server that has the module.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.max_waits(100).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.find_module().await?;
        Ok(client)
    }
}
