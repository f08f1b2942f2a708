//! Redis Cluster: short commands go through a cluster connection; a request that waits goes straight to the node that
//! has the key's slot, because a connection of its own to every node would be too many.

use std::time::Duration;

use futures_util::future::{join, try_join};
use redis::aio::ConnectionLike;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{
    MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use redis::io::tcp::TcpSettings;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
    Value,
};

use crate::builder::Server;
use crate::connector::{Connector, attentive};
use crate::error::Error;
use crate::wire;

/// A cluster, and how to reach any one node of it.
pub(crate) struct Cluster {
    client: ClusterClient,
    /// What connections to its nodes have in common: user, password, protocol, TLS.
    pattern: ConnectionInfo,
}

impl Server {
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
    pub fn cluster<T: AsRef<str>>(nodes: impl IntoIterator<Item = T>) -> Result<Server, Error> {
        let invalid = |error| Error::Invalid(format!("not a cluster's addresses: {error}"));
        let nodes: Vec<String> = nodes
            .into_iter()
            .map(|url| url.as_ref().to_owned())
            .collect();
        let Some(first) = nodes.first() else {
            return Err(Error::Invalid(
                "a cluster needs at least one address".to_owned(),
            ));
        };
        let pattern = first.as_str().into_connection_info().map_err(invalid)?;
        let client = ClusterClient::builder(nodes)
            .tcp_settings(attentive(TcpSettings::default()))
            .build()
            .map_err(invalid)?;
        Ok(Server {
            name: format!("the cluster at {}", pattern.addr()),
            connector: Connector::Cluster(Box::new(Cluster { client, pattern })),
        })
    }
}

impl Cluster {
    /// A connection to all nodes, opened within `limit` though some hang.
    pub(crate) async fn connect(
        &self,
        limit: Duration,
        patience: Duration,
    ) -> RedisResult<ClusterConnection> {
        let config = redis::cluster::ClusterConfig::new()
            // A node that hangs takes this long twice: as one of the addresses, and as one of the cluster's. Later, whenever
            // it is connected to again, the others' answers are kept waiting.
            .set_connection_timeout(limit / 4)
            // What the connection itself asks while its users wait. Their answers are timed where they are awaited.
            .set_response_timeout(patience);
        self.client.get_async_connection_with_config(config).await
    }

    /// The node with the slot of `key`, as `host:port`; as it says itself, for another may hang.
    pub(crate) async fn place(&self, link: &ClusterConnection, key: &[u8]) -> RedisResult<String> {
        let (mut slot, mut slots) = (redis::cmd("CLUSTER"), redis::cmd("CLUSTER"));
        slot.arg("KEYSLOT").arg(key);
        slots.arg("SLOTS");
        let ask = async |cmd: Cmd| {
            let route = Route::with_key(key, SlotAddr::Master);
            let to = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
            link.clone().route_command(cmd, to).await
        };
        let (slot, slots) = join(ask(slot), ask(slots)).await;
        let found = match slot? {
            Value::Int(slot) => find(slots?, slot, self.host()),
            _ => None,
        };
        found.ok_or_else(|| {
            RedisError::from((
                ErrorKind::ClusterConnectionNotFound,
                "no node has the slot of this key",
            ))
        })
    }

    /// A client of the node at `place`.
    pub(crate) fn node(&self, place: Option<&str>) -> RedisResult<redis::Client> {
        let found = place.and_then(|place| {
            let (host, port) = place.rsplit_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        });
        let (host, port) = found.ok_or_else(|| {
            RedisError::from((ErrorKind::InvalidClientConfig, "not the address of a node"))
        })?;
        let addr = match self.pattern.addr() {
            ConnectionAddr::TcpTls {
                insecure,
                tls_params,
                ..
            } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        redis::Client::open(self.pattern.clone().set_addr(addr))
    }

    /// The host that stands for nodes which do not know their own.
    fn host(&self) -> &str {
        match self.pattern.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "127.0.0.1",
        }
    }
}

/// Sends a command to the node with its key; one without a key to all primaries, whose lists make one.
pub(crate) async fn send(link: &ClusterConnection, cmd: &Cmd) -> RedisResult<Value> {
    let mut asked = link.clone();
    if wire::key(cmd).is_some() {
        return asked.req_packed_command(cmd).await;
    }
    let (mut link, mut slots) = (link.clone(), redis::cmd("CLUSTER"));
    slots.arg("SLOTS");
    let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
    let answers = asked.route_command(cmd.clone(), all);
    let (answers, slots) = try_join(answers, link.req_packed_command(&slots)).await?;
    let Value::Map(answers) = answers else {
        return Ok(answers);
    };
    // The connection asks only those that it has reached.
    if answers.len() < primaries(slots) {
        return Err(RedisError::from((
            ErrorKind::ClusterConnectionNotFound,
            "not all nodes can be reached",
        )));
    }
    let mut all = Vec::new();
    for (_, answer) in answers {
        match answer {
            Value::Array(some) => all.extend(some),
            other => return Ok(other),
        }
    }
    Ok(Value::Array(all))
}

/// How many nodes have slots, by a reply to `CLUSTER SLOTS`.
fn primaries(slots: Value) -> usize {
    let Value::Array(ranges) = slots else {
        return 0;
    };
    let mut found = Vec::new();
    for range in ranges {
        if let Value::Array(range) = range
            && let Some(Value::Array(primary)) = range.into_iter().nth(2)
        {
            let at: Vec<Value> = primary.into_iter().take(2).collect();
            if !found.contains(&at) {
                found.push(at);
            }
        }
    }
    found.len()
}

/// The primary of `slot` in a reply to `CLUSTER SLOTS`: `[[from, to, [host, port, …], …], …]`.
fn find(slots: Value, slot: i64, unknown_host: &str) -> Option<String> {
    let Value::Array(ranges) = slots else {
        return None;
    };
    ranges.into_iter().find_map(|range| {
        let Value::Array(range) = range else {
            return None;
        };
        let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = &range[..] else {
            return None;
        };
        if !(*from..=*to).contains(&slot) {
            return None;
        }
        let host = match primary.first()? {
            Value::BulkString(host) if !host.is_empty() => {
                String::from_utf8_lossy(host).into_owned()
            }
            Value::SimpleString(host) => host.clone(),
            _ => unknown_host.to_owned(),
        };
        match primary.get(1)? {
            Value::Int(port) => Some(format!("{host}:{port}")),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)])
    }

    #[test]
    fn the_primary_is_the_first_node_of_the_range_with_the_slot() {
        let slots = Value::Array(vec![
            Value::Array(vec![
                Value::Int(0),
                Value::Int(99),
                node("a", 1),
                node("b", 2),
            ]),
            Value::Array(vec![Value::Int(100), Value::Int(16383), node("", 3)]),
        ]);
        assert_eq!(find(slots.clone(), 99, "c"), Some("a:1".to_owned()));
        assert_eq!(find(slots.clone(), 100, "c"), Some("c:3".to_owned()));
        assert_eq!(find(slots.clone(), 16384, "c"), None);
        assert_eq!(primaries(slots), 2);
    }
}
