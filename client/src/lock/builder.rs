//! Settings of a client's connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::lock::Core;
use crate::lock::client::{Client, find_module};
use crate::net::connect::Identity;
use crate::net::{Endpoint, IntoServer, Server, Timeouts, WhileClosed};
use crate::value::{Error, LONGEST_CLIENT, Names};

impl Client {
    /// Connects to a server: `redis://127.0.0.1/`, `unix:///run/redis.sock`, with the feature `tls` `rediss://…`, or
    /// anything else that is [`IntoServer`]. For certificates that the system does not trust, give a
    /// [`redis::Client`](crate::server::redis::Client) made with `build_with_tls`.
    ///
    /// The client's tasks run on the current runtime, and the client lives no longer than that.
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
        Ok(Builder {
            server: server.into_server()?,
            settings: Settings::new(Timeouts {
                connect: Duration::from_secs(2),
                answer: Duration::from_secs(2),
                while_closed: WhileClosed::Wait,
            }),
        })
    }
}

/// What clients of one server and of several have in common.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) timeouts: Timeouts,
    pub(crate) name: Option<String>,
    pub(crate) runtime: Option<Handle>,
}

impl Settings {
    pub(crate) fn new(timeouts: Timeouts) -> Settings {
        Settings {
            timeouts,
            name: None,
            runtime: None,
        }
    }

    /// What locks on one server share; a server of several has an identity.
    pub(crate) fn core(
        &self,
        mut server: Server,
        identity: Option<Identity>,
    ) -> Result<Arc<Core>, Error> {
        let (names, runtime) = (self.names()?, self.runtime()?);
        server.connection_name = self.name.as_deref().map(Arc::from);
        let endpoint = Endpoint::new(server, identity, self.timeouts, runtime.clone());
        Ok(Core::new(endpoint, names, self.timeouts, runtime))
    }

    pub(crate) fn runtime(&self) -> Result<Handle, Error> {
        let current = || Handle::try_current().map_err(|_| Error::NoRuntime);
        self.runtime.clone().map_or_else(current, Ok)
    }

    /// The names of its acquisitions.
    pub(crate) fn names(&self) -> Result<Names, Error> {
        let name = self.name.as_deref();
        let is_printable = |it: &str| it.bytes().all(|byte| byte.is_ascii_graphic());
        match name {
            Some(name) if !(1..=LONGEST_CLIENT).contains(&name.len()) || !is_printable(name) => {
                Err(Error::Invalid(format!(
                    "a client's name is 1 to {LONGEST_CLIENT} printable characters without spaces, not {name:?}"
                )))
            }
            name => Ok(Names::of_client(name)),
        }
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
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "settings do nothing until they are built"]
pub struct Builder {
    server: Server,
    settings: Settings,
}

impl Builder {
    /// A name for this client, 1 to 100 printable characters without spaces, so that an operator sees who holds: its
    /// connections are called so (`CLIENT LIST`), and the owners of its locks begin with it (`LOCK.INFO`).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let url = server.url();
    /// use mortise_client::Client;
    ///
    /// let client = Client::builder(url)?.name("billing-7").connect().await?;
    /// let guard = client.lock("invoice").acquire().await?;
    /// assert!(guard.owner().starts_with(b"billing-7:"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.settings.name = Some(name.into());
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
        self.settings.timeouts.answer = limit;
        self
    }

    /// How long opening a connection may take: 2 seconds unless set.
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
        self.settings.timeouts.connect = limit;
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
        self.settings.runtime = Some(runtime);
        self
    }

    /// A client that connects when it is first used.
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
    pub fn build(self) -> Result<Client, Error> {
        self.settings.core(self.server, None).map(Client)
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
    /// let client = Client::builder("redis://127.0.0.1/")?.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        find_module(&client.0).await?;
        Ok(client)
    }
}
