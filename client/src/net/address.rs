//! Which server to connect to.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;

use super::connect::Target;
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
    pub(super) is_cluster: bool,
    /// The server, or some nodes of the cluster.
    pub(super) seeds: Vec<Target>,
    /// The first connection, if there is one already.
    pub(super) connection: Option<MultiplexedConnection>,
    /// What connections are called.
    pub(crate) connection_name: Option<Arc<str>>,
}

impl Server {
    /// Reached over a connection that the application has already, for everything but the letters of those who wait, which
    /// need one of their own. Once it is broken, a connection of the client's own takes its place.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), mortise_client::Error> {
    /// use mortise_client::Client;
    /// use mortise_client::server::{IntoServer, redis};
    ///
    /// # let error = |_| mortise_client::Error::Closed;
    /// let redis = redis::Client::open("redis://127.0.0.1/").map_err(error)?;
    /// let shared = redis.get_multiplexed_async_connection().await.map_err(error)?;
    /// let client = Client::connect(redis.into_server()?.over(shared.clone())).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn over(mut self, connection: MultiplexedConnection) -> Server {
        self.connection = Some(connection);
        self
    }

    /// Whether its name tells it from all others: what Sentinel names may be anything.
    pub(crate) fn has_address(&self) -> bool {
        !self.seeds[0].fails_over()
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
        let mut seeds = Vec::new();
        for url in nodes {
            seeds.append(&mut url.as_ref().into_server()?.seeds);
        }
        let Some(first) = seeds.first() else {
            let text = "a cluster needs at least one address";
            return Err(Error::Invalid(text.to_owned()));
        };
        Ok(Server {
            name: format!("the cluster at {first}"),
            is_cluster: true,
            seeds,
            connection: None,
            connection_name: None,
        })
    }

    fn at(target: Target) -> Server {
        Server {
            name: target.to_string(),
            is_cluster: false,
            seeds: vec![target],
            connection: None,
            connection_name: None,
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.name).finish()
    }
}

/// What a [`Server`] can be made of: a URL, a [`redis::Client`](crate::server::redis::Client), and with the feature `sentinel` a
/// `redis::sentinel::SentinelClient`. A cluster is made of its nodes' URLs: `Server::cluster`, with the feature `cluster`.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::{Client, server::redis};
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

impl sealed::IntoServer for Server {}

impl IntoServer for Server {
    fn into_server(self) -> Result<Server, Error> {
        Ok(self)
    }
}

impl sealed::IntoServer for &str {}

impl IntoServer for &str {
    fn into_server(self) -> Result<Server, Error> {
        match redis::Client::open(self) {
            Ok(client) => client.into_server(),
            Err(error) => Err(Error::Invalid(format!(
                "{self:?} is no server's address: {}",
                advice(self, &error.to_string())
            ))),
        }
    }
}

/// What to write instead.
fn advice(url: &str, reason: &str) -> String {
    match url.split_once("://") {
        None => format!("write redis://{url}/"),
        Some(("rediss", _)) if !cfg!(feature = "tls") => {
            "TLS needs the feature `tls` of mortise-client".to_owned()
        }
        _ => format!("write redis://HOST:PORT/, or unix:///PATH ({reason})"),
    }
}

impl sealed::IntoServer for String {}

impl IntoServer for String {
    fn into_server(self) -> Result<Server, Error> {
        self.as_str().into_server()
    }
}

impl sealed::IntoServer for &String {}

impl IntoServer for &String {
    fn into_server(self) -> Result<Server, Error> {
        self.as_str().into_server()
    }
}

impl sealed::IntoServer for redis::Client {}

impl IntoServer for redis::Client {
    fn into_server(self) -> Result<Server, Error> {
        let address = Box::new(self.get_connection_info().clone());
        Ok(Server::at(Target::Address(address)))
    }
}

#[cfg(feature = "sentinel")]
impl sealed::IntoServer for redis::sentinel::SentinelClient {}

#[cfg(feature = "sentinel")]
impl IntoServer for redis::sentinel::SentinelClient {
    fn into_server(self) -> Result<Server, Error> {
        let sentinel = Arc::new(tokio::sync::Mutex::new(self));
        Ok(Server::at(Target::Sentinel(sentinel)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_invalid_address_shows_a_valid_one() {
        let told = |url: &str| url.into_server().unwrap_err().to_string();
        assert!(told("127.0.0.1:6379").contains("redis://127.0.0.1:6379/"));
        assert!(told("http://a/").contains("redis://HOST:PORT/"));
        #[cfg(not(feature = "tls"))]
        assert!(told("rediss://a/").contains("feature `tls`"));
    }
}
