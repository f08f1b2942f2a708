//! A Redis Cluster: which node has which key. The slot map and the connections are our own, so that a node that hangs slows
//! down no lock on another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::cluster_routing::Slot;
use redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, Value};

use crate::connect::{Connect, at};
use crate::error::{Error, Failed};
use crate::name::Bytes;
use crate::node::{Node, Place};
use crate::runtime::{Promise, Runtime, promise};
use crate::settings::Settings;
use crate::sync::lock;

pub(crate) struct Cluster {
    /// At least one. User, password and TLS of all nodes are those of the first.
    seeds: Vec<ConnectionInfo>,
    settings: Settings,
    runtime: Runtime,
    map: Mutex<Map>,
    /// The nodes are being asked.
    asking: Mutex<Option<Promise<()>>>,
}

/// What is known of the cluster.
#[derive(Default)]
struct Map {
    nodes: HashMap<String, Arc<Node>>,
    /// The primary of each slot, unless it is not known, or a request has failed there.
    slots: HashMap<Slot, Arc<Node>>,
}

impl Cluster {
    /// A cluster with these nodes, and others.
    pub(crate) fn new(
        seeds: Vec<ConnectionInfo>,
        settings: &Settings,
        runtime: &Runtime,
    ) -> Arc<Cluster> {
        Arc::new(Cluster {
            seeds,
            settings: settings.clone(),
            runtime: runtime.clone(),
            map: Mutex::default(),
            asking: Mutex::default(),
        })
    }

    /// Every primary that is known.
    pub(crate) fn primaries(&self) -> Vec<Arc<Node>> {
        let map = lock(&self.map);
        let has_slots = |node: &&Arc<Node>| map.slots.values().any(|it| Arc::ptr_eq(it, node));
        map.nodes.values().filter(has_slots).cloned().collect()
    }

