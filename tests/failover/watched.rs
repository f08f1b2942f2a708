//! A primary, two replicas and three Sentinels, all real processes on a network that can be cut.

use mortise_harness::redis::sentinel::{SentinelClient, SentinelServerType};
use mortise_harness::{
    Builder, Conn, Network, Server, array, as_map, cmd, eventually_within, text, try_cmd,
    wait_for_sync_at,
};

use crate::topology::{Client, PATIENCE, Settings, Topology};

const NAME: &str = "locks";

pub(crate) struct Watched {
    network: Network,
    sentinels: [Server; 3],
    primary: Server,
    replicas: [Server; 2],
}

impl Topology for Watched {
    /// A lag of a second, and three seconds.
    const BEYOND_LEASE: u64 = 1_000 + 3_000;
    const LONG: u64 = 8_000;
    const CUT_OFF: &str = "NOREPLICAS ";
    const DEMOTED: &str = "READONLY ";

    fn start(settings: Settings) -> Watched {
        let builder = || -> Builder {
            Server::builder()
                .module_arg("max-lease", &settings.max_lease.to_string())
                .module_arg("grace", &settings.grace.to_string())
                .config("min-replicas-max-lag", "1")
                .config("min-replicas-to-write", "2")
        };
        let network = Network::new();
        let primary = network.start(builder());
        let port = network.port_of(&primary);
        let replicas = [0, 1].map(|_| network.start(builder().replica_at(port)));
        for replica in &replicas {
            wait_for_sync_at(port, &primary, replica);
        }
        let sentinels = [0, 1, 2].map(|_| {
            let sentinel = Server::builder().sentinel().watching(NAME, port, 2);
            network.start(sentinel)
        });
        for sentinel in &sentinels {
            eventually_within(PATIENCE, "the Sentinels know all others", || {
                let state = as_map(&cmd!(sentinel.connect(), "SENTINEL", "MASTER", NAME));
                let seen = ["num-slaves", "num-other-sentinels"].map(|name| text(&state[name]));
                if seen == ["2", "2"] {
                    Ok(())
                } else {
                    Err(seen)
                }
            });
        }
        let watched = Watched {
            network,
            sentinels,
            primary,
            replicas,
        };
        watched.assert_truth(settings);
        watched
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

    fn client(&self) -> Client {
        let urls: Vec<String> = self.sentinels.iter().map(Server::url).collect();
        let kind = SentinelServerType::Master;
        let client = SentinelClient::build(urls, String::from(NAME), None, kind);
        let mut client = client.expect("urls");
        Box::new(move |command| command.query(&mut client.get_connection()?))
    }

    fn cut_off_primary(&self) {
        self.network.cut_off(&[&self.primary, &self.sentinels[0]]);
    }

    /// A Sentinel gives up on a replica whose disk keeps it busy for too long. Whoever asked must then ask again.
    fn hand_over(&self) -> &Server {
        let old = self.primary_port();
        eventually_within(PATIENCE, "a replica has been promoted", || {
            let sentinel = &self.sentinels[0];
            let seen = settled_port(sentinel);
            if seen == Some(old) {
                cmd!(sentinel.connect(), "SENTINEL", "FAILOVER", NAME);
            }
            if seen.is_some_and(|port| port != old) {
                Ok(())
            } else {
                Err(seen)
            }
        });
        self.successor()
    }

    /// On a busy machine two Sentinels may each lead an election: both have to be over.
    fn successor(&self) -> &Server {
        let old = self.network.port_of(&self.primary);
        let port = eventually_within(PATIENCE, "the Sentinels name a promoted replica", || {
            let seen = [1, 2].map(|number| settled_port(&self.sentinels[number]));
            match seen {
                [Some(port), other] if port != old && other == Some(port) => Ok(port),
                _ => Err(seen),
            }
        });
        let mut replicas = self.replicas.iter();
        let found = replicas.find(|replica| self.network.port_of(replica) == port);
        found.expect("one of the two replicas")
    }

    fn await_demotion(&self, new: &Server) {
        let old = &self.primary;
        // The Sentinel that demotes it closes every client's connection.
        let role = || {
            let mut conn = Conn::to_port(old.port()).ok()?;
            let role = try_cmd!(conn, "ROLE").ok()?;
            Some(text(&array(&role)[0]))
        };
        eventually_within(PATIENCE, "the old primary is a replica", || {
            role().filter(|role| role == "slave")
        });
        wait_for_sync_at(self.network.port_of(new), new, old);
    }

    fn assert_unnoticed(&self) {
        let port = self.network.port_of(&self.primary);
        assert_eq!(self.primary_port(), port, "no Sentinel has noticed");
    }

    fn demand(&self, server: &Server, replicas: u64) {
        let mut conn = server.connect();
        cmd!(conn, "CONFIG SET min-replicas-to-write {replicas}");
    }
}

impl Watched {
    /// Checks that `INFO lock` shows on every server whether the settings keep the promise.
    #[track_caller]
    fn assert_truth(&self, settings: Settings) {
        let (grace, needed) = (settings.grace, Self::safe(settings.max_lease).grace);
        let missing = match grace < needed {
            true => format!("lock.grace {grace} is less than {needed}"),
            false => String::new(),
        };
        for server in self.replicas.iter().chain([&self.primary]) {
            let lines = server.info("lock");
            assert_eq!(lines["lock_failover_missing"], missing);
            assert_eq!(lines["lock_failover_safe"] == "1", missing.is_empty());
        }
    }

    /// The primary that the last Sentinel names.
    fn primary_port(&self) -> u16 {
        let mut conn = self.sentinels[2].connect();
        let addr = cmd!(conn, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
        text(&array(&addr)[1]).parse().expect("a port")
    }
}

/// The primary that a Sentinel names; `None` while it leads an election.
fn settled_port(sentinel: &Server) -> Option<u16> {
    let seen = as_map(&cmd!(sentinel.connect(), "SENTINEL", "MASTER", NAME));
    let is_over = !text(&seen["flags"]).contains("failover_in_progress");
    is_over.then(|| text(&seen["port"]).parse().expect("a port"))
}
