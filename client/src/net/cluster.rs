//! A cluster: a slot map and connections of our own, so that a node that hangs makes nobody slow whose lock is on another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::ConnectionAddr;
use tokio::runtime::Handle;

use super::connection::Limits;
use super::dial::{Address, Dial, Way};
use super::peer::{Peer, Route};
use crate::proto::command::Command;
use crate::proto::reply::{Answer, Failure, Reply};
use crate::proto::slots::{self, SLOTS};
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
    refreshing: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Map {
    peers: HashMap<String, Arc<Peer>>,
    /// The primary of each slot; nothing until it is known.
    slots: Vec<Option<Arc<Peer>>>,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Address>, limits: Limits, runtime: Handle) -> Cluster {
        Cluster {
            pattern: seeds[0].clone(),
            // `host:port`, as nodes are named in redirections.
            seeds: seeds.iter().map(|it| it.addr().to_string()).collect(),
            limits,
            runtime,
            map: Mutex::default(),
            refreshing: Arc::default(),
        }
    }

    /// Finds out where keys are, unless that is known.
    pub(super) async fn prepare(&self) {
        if lock(&self.map).slots.is_empty() {
            self.refresh().await;
        }
    }

    /// Where a key is, as far as is known.
    pub(super) fn peer(&self, key: &[u8]) -> Arc<Peer> {
        let mut map = lock(&self.map);
        match map.slots.get(usize::from(slots::slot(key))) {
            Some(Some(peer)) => peer.clone(),
            _ => self.peer_at(&mut map, &self.seeds[0]),
        }
    }

    fn peer_at(&self, map: &mut Map, node: &str) -> Arc<Peer> {
        if let Some(peer) = map.peers.get(node) {
            return peer.clone();
        }
        let dial = Dial::new(Way::Direct(Box::new(self.address(node))), None, None);
        let (limits, runtime) = (self.limits, self.runtime.clone());
        let peer = Peer::new(node.to_owned(), dial, limits, runtime);
        map.peers.insert(node.to_owned(), peer.clone());
        peer
    }

    fn address(&self, node: &str) -> Address {
        let (name, number) = node.rsplit_once(':').unwrap_or((node, ""));
        let mut addr = self.pattern.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
            &mut addr
        {
            // One that makes no sense leads nowhere.
            (*host, *port) = (name.to_owned(), number.parse().unwrap_or(0));
        }
        self.pattern.clone().set_addr(addr)
    }

    pub(super) fn redirected(self: &Arc<Self>, route: &Route, answer: &Answer) -> Option<Route> {
        let line = match answer {
            Ok(Reply::Error(line)) => line,
            Ok(_) => return None,
            Err(_) => return self.refresh_in_background(),
        };
        let Some(redirection) = slots::redirection(line) else {
            let is_stale = line.starts_with("CLUSTERDOWN") || line.starts_with("READONLY");
            return is_stale.then(|| self.refresh_in_background()).flatten();
        };
        let mut map = lock(&self.map);
        let asking = redirection.once;
        let peer = self.peer_at(&mut map, &with_host(&redirection.node, &route.peer.name));
        if !asking {
            if let Some(home) = map.slots.get_mut(usize::from(redirection.slot)) {
                *home = Some(peer.clone());
            }
            drop(map);
            self.refresh_in_background();
        }
        Some(Route { peer, asking })
    }

    /// All primaries, asked for anew.
    pub(super) async fn primaries(&self) -> Result<Vec<Arc<Peer>>, Failure> {
        self.refresh().await;
        let mut primaries: Vec<Arc<Peer>> =
            lock(&self.map).slots.iter().flatten().cloned().collect();
        primaries.sort_unstable_by_key(|it| it.id);
        primaries.dedup_by_key(|it| it.id);
        match primaries.is_empty() {
            true => Err(Failure::NotSent(ConnectionError::new(
                "no node of the cluster answers",
            ))),
            false => Ok(primaries),
        }
    }

    /// Once at a time. Nobody is sent elsewhere yet.
    fn refresh_in_background(self: &Arc<Self>) -> Option<Route> {
        if let Ok(turn) = self.refreshing.clone().try_lock_owned() {
            let cluster = self.clone();
            self.runtime.spawn(async move {
                cluster.refresh().await;
                drop(turn);
            });
        }
        None
    }

    /// Asks all nodes for the slots; the first answer counts, because others may hang.
    async fn refresh(&self) {
        let peers: Vec<Arc<Peer>> = {
            let mut map = lock(&self.map);
            for seed in &self.seeds {
                self.peer_at(&mut map, seed);
            }
            map.peers.values().cloned().collect()
        };
        let now = BootInstant::now();
        let command = Command::Plain(&[b"CLUSTER", b"SLOTS"]);
        let ask = |peer: Arc<Peer>| async {
            let pending = Route::to(peer.clone()).send(&command, now);
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
            // Whoever has left is not connected to any more.
            let is_home = |node: &String| ranges.iter().any(|it| it.2 == *node);
            map.peers
                .retain(|node, _| self.seeds.contains(node) || is_home(node));
            map.slots = vec![None; SLOTS.into()];
            for (from, to, node) in ranges {
                let peer = self.peer_at(map, &node);
                if let Some(slots) = map.slots.get_mut(from.into()..=to.into()) {
                    slots.fill(Some(peer));
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
