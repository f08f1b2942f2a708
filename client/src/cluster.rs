//! A Redis Cluster: which node has which key. The slot map and the connections are our own, so that a node that hangs slows
//! down no lock on another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, Value};

use crate::connect::{at, to_address};
use crate::error::Error;
use crate::link::Connect;
use crate::name::Bytes;
use crate::node::{Node, Route};
use crate::runtime::Runtime;
use crate::sync::lock;

const SLOTS: u16 = 16384;

/// Makes a node of its name and of what opens its connections.
pub(crate) type MakeNode = Box<dyn Fn(&str, Connect) -> Arc<Node> + Send + Sync>;

/// Clones are the same cluster.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Shares>);

struct Shares {
    /// User, password and TLS of all nodes are those of the first.
    seed: ConnectionInfo,
    seeds: Vec<String>,
    make: MakeNode,
    limit: Duration,
    runtime: Runtime,
    map: Mutex<Map>,
    refreshing: tokio::sync::Mutex<()>,
}

/// What is known of the cluster.
#[derive(Default)]
struct Map {
    nodes: HashMap<String, Arc<Node>>,
    /// The primary of each slot; nothing until it is known.
    slots: Vec<Option<Arc<Node>>>,
}

impl Cluster {
    /// A cluster with these nodes, and others.
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        make: MakeNode,
        limit: Duration,
        runtime: Runtime,
    ) -> Cluster {
        let names = seeds.iter().filter_map(|seed| match seed.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(address(host, *port))
            }
            _ => None,
        });
        let names = names.collect();
        let seed = seeds
            .into_iter()
            .next()
            .unwrap_or_else(|| unreachable!("a cluster has an address"));
        let (map, refreshing) = (Mutex::default(), tokio::sync::Mutex::default());
        Cluster(Arc::new(Shares {
            seed,
            seeds: names,
            make,
            limit,
            runtime,
            map,
            refreshing,
        }))
    }

    /// Every primary that is known.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        let map = lock(&self.0.map);
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for node in map.slots.iter().flatten() {
            if !nodes.iter().any(|known| Arc::ptr_eq(known, node)) {
                nodes.push(node.clone());
            }
        }
        nodes
    }

    /// Where a key is, as far as is known.
    pub(crate) fn home(&self, key: &[u8]) -> Option<Arc<Node>> {
        lock(&self.0.map)
            .slots
            .get(usize::from(slot(key)))
            .cloned()
            .flatten()
    }

    /// Where a key is. Asks the cluster if that is not known yet.
    pub(crate) async fn find(&self, key: &Bytes) -> Result<Route, Error> {
        if let Some(node) = self.home(key) {
            return Ok(Route::to(node));
        }
        let refreshed = self.refresh().await;
        match self.home(key) {
            Some(node) => Ok(Route::to(node)),
            None => Err(refreshed.err().unwrap_or_else(|| {
                let text = format!(
                    "no node has slot {} of {:?}",
                    slot(key),
                    String::from_utf8_lossy(key)
                );
                Error::of_line("the cluster", "CLUSTERDOWN", &text)
            })),
        }
    }

    /// Where a request about a key goes after this error; `None` where no other node may help. Learns from the error.
    pub(crate) fn redirected(&self, route: &Route, key: &Bytes, error: &Error) -> Option<Route> {
        let Error::Refused { code, message } = error else {
            return None;
        };
        match code.as_str() {
            "MOVED" | "ASK" => {}
            "CLUSTERDOWN" | "READONLY" => {
                self.refresh_in_background();
                return None;
            }
            _ => return None,
        }
        // `slot host:port`
        let node = self.node(&with_host(message.split(' ').nth(1)?, &route.node.name))?;
        let is_asking = code == "ASK";
        if !is_asking {
            if let Some(home) = lock(&self.0.map).slots.get_mut(usize::from(slot(key))) {
                *home = Some(node.clone());
            }
            self.refresh_in_background();
        }
        Some(Route { node, is_asking })
    }

    /// Learns from a request that got no answer: another node may have its keys by now.
    pub(crate) fn failed(&self) {
        self.refresh_in_background();
    }

    /// The node with this address.
    fn node(&self, name: &str) -> Option<Arc<Node>> {
        let (host, port) = name.rsplit_once(':')?;
        let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?);
        let shares = &self.0;
        let make = || (shares.make)(name, to_address(at(&shares.seed, host, port)));
        Some(
            lock(&shares.map)
                .nodes
                .entry(name.to_owned())
                .or_insert_with(make)
                .clone(),
        )
    }

    /// Finds out where keys are, once at a time.
    fn refresh_in_background(&self) {
        let cluster = self.clone();
        self.0.runtime.spawn(async move {
            if cluster.0.refreshing.try_lock().is_ok() {
                let _ = cluster.refresh().await;
            }
        });
    }

    /// Asks all nodes for the slots; the first answer counts, because others may hang.
    async fn refresh(&self) -> Result<(), Error> {
        let _once = self.0.refreshing.lock().await;
        let mut names = self.0.seeds.clone();
        names.extend(lock(&self.0.map).nodes.keys().cloned());
        let command = {
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            command
        };
        let ask = |name: String| {
            let (node, command, limit) = (self.node(&name), &command, self.0.limit);
            async move {
                let answer = node?.link.call(command, limit).await;
                Some((name, answer))
            }
        };
        let mut answers: FuturesUnordered<_> = names.into_iter().map(ask).collect();
        let mut error = Error::Invalid("no node of the cluster has an address".into());
        while let Some(answer) = answers.next().await {
            match answer {
                Some((name, Ok(reply))) => match ranges(&reply.value) {
                    Some(ranges) if !ranges.is_empty() => {
                        self.learn(&ranges, &name);
                        return Ok(());
                    }
                    _ => error = Error::of_line(&name, "CLUSTERDOWN", "no node has slots"),
                },
                Some((_, Err(failed))) => error = failed.error(error),
                None => {}
            }
        }
        Err(error)
    }

    fn learn(&self, ranges: &[Range], asked: &str) {
        let mut slots = vec![None; SLOTS.into()];
        let mut names = self.0.seeds.clone();
        for range in ranges {
            let name = with_host(&range.node, asked);
            let node = self.node(&name);
            names.push(name);
            if let Some(slots) = slots.get_mut(range.from.into()..=range.to.into()) {
                slots.fill(node);
            }
        }
        let mut map = lock(&self.0.map);
        map.slots = slots;
        // Closes the connections to nodes that have left, or have no slots any more.
        map.nodes.retain(|name, _| names.contains(name));
    }
}

