//! What locks call one server: a single server, the primary that Sentinel names, or a cluster. The cluster's slot map and
//! connections are our own, so that a node that hangs slows down no lock on another node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::address::Server;
use super::connect::{Connector, Identity};
use super::connection::Timeouts;
use super::peer::{Peer, Route};
use crate::value::{BootInstant, lock};
use crate::wire::slots::{self, SLOTS};
use crate::wire::{Answer, Command, Reply};

/// What locks call one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    is_cluster: bool,
    /// The server, or some nodes of the cluster. User, password and TLS are those of the first.
    seeds: Vec<Arc<Peer>>,
    runtime: Handle,
    map: Mutex<Map>,
    refreshing: Arc<tokio::sync::Mutex<()>>,
}

/// What is known of a cluster.
#[derive(Debug, Default)]
struct Map {
    peers: HashMap<String, Arc<Peer>>,
    /// The primary of each slot; nothing until it is known.
    slots: Vec<Option<Arc<Peer>>>,
}

impl Endpoint {
    /// One of several, if it has an identity.
    pub(crate) fn new(
        server: Server,
        identity: Option<Identity>,
        timeouts: Timeouts,
        runtime: Handle,
    ) -> Endpoint {
        // A cluster is more than one process.
        let mut supplied = server.connection.filter(|_| !server.is_cluster);
        let identity = identity.filter(|_| !server.is_cluster);
        let peer = |target| {
            let connector = Connector {
                target,
                name: server.connection_name.clone(),
                supplied: Mutex::new(supplied.take()),
                identity: identity.clone(),
            };
            Peer::new(connector, timeouts, runtime.clone())
        };
        Endpoint {
            name: server.name,
            is_cluster: server.is_cluster,
            seeds: server.seeds.into_iter().map(peer).collect(),
            runtime: runtime.clone(),
            map: Mutex::default(),
            refreshing: Arc::default(),
        }
    }

    /// Whether another server may take its place, so that asking again makes sense while there is none.
    pub(crate) fn fails_over(&self) -> bool {
        self.is_cluster || self.seeds[0].fails_over()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Where requests about a key go, as far as is known.
    pub(crate) fn route(&self, key: &[u8]) -> Route {
        let home = self.is_cluster.then(|| {
            let slot = usize::from(slots::slot(key));
            lock(&self.map).slots.get(slot).cloned().flatten()
        });
        Route::to(home.flatten().unwrap_or_else(|| self.seeds[0].clone()))
    }

    /// Whether a connection is open to where requests about a key go.
    pub(crate) fn is_connected(&self, key: &[u8]) -> bool {
        self.route(key).peer.is_connected()
    }

    /// Finds out where a cluster's keys are, unless that is known.
    pub(crate) async fn prepare(&self) {
        if self.is_cluster && lock(&self.map).slots.is_empty() {
            self.refresh().await;
        }
    }

    /// Where a request has to be sent instead, if its answer says so. Learns from the answer where keys are.
    pub(crate) fn redirected(self: &Arc<Self>, route: &Route, answer: &Answer) -> Option<Route> {
        let line = match answer {
            Ok(Reply::Error(line)) => line.as_str(),
            Ok(_) => return None,
            Err(_) => "",
        };
        if !self.is_cluster {
            return None;
        }
        let Some(redirection) = slots::redirection(line) else {
            if answer.is_err() || line.starts_with("CLUSTERDOWN") || line.starts_with("READONLY") {
                self.refresh_in_background();
            }
            return None;
        };
        let mut map = lock(&self.map);
        let is_asking = redirection.once;
        let peer = self.peer(&mut map, &with_host(&redirection.node, &route.peer.name))?;
        if !is_asking {
            if let Some(home) = map.slots.get_mut(usize::from(redirection.slot)) {
                *home = Some(peer.clone());
            }
            drop(map);
            self.refresh_in_background();
        }
        Some(Route { peer, is_asking })
    }

    /// Sends a command to each process that has locks.
    pub(crate) async fn call_each(&self, command: &Command<'_>) -> Vec<Answer> {
        let mut peers = Vec::new();
        if self.is_cluster {
            self.refresh().await;
            peers.extend(lock(&self.map).slots.iter().flatten().cloned());
            peers.sort_unstable_by_key(|it| it.id);
            peers.dedup_by_key(|it| it.id);
        }
        if peers.is_empty() {
            peers.clone_from(&self.seeds);
        }
        let now = BootInstant::now();
        let routes: Vec<Route> = peers.into_iter().map(Route::to).collect();
        join_all(routes.iter().map(|it| it.send(command, now))).await
    }

    /// Resolves once every request but those for letters was answered or has failed.
    pub(crate) async fn settled(&self) {
        let mut peers = self.seeds.clone();
        peers.extend(lock(&self.map).peers.values().cloned());
        join_all(peers.iter().map(|peer| peer.settled())).await;
    }

    /// A node of the cluster.
    fn peer(&self, map: &mut Map, node: &str) -> Option<Arc<Peer>> {
        let seed = self.seeds.iter().find(|it| it.name == node);
        if let Some(peer) = seed.or_else(|| map.peers.get(node)) {
            return Some(peer.clone());
        }
        let peer = self.seeds[0].other(node)?;
        map.peers.insert(node.to_owned(), peer.clone());
        Some(peer)
    }

    /// Once at a time.
    fn refresh_in_background(self: &Arc<Self>) {
        if let Ok(refreshing) = self.refreshing.clone().try_lock_owned() {
            let endpoint = self.clone();
            self.runtime.spawn(async move {
                endpoint.refresh().await;
                drop(refreshing);
            });
        }
    }

    /// Asks all nodes for the slots; the first answer counts, because others may hang.
    async fn refresh(&self) {
        let mut peers = self.seeds.clone();
        peers.extend(lock(&self.map).peers.values().cloned());
        let command = Command::Plain(&[b"CLUSTER", b"SLOTS"]);
        let ask = |peer: Arc<Peer>| async {
            let pending = Route::to(peer.clone()).send(&command, BootInstant::now());
            (peer, pending.await)
        };
        let mut answers: FuturesUnordered<_> = peers.into_iter().map(ask).collect();
        while let Some((asked, answer)) = answers.next().await {
            let ranges = answer.ok().as_ref().and_then(slots::primaries);
            let Some(mut ranges) = ranges.filter(|it| !it.is_empty()) else {
                continue;
            };
            for range in &mut ranges {
                range.2 = with_host(&range.2, &asked.name);
            }
            let map = &mut *lock(&self.map);
            // Closes the connections to nodes that have left, or have no slots any more.
            map.peers
                .retain(|node, _| ranges.iter().any(|it| it.2 == *node));
            map.slots = vec![None; SLOTS.into()];
            for (from, to, node) in ranges {
                let peer = self.peer(map, &node);
                if let Some(slots) = map.slots.get_mut(from.into()..=to.into()) {
                    slots.fill(peer);
                }
            }
            return;
        }
    }
}

/// A node that does not know its own host has that of the one that named it.
fn with_host(node: &str, named_by: &str) -> String {
    match (node.strip_prefix(':'), named_by.rsplit_once(':')) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => node.to_owned(),
    }
}
