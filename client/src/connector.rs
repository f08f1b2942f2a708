//! How connections are opened: straight to a server, through Sentinel, or to the cluster node that has the key.

use std::fmt;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, RedisResult};

use crate::link::Link;

/// A source of connections to what counts as one server.
pub(crate) enum Connector {
    Direct(Box<redis::Client>),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
    #[cfg(feature = "cluster")]
    Cluster(Box<crate::cluster::Cluster>),
}

impl Connector {
    /// The connection that short commands share, opened within `limit`. Each of these takes no longer than `patience`.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) async fn shared(&self, limit: Duration, patience: Duration) -> RedisResult<Link> {
        match self {
            #[cfg(feature = "cluster")]
            Connector::Cluster(cluster) => {
                Ok(Link::Cluster(cluster.connect(limit, patience).await?))
            }
            _ => Ok(Link::One(self.open(None, limit, Closing::Delivers).await?)),
        }
    }

    /// A connection of its own, to where `place` says: see [`Connector::place`].
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) async fn open(
        &self,
        place: Option<&str>,
        limit: Duration,
        closing: Closing,
    ) -> RedisResult<MultiplexedConnection> {
        match self {
            Connector::Direct(client) => open(client, limit, closing).await,
            #[cfg(feature = "sentinel")]
            Connector::Sentinel(sentinel) => {
                // Asked each time: after a failover the primary is another one.
                let client = sentinel.lock().await.async_get_client().await?;
                open(&client, limit, closing).await
            }
            #[cfg(feature = "cluster")]
            Connector::Cluster(cluster) => open(&cluster.node(place)?, limit, closing).await,
        }
    }

    /// Which of several servers a key lives on, as dedicated connections know it. `None` where there is but one.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) async fn place(&self, link: &Link, key: &[u8]) -> RedisResult<Option<String>> {
        match (self, link) {
            #[cfg(feature = "cluster")]
            (Connector::Cluster(cluster), Link::Cluster(link)) => {
                cluster.place(link, key).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        #[cfg(feature = "cluster")]
        return matches!(self, Connector::Cluster(_));
        #[cfg(not(feature = "cluster"))]
        false
    }

    /// Whether another server may take over, so that a failed attempt is worth another.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self, Connector::Direct(_))
    }
}

/// What becomes of a connection that is closed while something is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It is delivered, and that the connection is closed, too, though packets are lost.
    Delivers,
    /// What has not reached the server by then never does. Nor may the word that the connection is closed, if that one
    /// packet is lost: who waited there then waits on, and may be granted what nobody has.
    Resets,
}

async fn open(
    client: &redis::Client,
    limit: Duration,
    closing: Closing,
) -> RedisResult<MultiplexedConnection> {
    // Answers are timed where they are awaited: a blocked request may take as long as it likes.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(None);
    let info = client.get_connection_info();
    let tcp = attentive(info.tcp_settings().clone());
    let tcp = match closing {
        Closing::Delivers => tcp,
        Closing::Resets => tcp.set_linger_time(Duration::ZERO),
    };
    redis::Client::open(info.clone().set_tcp_settings(tcp))?
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// A request may wait for hours without a byte going either way. So that a connection which has died meanwhile without
/// a word (a firewall that forgot it, a machine that lost power) is noticed within half a minute, it is probed by the
/// kernel, unless the application has said how.
pub(crate) fn attentive(tcp: TcpSettings) -> TcpSettings {
    // Small commands share a connection: none waits for the last one's acknowledgement.
    let tcp = tcp.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let tcp = match tcp.user_timeout() {
        Some(_) => tcp,
        // The same for what was written and is not acknowledged.
        None => tcp.set_user_timeout(Duration::from_secs(25)),
    };
    if tcp.keepalive().is_some() {
        return tcp;
    }
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    tcp.set_keepalive(probes)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Connector::Direct(_) => "Direct",
            #[cfg(feature = "sentinel")]
            Connector::Sentinel(_) => "Sentinel",
            #[cfg(feature = "cluster")]
            Connector::Cluster(_) => "Cluster",
        })
    }
}
