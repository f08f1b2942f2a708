//! Saying on what terms a client connects.

use std::marker::PhantomData;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::api::client::{Client, Locks};
use crate::api::server::{IntoServer, Server};
use crate::api::settings::{Settings, setters};
use crate::net::connection::Limits;
use crate::value::Error;

impl Client {
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
        Client::builder(server)?.connect().await
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
        let limits = Limits {
            connect: Duration::from_secs(2),
            answer: Duration::from_secs(2),
            impatient: false,
        };
        let servers = vec![server.into_server()?];
        Ok(Builder::of(servers, limits))
    }
}

/// Settings of a [`Client`], or a [`Quorum`](crate::Quorum); from [`Client::builder`] and [`Quorum::builder`](crate::Quorum::builder).
///
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
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct Builder<T = Client> {
    pub(crate) settings: Settings,
    of: PhantomData<fn() -> T>,
}

setters! { Builder {
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
    response_timeout(limit: Duration) => .settings.limits.answer = limit;

    /// Uses a connection that the application has already for everything but the letters of those who wait,
    /// which need one of their own. Once it is broken, one of the client's own takes its place.
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
    connection(connection: MultiplexedConnection) => .settings.given = Some(connection);
} }

impl<T: Locks> Builder<T> {
    pub(crate) fn of(servers: Vec<Server>, limits: Limits) -> Builder<T> {
        let settings = Settings {
            servers,
            limits,
            given: None,
            runtime: None,
        };
        let of = PhantomData;
        Builder { settings, of }
    }

    /// How long opening a connection may take: 2 seconds unless set, for a quorum 500 ms. Nobody waits for a quorum's longer than
    /// [`node_timeout`](Builder::node_timeout); it goes on in the background.
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
    pub fn connect_timeout(mut self, limit: Duration) -> Builder<T> {
        self.settings.limits.connect = limit;
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
    pub fn runtime(mut self, runtime: Handle) -> Builder<T> {
        self.settings.runtime = Some(runtime);
        self
    }

    /// A client, or a quorum, that connects when it is first used.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a runtime, where none was named.
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
    pub fn build(self) -> Result<T, Error> {
        self.settings.build().map(T::of)
    }

    /// A client that is connected to a server that has the module; or a quorum, of which a majority is.
    ///
    /// # Errors
    /// As for [`Client::connect`] and [`Quorum::connect`](crate::Quorum::connect).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    ///
    /// let client = Client::builder("redis://127.0.0.1/")?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<T, Error> {
        self.settings.connect().await.map(T::of)
    }
}
