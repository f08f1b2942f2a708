//! A cluster: a slot map and connections of our own, so that a node that hangs makes nobody slow whose lock is on another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::ConnectionAddr;
use tokio::runtime::Handle;

use super::connection::{Limits, Pending};
use super::dial::{Address, Dial};
use super::peer::{Peer, Route};
use crate::proto::command::Command;
use crate::proto::reply::{Answer, Failure, Reply};
use crate::proto::slots;
use crate::value::clock::BootInstant;
use crate::value::error::ConnectionError;
use crate::value::sync::lock;

/// The nodes of a cluster and the slots that they have.
#[derive(Debug)]
pub(super) struct Cluster {
    seeds: Vec<String>,
    /// What connections to its nodes have in common: user, password, TLS.
    pattern: Address,
    limits: Limits,
    runtime: Handle,
    map: Mutex<Map>,
    refreshing: AtomicBool,
}

#[derive(Debug, Default)]
struct Map {
    peers: HashMap<String, Arc<Peer>>,
    /// `(from, to, node)`, in order.
    ranges: Vec<(u16, u16, String)>,
    /// What redirections have told since.
    moved: HashMap<u16, String>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, limits: Limits, runtime: Handle) -> Cluster {
        let place = |seed: &Address| match seed.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                format!("{host}:{port}")
            }
            other => other.to_string(),
        };
        Cluster {
            pattern: seeds[0].clone(),
            seeds: seeds.iter().map(place).collect(),
            limits,
            runtime,
            map: Mutex::default(),
            refreshing: AtomicBool::new(false),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        !lock(&self.map).ranges.is_empty()
    }

    pub(super) fn peer(&self, key: &[u8]) -> Arc<Peer> {
        let slot = slots::slot(key);
        let mut map = lock(&self.map);
        let range = map.ranges.iter().find(|it| (it.0..=it.1).contains(&slot));
        let home = map.moved.get(&slot).or(range.map(|it| &it.2));
        let node = home.unwrap_or(&self.seeds[0]).clone();
        self.peer_at(&mut map, &node)
    }

    fn peer_at(&self, map: &mut Map, node: &str) -> Arc<Peer> {
        if let Some(peer) = map.peers.get(node) {
            return peer.clone();
        }
        let address = self.address(node);
        let (limits, runtime) = (self.limits, self.runtime.clone());
        let peer = Peer::new(node.to_owned(), Dial::direct(address), limits, runtime);
        let peer = Arc::new(peer);
        map.peers.insert(node.to_owned(), peer.clone());
        peer
    }

    fn address(&self, node: &str) -> Address {
        let (host, port) = node.rsplit_once(':').unwrap_or((node, ""));
        // One that makes no sense leads nowhere.
        let (host, port) = (host.to_owned(), port.parse().unwrap_or(0));
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
        self.pattern.clone().set_addr(addr)
    }

    pub(super) fn redirected(self: &Arc<Self>, route: &Route, answer: &Answer) -> Option<Route> {
        let line = match answer {
            Ok(Reply::Error(line)) => line,
            Ok(_) => return None,
            Err(_) => {
                self.refresh_in_background();
                return None;
            }
        };
        let Some(redirection) = slots::redirection(line) else {
            if line.starts_with("CLUSTERDOWN") || line.starts_with("READONLY") {
                self.refresh_in_background();
            }
            return None;
        };
        let node = with_host(&redirection.node, &route.peer.name);
        let mut map = lock(&self.map);
        if !redirection.once {
            map.moved.insert(redirection.slot, node.clone());
        }
        let peer = self.peer_at(&mut map, &node);
        drop(map);
        if !redirection.once {
            self.refresh_in_background();
        }
        Some(match redirection.once {
            true => Route::asking(peer),
            false => Route::to(peer),
        })
    }

    pub(super) async fn send_to_primaries(&self, command: &Command<'_>) -> Vec<Pending> {
        self.refresh().await;
        let (primaries, now) = (self.primaries(), BootInstant::now());
        if primaries.is_empty() {
            let error = ConnectionError::new("no node of the cluster answers");
            return vec![Pending::failed(Failure::NotSent(error))];
        }
        primaries.iter().map(|it| it.send(command, now)).collect()
    }

    fn primaries(&self) -> Vec<Arc<Peer>> {
        let mut map = lock(&self.map);
        let mut nodes: Vec<String> = map.ranges.iter().map(|it| it.2.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
            .iter()
            .map(|node| self.peer_at(&mut map, node))
            .collect()
    }

    fn refresh_in_background(self: &Arc<Self>) {
        if !self.refreshing.swap(true, Ordering::Relaxed) {
            let cluster = self.clone();
            self.runtime.spawn(async move {
                let _done = Refreshing(&cluster.refreshing);
                cluster.refresh().await;
            });
        }
    }

    /// Asks all nodes for the slots; the first answer counts, because others may hang.
    pub(super) async fn refresh(&self) {
        let peers: Vec<Arc<Peer>> = {
            let mut map = lock(&self.map);
            for seed in &self.seeds {
                self.peer_at(&mut map, seed);
            }
            map.peers.values().cloned().collect()
        };
        let now = BootInstant::now();
        let mut answers: FuturesUnordered<_> = peers
            .iter()
            .map(|peer| async {
                let command = Command::Plain(&[b"CLUSTER", b"SLOTS"]);
                (&peer.name, peer.send(&command, now).await)
            })
            .collect();
        while let Some((asked, answer)) = answers.next().await {
            let Some(mut ranges) = answer.ok().as_ref().and_then(slots::primaries) else {
                continue;
            };
            if ranges.is_empty() {
                continue;
            }
            for range in &mut ranges {
                range.2 = with_host(&range.2, asked);
            }
            let mut map = lock(&self.map);
            map.moved.clear();
            // Whoever has left is not connected to any more.
            let is_home = |node: &String| ranges.iter().any(|it| it.2 == *node);
            map.peers
                .retain(|node, _| self.seeds.contains(node) || is_home(node));
            map.ranges = ranges;
            return;
        }
    }
}

struct Refreshing<'a>(&'a AtomicBool);

impl Drop for Refreshing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A node that does not know its own host has that of the one that named it.
fn with_host(node: &str, named_by: &str) -> String {
    match (node.strip_prefix(':'), named_by.rsplit_once(':')) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => node.to_owned(),
    }
}
