//! Saying which server.

#[cfg(feature = "sentinel")]
use std::sync::Arc;

use crate::net::dial::Way;
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
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) name: String,
    is_cluster: bool,
    /// The server, or some nodes of the cluster.
    seeds: Vec<Way>,
}

impl Server {
    /// Its name, whether it is a cluster, and how it is reached.
    pub(crate) fn parts(self) -> (String, bool, Vec<Way>) {
        (self.name, self.is_cluster, self.seeds)
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
        })
    }

    /// One that is reached in this way.
    fn one(way: Way) -> Result<Server, Error> {
        Ok(Server {
            name: way.to_string(),
            is_cluster: false,
            seeds: vec![way],
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
        Server::one(Way::Direct(Box::new(client.get_connection_info().clone())))
    };
    #[cfg(feature = "sentinel")]
    redis::sentinel::SentinelClient: |sentinel| {
        Server::one(Way::Sentinel(Arc::new(tokio::sync::Mutex::new(sentinel))))
    };
}