    /// Every node that may have something of this client.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        lock(&self.map).nodes.values().cloned().collect()
    }

    /// Where a key is, as far as is known.
    pub(crate) fn home(&self, key: &[u8]) -> Option<Arc<Node>> {
        lock(&self.map).slots.get(&Slot::for_key(key)).cloned()
    }

    /// Where a key is. Asks the cluster if that is not known.
    pub(crate) async fn find(self: &Arc<Self>, key: &Bytes) -> Result<Place, Error> {
        if let Some(node) = self.home(key) {
            return Ok(Place::new(node, key.clone()));
        }
        let refreshed = self.refresh().await;
        let nobody = || {
            let text = format!("no node has the slot of {:?}", String::from_utf8_lossy(key));
            Error::of_line("the cluster", "CLUSTERDOWN", &text)
        };
        let home = self.home(key).map(|node| Place::new(node, key.clone()));
        home.ok_or_else(|| refreshed.err().unwrap_or_else(nobody))
    }

    /// Where a request about a key goes after it has failed; `None` where no other node may help. Learns from the failure.
    ///
    /// Only a refusal of the request itself names the node of its key. Its letter box may have been refused, too: that would lead to a node that
    /// has nothing of the key while its old node still has the lock.
    pub(crate) fn redirected(&self, place: &Place, failed: &Failed) -> Option<Place> {
        let (error, is_own) = match failed {
            Failed::Refused(error) => (error, true),
            Failed::Unknown(error) => (error, false),
            Failed::Denied => return None,
        };
        let (code, message) = match error {
            Error::Refused { code, message } => (code.as_str(), message.as_str()),
            _ => ("", ""),
        };
        let is_asking = code == "ASK";
        if error.passes() && !is_asking {
            // The next request asks the cluster.
            lock(&self.map).slots.remove(&Slot::for_key(&place.key));
        }
        if !is_own || code != "MOVED" && !is_asking {
            return None;
        }
        // `slot host:port`
        let node = self.node(&with_host(message.split(' ').nth(1)?, &place.node.name))?;
        let key = place.key.clone();
        Some(Place {
            node,
            is_asking,
            key,
        })
    }

    /// The node with this address.
    fn node(&self, name: &str) -> Option<Arc<Node>> {
        let (host, port) = name.rsplit_once(':')?;
        let port = port.parse().ok()?;
        let make = || {
            let connect = Connect::to(at(&self.seeds[0], bare(host).to_owned(), port));
            Arc::new(Node::new(connect, &self.settings, &self.runtime))
        };
        let nodes = &mut lock(&self.map).nodes;
        Some(nodes.entry(name.to_owned()).or_insert_with(make).clone())
    }

    /// The addresses that the client was given.
    fn seeds(&self) -> Vec<String> {
        let name = |seed: &ConnectionInfo| match seed.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(format!("{}:{port}", bare(host)))
            }
            _ => None,
        };
        self.seeds.iter().filter_map(name).collect()
    }

    /// Asks the nodes, or awaits the answer if they are being asked. A task does it: a caller may be polled no more.
    async fn refresh(self: &Arc<Self>) -> Result<(), Error> {
        let begin = || {
            let (keep, asking) = promise();
            let cluster = self.clone();
            self.runtime.spawn(async move {
                let asked = cluster.ask_all().await;
                let learned = asked.map(|ranges| cluster.learn(&ranges));
                *lock(&cluster.asking) = None;
                let _ = keep.send(learned);
            });
            asking
        };
        let asking = lock(&self.asking).get_or_insert_with(begin).clone();
        asking.await
    }

    /// The first answer counts, because others may hang.
    async fn ask_all(&self) -> Result<Vec<Range>, Error> {
        let mut names = self.seeds();
        names.extend(lock(&self.map).nodes.keys().cloned());
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let (command, limit) = (&command, self.settings.reply);
        let nodes = names.iter().filter_map(|name| self.node(name));
        let ask = |node: Arc<Node>| async move {
            let answer = node.link.call(command, limit).await;
            (node, answer)
        };
        let mut answers: FuturesUnordered<_> = nodes.map(ask).collect();
        let mut error = Error::Invalid("no node of the cluster has an address".into());
        while let Some((node, answer)) = answers.next().await {
            match answer.map(|reply| ranges(reply.value, &node.name)) {
                Ok(Some(ranges)) if !ranges.is_empty() => return Ok(ranges),
                Ok(_) => error = Error::of_line(&node.name, "CLUSTERDOWN", "no node has slots"),
                Err(failed) => error = failed.error(error),
            }
        }
        Err(error)
    }

    fn learn(&self, ranges: &[Range]) {
        let (mut slots, mut names) = (HashMap::new(), self.seeds());
        for range in ranges {
            if let Some(node) = self.node(&range.primary) {
                let there = (range.from..=range.to).filter_map(Slot::new);
                slots.extend(there.map(|slot| (slot, node.clone())));
            }
            names.push(range.primary.clone());
        }
        let mut map = lock(&self.map);
        map.slots = slots;
        // Closes the connections to nodes that have left, or have no slots any more, once nothing waits or is held there.
        let is_used = |node: &Arc<Node>| Arc::strong_count(node) > 1;
        map.nodes
            .retain(|name, node| names.contains(name) || is_used(node));
    }
}

/// A host without the brackets of an address of IP version 6.
fn bare(host: &str) -> &str {
    host.trim_matches(['[', ']'])
}

/// A node that does not know its own host has that of the one that named it.
fn with_host(node: &str, named_by: &str) -> String {
    match (node.rsplit_once(':'), named_by.rsplit_once(':')) {
        (Some(("" | "?", port)), Some((host, _))) => format!("{host}:{port}"),
        (Some((host, port)), _) => format!("{}:{port}", bare(host)),
        _ => node.to_owned(),
    }
}

/// The slots that one primary has.
struct Range {
    from: u16,
    to: u16,
    /// `host:port`.
    primary: String,
}

/// The primaries in this node's reply to `CLUSTER SLOTS`: `[[from, to, [host, port, …], …], …]`.
fn ranges(reply: Value, node: &str) -> Option<Vec<Range>> {
    let range = |range: Vec<Value>| {
        let [from, to, Value::Array(primary), ..] = &range[..] else {
            return None;
        };
        let [host, Value::Int(port), ..] = &primary[..] else {
            return None;
        };
        let slot = |it: &Value| u16::from_redis_value_ref(it).ok();
        let host = Option::<String>::from_redis_value_ref(host).ok()?;
        let (from, to) = (slot(from)?, slot(to)?);
        let primary = with_host(&format!("{}:{port}", host.unwrap_or_default()), node);
        Some(Range { from, to, primary })
    };
    let ranges = Vec::<Vec<Value>>::from_redis_value(reply).ok()?;
    ranges.into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = ranges(reply, "c:4").unwrap();
        assert_eq!((found[0].from, found[0].to), (0, 99));
        assert_eq!((&*found[0].primary, &*found[1].primary), ("a:1", "c:3"));
    }
}
