//! A primary, two replicas and three Sentinels, all real processes on a network that can be cut, and clients that connect
//! where a Sentinel says.

use std::ops::Range;
use std::time::Duration;

use mortise_harness::{
    Builder, Conn, Contenders, Network, Record, Role, Server, Stay, array, as_map, cmd,
    eventually_within, lock_info, text, try_cmd, wait_for_sync_at,
};

/// The settings on which the promise depends.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) max_lease: u64,
    pub(crate) grace: u64,
}

/// Short leases, so that much happens.
pub(crate) const SAFE: Settings = Settings::safe(1_000);
/// Leases longer than a failover.
pub(crate) const LONG: Settings = Settings::safe(8_000);

impl Settings {
    pub(crate) const fn safe(max_lease: u64) -> Settings {
        Settings {
            max_lease,
            // Longest lease, a lag of a second, and 3 seconds.
            grace: max_lease + 1_000 + 3_000,
        }
    }

    pub(crate) const fn without_grace(self) -> Settings {
        Settings { grace: 0, ..self }
    }

    pub(crate) fn lease(self) -> Duration {
        Duration::from_millis(self.max_lease)
    }

    fn builder(self) -> Builder {
        Server::builder()
            .module_arg("max-lease", &self.max_lease.to_string())
            .module_arg("grace", &self.grace.to_string())
            .config("min-replicas-max-lag", "1")
            .config("min-replicas-to-write", "2")
    }
}

pub(crate) const ROLES: [Role; 4] = [Role::Mover, Role::Loyal, Role::Mover, Role::Loyal];
/// Sentinels are slow to demote an old primary: only after it has claimed to be one for eight seconds. One that did not run for two seconds
/// does nothing for the next thirty (TILT), which happens several times in a row on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// A wrong setting must show within this many runs. Mostly it does in the first.
pub(crate) const ATTEMPTS: u32 = 5;
pub(crate) const NAME: &str = "locks";

pub(crate) struct Watched {
    pub(crate) network: Network,
    pub(crate) sentinels: [Server; 3],
    pub(crate) primary: Server,
    pub(crate) replicas: [Server; 2],
}

