//! Servers that promote a replica by themselves when the primary fails: under Sentinel, or in a cluster. They are real processes on a network
//! that can be cut.

use mortise_harness::{Cluster, Network, Server, cmd, eventually_within, wait_for_sync_at};

use super::watched::{PATIENCE, Settings, Watched, demand};

const NODE_TIMEOUT: u64 = 2_000;

/// A primary, its replicas, and those that decide who the primary is.
pub(crate) trait Topology: Sized {
    /// What the grace has to last beyond the longest lease, in milliseconds.
    const BEYOND_LEASE: u64;
    /// Leases longer than a failover, in milliseconds.
    const LONG: u64;
    /// What a primary replies that is cut off from the others.
    const CUT_OFF: &str;
    /// What it replies once it is a replica.
    const DEMOTED: &str;

    fn start(settings: Settings) -> Self;
    fn primary(&self) -> &Server;
    fn primary_mut(&mut self) -> &mut Server;
    fn replicas(&self) -> Vec<&Server>;
    fn network(&self) -> &Network;

    /// Cuts the primary off, with clients on its side.
    fn cut_off_primary(&self);

    /// The replica that was promoted, once one was.
    fn successor(&self) -> &Server;

    /// Checks that nobody was promoted.
    fn assert_unnoticed(&self);

    /// An operator asks that this many replicas acknowledge writes, where that counts.
    fn demand(&self, _server: &Server, _replicas: u64) {}

    /// Waits until the first primary follows the new one.
    fn await_demotion(&self, new: &Server);

    /// The settings with a grace that is long enough.
    fn safe(max_lease: u64) -> Settings {
        let grace = max_lease + Self::BEYOND_LEASE;
        Settings { max_lease, grace }
    }
}

impl Topology for Watched {
    const BEYOND_LEASE: u64 = Settings::safe(0).grace;
    const LONG: u64 = 8_000;
    const CUT_OFF: &str = "NOREPLICAS ";
    const DEMOTED: &str = "READONLY ";

    fn start(settings: Settings) -> Self {
        Watched::start(settings)
    }

    fn primary(&self) -> &Server {
        &self.primary
    }

    fn primary_mut(&mut self) -> &mut Server {
        &mut self.primary
    }

    fn replicas(&self) -> Vec<&Server> {
        self.replicas.iter().collect()
    }

    fn network(&self) -> &Network {
        &self.network
    }

    fn cut_off_primary(&self) {
        self.network.cut_off(&[&self.primary, &self.sentinels[0]]);
    }

    fn successor(&self) -> &Server {
        self.successor_of(&self.primary)
    }

    fn await_demotion(&self, new: &Server) {
        self.await_replica(&self.primary, new);
    }

    fn assert_unnoticed(&self) {
        let port = self.network.port_of(&self.primary);
        assert_eq!(self.primary_port(), port, "no Sentinel has noticed");
    }

    fn demand(&self, server: &Server, replicas: u64) {
        demand(server, replicas);
    }
}

/// Three primaries, each with a replica. The key belongs to one of them.
pub(crate) struct Clustered {
    cluster: Cluster,
    home: usize,
}

impl Topology for Clustered {
    const BEYOND_LEASE: u64 = NODE_TIMEOUT + 3_000;
    const LONG: u64 = 6_000;
    const CUT_OFF: &str = "CLUSTERDOWN ";
    const DEMOTED: &str = "MOVED ";

    fn start(settings: Settings) -> Self {
        let (max_lease, grace) = (settings.max_lease.to_string(), settings.grace.to_string());
        let mut cluster = Cluster::start_over_network(3, || {
            Server::builder()
                .config("cluster-node-timeout", &NODE_TIMEOUT.to_string())
                .module_arg("max-lease", &max_lease)
        });
        for node in cluster.primaries.iter_mut().chain(&mut cluster.replicas) {
            // The grace of the first start does not matter here.
            node.set_module_arg("grace", &grace);
            cmd!(node.connect(), "CONFIG", "SET", "lock.grace", &grace);
            let lines = node.info("lock");
            let is_safe = lines["lock_failover_safe"] == "1";
            let needed = Self::safe(settings.max_lease).grace;
            assert_eq!(is_safe, settings.grace >= needed, "{lines:?}");
        }
        let home = cluster.home_of("key");
        Clustered { cluster, home }
    }

    fn primary(&self) -> &Server {
        &self.cluster.primaries[self.home]
    }

    fn primary_mut(&mut self) -> &mut Server {
        &mut self.cluster.primaries[self.home]
    }

    fn replicas(&self) -> Vec<&Server> {
        vec![&self.cluster.replicas[self.home]]
    }

    fn network(&self) -> &Network {
        let network = self.cluster.network.as_ref();
        network.expect("it was started over one")
    }

    fn cut_off_primary(&self) {
        self.network().cut_off(&[self.primary()]);
    }

    fn successor(&self) -> &Server {
        let replica = &self.cluster.replicas[self.home];
        eventually_within(PATIENCE, "the replica has taken over", || {
            replica.info("replication")["role"] == "master"
        });
        replica
    }

    fn await_demotion(&self, new: &Server) {
        let old = self.primary();
        eventually_within(PATIENCE, "the old primary is a replica", || {
            old.info("replication")["role"] == "slave"
        });
        wait_for_sync_at(self.network().port_of(new), new, old);
    }

    fn assert_unnoticed(&self) {
        let role = &self.primary().info("replication")["role"];
        assert_eq!(role, "master", "no node has noticed");
    }
}
