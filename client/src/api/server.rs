//! Saying which server.

use std::fmt;
#[cfg(feature = "sentinel")]
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tokio::runtime::Handle;

use crate::net::connection::Limits;
use crate::net::dial::{self, Address, Dial, Identity};
use crate::net::server;
use crate::value::Error;

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
#[derive(Clone)]
pub struct Server {
    pub(crate) name: String,
    way: Way,
}

/// What is known of a server before it is connected to.
#[derive(Clone)]
enum Way {
    One(dial::Way),
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Cluster(Vec<Address>),
}

impl Server {
    /// Ready to be connected to: with a connection that is there already, and a place in a quorum.
    pub(crate) fn at(
        self,
        (given, identity): (Option<MultiplexedConnection>, Option<Identity>),
        limits: Limits,
        runtime: Handle,
    ) -> server::Server {
        match self.way {
            Way::One(way) => {
                let dial = Dial::new(way, given, identity);
                server::Server::one(self.name, dial, limits, runtime)
            }
            Way::Cluster(seeds) => server::Server::cluster(self.name, seeds, limits, runtime),
        }
    }

    /// A Redis Cluster, by the URLs of some of its nodes. User, password and TLS are those of the first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an address cannot be understood, or there is none.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::{Client, Server};
    ///
    /// let cluster = Server::cluster(["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/"])?;
    /// let client = Client::connect(cluster).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    pub fn cluster<T: AsRef<str>>(nodes: impl IntoIterator<Item = T>) -> Result<Server, Error> {
        let invalid = |error| Error::Invalid(format!("not a cluster's addresses: {error}"));
        let address = |url: T| redis::IntoConnectionInfo::into_connection_info(url.as_ref());
        let seeds: Result<Vec<Address>, _> = nodes.into_iter().map(address).collect();
        let seeds = seeds.map_err(invalid)?;
        let Some(first) = seeds.first() else {
            return Err(Error::Invalid(
                "a cluster needs at least one address".to_owned(),
            ));
        };
        Ok(Server {
            name: format!("the cluster at {}", first.addr()),
            way: Way::Cluster(seeds),
        })
    }
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
pub trait IntoServer: sealed::IntoServer {
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

mod sealed {
    pub trait IntoServer {}
}

macro_rules! into_server {
    ($($(#[$when:meta])? $type:ty: |$it:ident| $server:expr;)*) => {$(
        $(#[$when])?
        impl sealed::IntoServer for $type {}

        $(#[$when])?
        impl IntoServer for $type {
            fn into_server(self) -> Result<Server, Error> {
                let $it = self;
                $server
            }
        }
    )*};
}

into_server! {
    Server: |server| Ok(server);
    String: |url| url.as_str().into_server();
    &String: |url| url.as_str().into_server();
    &str: |url| match redis::Client::open(url) {
        Ok(client) => client.into_server(),
        Err(error) => Err(Error::Invalid(format!(
            "{url:?} is no server's address, such as redis://HOST:PORT/: {error}"
        ))),
    };
    redis::Client: |client| {
        let address = client.get_connection_info().clone();
        let name = address.addr().to_string();
        let way = Way::One(dial::Way::Direct(Box::new(address)));
        Ok(Server { name, way })
    };
    #[cfg(feature = "sentinel")]
    redis::sentinel::SentinelClient: |sentinel| {
        let name = "the primary that Sentinel names".to_owned();
        let sentinel = Arc::new(tokio::sync::Mutex::new(sentinel));
        let way = Way::One(dial::Way::Sentinel(sentinel));
        Ok(Server { name, way })
    };
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
