//! A cluster of real processes: primaries that share the slots, and their replicas.

use std::time::{Duration, Instant};

use crate::builder::Builder;
use crate::conn::Conn;
use crate::eventually::eventually_within;
use crate::network::Network;
use crate::replication::wait_for_sync_at;
use crate::server::Server;
use crate::value::{info, int, text};

pub(crate) const SLOTS: u16 = 16_384;
/// How long the nodes may take to agree.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long they have for it before the harness introduces them again.
const MEET_AGAIN: Duration = Duration::from_secs(6);

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    /// The first owns the first slots, and so on.
    pub primaries: Vec<Server>,
    /// The replica of each primary, in the same order; empty if there are none.
    pub replicas: Vec<Server>,
    /// The network between them, if it can be cut.
    pub network: Option<Network>,
}

impl Cluster {
    /// Starts `primaries` nodes that share the slots evenly, without replicas. `node` configures each of them.
    ///
    /// # Panics
    /// If they do not agree in time.
    #[track_caller]
    pub fn start(primaries: usize, node: impl Fn() -> Builder) -> Cluster {
        Cluster::launch(primaries, false, None, node)
    }

    /// The same, with a replica for each.
    ///
    /// # Panics
    /// If they do not agree in time.
    #[track_caller]
    pub fn start_with_replicas(primaries: usize, node: impl Fn() -> Builder) -> Cluster {
        Cluster::launch(primaries, true, None, node)
    }

    /// The same, over a network that can be cut.
    ///
    /// # Panics
    /// If they do not agree in time.
    #[track_caller]
    pub fn start_over_network(primaries: usize, node: impl Fn() -> Builder) -> Cluster {
        Cluster::launch(primaries, true, Some(Network::new()), node)
    }

    #[track_caller]
    fn launch(
        primaries: usize,
        replicated: bool,
        network: Option<Network>,
        node: impl Fn() -> Builder,
    ) -> Cluster {
        let start_one = |_| {
            let node = node().config("cluster-enabled", "yes");
            match &network {
                Some(network) => network.start(node),
                None => node.start(),
            }
        };
        let start = || (0..primaries).map(start_one).collect::<Vec<Server>>();
        let cluster = Cluster {
            primaries: start(),
            replicas: if replicated { start() } else { Vec::new() },
            network,
        };
        for (n, node) in cluster.nodes().enumerate() {
            let mut conn = node.connect();
            // Nodes that all begin with the same epoch have to sort that out first.
            crate::cmd!(conn, "CLUSTER", "SET-CONFIG-EPOCH", n + 1);
            cluster.meet(&mut conn);
        }
        for (n, node) in cluster.primaries.iter().enumerate() {
            let first = bound(n, primaries);
            let last = bound(n + 1, primaries) - 1;
            crate::cmd!(node.connect(), "CLUSTER", "ADDSLOTSRANGE", first, last);
        }
        cluster.await_agreement(0);
        for (primary, replica) in cluster.primaries.iter().zip(&cluster.replicas) {
            crate::cmd!(replica.connect(), "CLUSTER", "REPLICATE", node_id(primary));
            wait_for_sync_at(cluster.port_of(primary), primary, replica);
        }
        cluster.await_agreement(cluster.replicas.len());
        cluster
    }

    /// Starts one more node, which has no slots.
    ///
    /// # Panics
    /// If the others do not get to know it.
    #[track_caller]
    pub fn add_empty(&self, node: impl Fn() -> Builder) -> Server {
        let added = node().config("cluster-enabled", "yes").start();
        self.meet(&mut added.connect());
        let count = self.nodes().count() + 1;
        let known = format!("cluster_known_nodes:{count}");
        eventually_within(PATIENCE, "all nodes know the new one", || {
            self.nodes().chain([&added]).all(|node| {
                let info = text(&crate::cmd!(node.connect(), "CLUSTER", "INFO"));
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
        added
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.primaries.iter().chain(&self.replicas)
    }

    /// The number of the primary that owned `key`'s slot at the start.
    pub fn home_of(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        let count = self.primaries.len();
        (0..count)
            .rfind(|n| bound(*n, count) <= slot)
            .expect("the first begins at 0")
    }

    /// The slot of `key`.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = int(&crate::cmd!(
            self.primaries[0].connect(),
            "CLUSTER",
            "KEYSLOT",
            key
        ));
        u16::try_from(slot).expect("a slot is less than 16384")
    }

    /// The port at which the others find `node`.
    pub fn port_of(&self, node: &Server) -> u16 {
        match &self.network {
            Some(network) => network.port_of(node),
            None => node.port(),
        }
    }

    /// Introduces a node to the first one.
    fn meet(&self, conn: &mut Conn) {
        let first = &self.primaries[0];
        let (port, bus) = match &self.network {
            Some(network) => (network.port_of(first), network.bus_port_of(first)),
            None => (first.port(), first.bus_port()),
        };
        crate::cmd!(conn, "CLUSTER", "MEET", "127.0.0.1", port, bus);
    }

    /// Waits until every node knows every other, and `replicas` of them as replicas, and serves.
    #[track_caller]
    fn await_agreement(&self, replicas: usize) {
        let expected = self.nodes().count().to_string();
        for node in self.nodes() {
            let mut conn = node.connect();
            let mut asked = Instant::now();
            eventually_within(PATIENCE, "the nodes agree", || {
                // On a busy machine a handshake may time out, and the nodes do not repeat it.
                if asked.elapsed() > MEET_AGAIN {
                    asked = Instant::now();
                    self.meet(&mut conn);
                }
                let state = info(&crate::cmd!(conn, "CLUSTER", "INFO"));
                let seen = (&state["cluster_state"], &state["cluster_known_nodes"]);
                if seen.0 == "ok" && *seen.1 == expected {
                    Ok(())
                } else {
                    Err(format!("{seen:?}"))
                }
            });
        }
        for node in self.nodes() {
            let mut conn = node.connect();
            eventually_within(PATIENCE, "every node knows who is what", || {
                let known = text(&crate::cmd!(conn, "CLUSTER", "NODES"));
                let count = |word: &str| known.lines().filter(|line| line.contains(word)).count();
                let agreed =
                    count(" connected") == self.nodes().count() && count("slave ") == replicas;
                if agreed { Ok(()) } else { Err(known) }
            });
        }
    }
}

/// The first slot of primary `n` of `count`.
fn bound(n: usize, count: usize) -> u16 {
    u16::try_from(usize::from(SLOTS) * n / count).expect("no more than all slots")
}

/// A node's id within its cluster.
///
/// # Panics
/// If it is not in cluster mode.
#[track_caller]
pub fn node_id(node: &Server) -> String {
    text(&crate::cmd!(node.connect(), "CLUSTER", "MYID"))
}

/// Runs a command as a client does that follows an `ASK`.
///
/// # Panics
/// If the server closes the connection.
pub fn asking(conn: &mut Conn, command: &redis::Cmd) -> Result<redis::Value, String> {
    crate::cmd!(conn, "ASKING");
    conn.try_run(command)
}