/// A node that does not know its own host has that of the one that named it.
fn with_host(node: &str, named_by: &str) -> String {
    match (node.rsplit_once(':'), named_by.rsplit_once(':')) {
        (Some(("" | "?", port)), Some((host, _))) => format!("{host}:{port}"),
        (Some((host, port)), _) => format!("{}:{port}", host.trim_matches(['[', ']'])),
        _ => node.to_owned(),
    }
}

fn address(host: &str, port: u16) -> String {
    format!("{}:{port}", host.trim_matches(['[', ']']))
}

/// Slots that one primary has.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    from: u16,
    to: u16,
    /// `host:port`; the host is empty where the node does not know its own.
    node: String,
}

/// The primaries in a reply to `CLUSTER SLOTS`: `[[from, to, [host, port, …], …], …]`.
fn ranges(reply: &Value) -> Option<Vec<Range>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    let range = |range: &Value| {
        let Value::Array(range) = range else {
            return None;
        };
        let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = &range[..] else {
            return None;
        };
        let [host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::SimpleString(host) => host.clone(),
            _ => String::new(),
        };
        let slot = |it: &i64| u16::try_from(*it).ok().filter(|it| *it < SLOTS);
        Some(Range {
            from: slot(from)?,
            to: slot(to)?,
            node: format!("{host}:{port}"),
        })
    };
    ranges.iter().map(range).collect()
}

/// The slot of a key: of what stands between its first `{` and the next `}`, if there is anything.
fn slot(key: &[u8]) -> u16 {
    crc16(hashed(key)) % SLOTS
}

/// What decides on a key's slot.
fn hashed(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|it| *it == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|it| *it == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    tag.unwrap_or(key)
}

/// A hash tag, without its braces, by which a name has the slot of a key.
pub(crate) fn tag(key: &[u8]) -> String {
    let slot = slot(key);
    let tags = (0_u32..).map(|n| n.to_string());
    let mut fitting = tags.filter(|tag| crc16(tag.as_bytes()) % SLOTS == slot);
    fitting.next().unwrap_or_default()
}

/// CRC16 in its XMODEM flavour.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| {
        let crc = crc ^ (u16::from(*byte) << 8);
        (0..8).fold(crc, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    };
    bytes.iter().fold(0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_same_slot_as_on_the_servers() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"user1000"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        for key in [b"a".as_slice(), b"stock:42", b"{x}y"] {
            assert_eq!(slot(format!("{{{}}}z", tag(key)).as_bytes()), slot(key));
        }
    }

    #[test]
    fn an_address_of_any_ip_version_keeps_its_host_and_port() {
        assert_eq!(with_host("::1:7000", "10.0.0.1:1"), "::1:7000");
        assert_eq!(with_host("10.0.0.2:7000", "10.0.0.1:1"), "10.0.0.2:7000");
        assert_eq!(with_host(":7000", "::1:1"), "::1:7000");
        assert_eq!(with_host("?:7000", "host:1"), "host:7000");
    }

    #[test]
    fn the_primary_is_the_first_node_of_its_range() {
        let text = |text: &str| Value::BulkString(text.into());
        let node = |host: &str, port| Value::Array(vec![text(host), Value::Int(port)]);
        let range = |from, to, nodes: Vec<Value>| {
            let mut range = vec![Value::Int(from), Value::Int(to)];
            range.extend(nodes);
            Value::Array(range)
        };
        let reply = Value::Array(vec![
            range(0, 99, vec![node("a", 1), node("b", 2)]),
            range(100, 16383, vec![node("", 3)]),
        ]);
        let found = ranges(&reply).unwrap();
        assert_eq!(
            found[0],
            Range {
                from: 0,
                to: 99,
                node: "a:1".into()
            }
        );
        assert_eq!(found[1].node, ":3");
        assert_eq!(
            ranges(&Value::Array(vec![range(0, 16384, vec![node("a", 1)])])),
            None
        );
    }
}
