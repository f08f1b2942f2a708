//! A cluster of real processes on a network that can be cut.

use mortise_harness::redis::cluster::ClusterClient;
use mortise_harness::{Cluster, Network, Server, cmd, eventually_within, wait_for_sync_at};

use crate::topology::{Client, PATIENCE, Settings, Topology};

const NODE_TIMEOUT: u64 = 2_000;

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
                // So that the tests see who holds at a primary that is cut off.
                .config("cluster-allow-reads-when-down", "yes")
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

    fn client(&self) -> Client {
        let urls: Vec<String> = self.cluster.nodes().map(Server::url).collect();
        let client = ClusterClient::new(urls).expect("urls");
        let mut conn = client.get_connection().expect("the cluster answers");
        Box::new(move |command| command.query(&mut conn))
    }

    fn cut_off_primary(&self) {
        self.network().cut_off(&[self.primary()]);
    }

    fn hand_over(&self) -> &Server {
        let mut conn = self.cluster.replicas[self.home].connect();
        cmd!(conn, "CLUSTER FAILOVER");
        self.successor()
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