impl Watched {
    pub(crate) fn start(settings: Settings) -> Watched {
        let network = Network::new();
        let primary = network.start(settings.builder());
        let port = network.port_of(&primary);
        let replicas = [0, 1].map(|_| network.start(settings.builder().replica_at(port)));
        for replica in &replicas {
            wait_for_sync_at(port, &primary, replica);
        }
        let sentinels = [0, 1, 2].map(|_| {
            let sentinel = Server::builder().sentinel().watching(NAME, port, 2);
            network.start(sentinel)
        });
        for sentinel in &sentinels {
            eventually_within(
                PATIENCE,
                "the Sentinels know each other and the replicas",
                || {
                    let state = as_map(&cmd!(sentinel.connect(), "SENTINEL", "MASTER", NAME));
                    let count = |name: &str| text(&state[name]);
                    let seen = (count("num-slaves"), count("num-other-sentinels"));
                    let expected = ("2".to_owned(), "2".to_owned());
                    if seen == expected { Ok(()) } else { Err(seen) }
                },
            );
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

    /// Checks that `INFO lock` shows on every server whether the settings keep the promise.
    #[track_caller]
    pub(crate) fn assert_truth(&self, settings: Settings) {
        let needed = Settings::safe(settings.max_lease).grace;
        let expected = if settings.grace < needed {
            let missing = format!("lock.grace {} is less than {needed}", settings.grace);
            ("0".to_owned(), missing)
        } else {
            ("1".to_owned(), String::new())
        };
        for server in self.replicas.iter().chain([&self.primary]) {
            let mut lines = server.info("lock");
            let mut take = |name| lines.remove(name).expect("a field of INFO lock");
            let seen = (take("lock_failover_safe"), take("lock_failover_missing"));
            assert_eq!(seen, expected);
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_sync(&self, primary: &Server, replica: &Server) {
        wait_for_sync_at(self.network.port_of(primary), primary, replica);
    }

    /// Waits until the old primary follows the new one.
    #[track_caller]
    pub(crate) fn await_replica(&self, old: &Server, new: &Server) {
        // The Sentinel that demotes it closes every client's connection.
        let role = || {
            let mut conn = Conn::to_port(old.port()).ok()?;
            let role = try_cmd!(conn, "ROLE").ok()?;
            Some(text(&array(&role)[0]))
        };
        eventually_within(PATIENCE, "the old primary is a replica", || {
            role().filter(|role| role == "slave")
        });
        self.wait_for_sync(new, old);
    }

    /// Has a Sentinel promote a replica, and returns it.
    ///
    /// A Sentinel gives up on a replica whose disk keeps it busy for too long. Whoever asked must then ask again.
    #[track_caller]
    pub(crate) fn fail_over(&self) -> &Server {
        let old = self.primary_port().to_string();
        eventually_within(PATIENCE, "a replica has been promoted", || {
            let mut sentinel = self.sentinels[0].connect();
            let seen = as_map(&cmd!(sentinel, "SENTINEL", "MASTER", NAME));
            let (port, flags) = (text(&seen["port"]), text(&seen["flags"]));
            if port != old {
                return Ok(());
            }
            if !flags.contains("failover_in_progress") {
                cmd!(sentinel, "SENTINEL", "FAILOVER", NAME);
            }
            Err(flags)
        });
        self.successor_of(&self.primary)
    }

    /// The primary that the Sentinels name, once it is not `old`.
    #[track_caller]
    pub(crate) fn successor_of(&self, old: &Server) -> &Server {
        let old = self.network.port_of(old);
        let port = eventually_within(PATIENCE, "a replica has been promoted", || {
            let port = self.primary_port();
            if port == old { Err(port) } else { Ok(port) }
        });
        let found = self
            .replicas
            .iter()
            .find(|replica| self.network.port_of(replica) == port);
        found.expect("one of the two replicas")
    }

    /// The primary that the last Sentinel names.
    pub(crate) fn primary_port(&self) -> u16 {
        let mut conn = self.sentinels[2].connect();
        let addr = cmd!(conn, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
        text(&array(&addr)[1]).parse().expect("a port")
    }
}

pub(crate) fn demand(server: &Server, replicas: u64) {
    cmd!(
        server.connect(),
        "CONFIG SET min-replicas-to-write {replicas}"
    );
}

pub(crate) fn clients(primary: &Server, settings: Settings, stay: Stay) -> Contenders {
    let port = primary.port();
    let clients = Contenders::start_staying(&ROLES, "key", port, settings.lease(), stay);
    let enough = if stay == Stay::Mixed { 5 } else { 1 };
    assert!(
        clients.await_grants(port, enough, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    clients
}

/// Waits until a client has held for this many milliseconds.
#[track_caller]
pub(crate) fn await_hold(server: &Server, held: Range<u64>) {
    let mut conn = server.connect();
    eventually_within(PATIENCE, "a client has held for that long", || {
        let info = lock_info(&mut conn, "key");
        let seen = info.and_then(|info| info.holds.first().map(|hold| hold.held as u64));
        seen.is_some_and(|seen| held.contains(&seen))
    });
}

/// Runs until a run finds two inside.
#[track_caller]
pub(crate) fn assert_finds_two_inside(run: impl Fn() -> Record) {
    for _ in 0..ATTEMPTS {
        let record = run();
        let overlaps = record.overlaps();
        if !overlaps.is_empty() {
            // Even then the tokens differ.
            assert!(overlaps.iter().all(|(one, other)| one.token != other.token));
            return;
        }
    }
    panic!("{ATTEMPTS} runs have not found two inside");
}

#[track_caller]
pub(crate) fn assert_served(clients: &Contenders, server: &Server) {
    assert!(
        clients.await_grants(server.port(), 3, PATIENCE),
        "{:?}, {:?}",
        clients.refusals(),
        server.info("replication")
    );
}

/// Checks that no two were inside, and that the old primary granted nothing after its successor had.
#[track_caller]
pub(crate) fn assert_clean(record: &Record, old: u16, new: u16) {
    record.assert_exclusive();
    let first = record.stints.iter().position(|stint| stint.port == new);
    let last = record.stints.iter().rposition(|stint| stint.port == old);
    assert!(
        last < first,
        "the old primary granted after the new one had"
    );
}
