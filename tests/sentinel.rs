//! Sentinel: three of them, a primary and two replicas, all real processes, and clients that ask a Sentinel where to go.

use std::ops::Range;
use std::time::Duration;

use mortise_harness::{
    Builder, Contenders, Network, Record, Role, Server, Stay, array, as_map, cmd, eventually,
    eventually_within, int, is_nil, lock_info, text, try_cmd, wait_for_sync_at, waiter,
};

/// What a set-up promises depends on these.
#[derive(Clone, Copy)]
struct Settings {
    max_lease: u64,
    grace: u64,
}

/// Short leases, so that much happens.
const SAFE: Settings = Settings::safe(1_000);
/// Leases that last longer than a failover takes.
const LONG: Settings = Settings::safe(8_000);

impl Settings {
    const fn safe(max_lease: u64) -> Settings {
        Settings {
            max_lease,
            // Longest lease, a lag of a second, and 3 seconds.
            grace: max_lease + 1_000 + 3_000,
        }
    }

    const fn without_grace(self) -> Settings {
        Settings { grace: 0, ..self }
    }

    fn lease(self) -> Duration {
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

const ROLES: [Role; 4] = [Role::Mover, Role::Loyal, Role::Mover, Role::Loyal];
/// What Sentinels take their time for: they convert an old primary only after eight seconds of its claiming to be one.
const PATIENCE: Duration = Duration::from_secs(60);
/// In how many runs a wrong setting must show. Mostly the first does.
const ATTEMPTS: u32 = 5;
const NAME: &str = "locks";

struct Watched {
    network: Network,
    sentinels: [Server; 3],
    primary: Server,
    replicas: [Server; 2],
}

impl Watched {
    fn start(settings: Settings) -> Watched {
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

    /// `INFO lock` says everywhere whether the settings keep the promise.
    #[track_caller]
    fn assert_truth(&self, settings: Settings) {
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
    fn wait_for_sync(&self, primary: &Server, replica: &Server) {
        wait_for_sync_at(self.network.port_of(primary), primary, replica);
    }

    /// Where the Sentinels say the primary is, once that is not `old`.
    #[track_caller]
    fn successor_of(&self, old: &Server) -> &Server {
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

    /// Where the last Sentinel says that the primary is.
    fn primary_port(&self) -> u16 {
        let mut conn = self.sentinels[2].connect();
        let addr = cmd!(conn, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
        text(&array(&addr)[1]).parse().expect("a port")
    }
}

fn demand(server: &Server, replicas: u64) {
    cmd!(
        server.connect(),
        "CONFIG",
        "SET",
        "min-replicas-to-write",
        replicas
    );
}

fn clients(watched: &Watched, settings: Settings, stay: Stay) -> Contenders {
    let port = watched.primary.port();
    let clients = Contenders::start_staying(&ROLES, "key", port, settings.lease(), stay);
    let enough = if stay == Stay::Mixed { 5 } else { 1 };
    assert!(
        clients.await_grants(port, enough, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    clients
}

/// Waits for a moment in which somebody has held for so many milliseconds.
#[track_caller]
fn await_hold(server: &Server, held: Range<u64>) {
    let mut conn = server.connect();
    eventually_within(PATIENCE, "somebody has held for so long", || {
        let info = lock_info(&mut conn, "key");
        let seen = info.and_then(|info| info.holds.first().map(|hold| hold.held as u64));
        seen.is_some_and(|seen| held.contains(&seen))
    });
}

/// Runs until a run finds two inside.
#[track_caller]
fn assert_finds_two_inside(run: impl Fn() -> Record) {
    for _ in 0..ATTEMPTS {
        let record = run();
        let overlaps = record.overlaps();
        if !overlaps.is_empty() {
            // Tokens tell the two apart even then.
            assert!(overlaps.iter().all(|(one, other)| one.token != other.token));
            return;
        }
    }
    panic!("{ATTEMPTS} runs have found nobody beside somebody else");
}

#[track_caller]
fn assert_served(clients: &Contenders, server: &Server) {
    assert!(
        clients.await_grants(server.port(), 3, PATIENCE),
        "{:?}, {:?}",
        clients.refusals(),
        server.info("replication")
    );
}

/// No two inside, and the old primary has not granted a thing after its successor had.
#[track_caller]
fn assert_clean(record: &Record, old: u16, new: u16) {
    record.assert_exclusive();
    let first = record.stints.iter().position(|stint| stint.port == new);
    let last = record.stints.iter().rposition(|stint| stint.port == old);
    assert!(last < first, "the old primary granted beside the new one");
}

#[test]
fn a_primary_that_dies_and_comes_back_leaves_no_two_inside() {
    let mut watched = Watched::start(SAFE);
    let clients = clients(&watched, SAFE, Stay::Mixed);
    let old = watched.primary.port();
    watched.primary.sigkill();
    let new = watched.successor_of(&watched.primary).port();
    clients.go_to(new);
    // It comes back, takes itself for a primary without data, and is told otherwise after a while. Only then has the
    // new one as many replicas as it wants to have.
    watched.primary.start_again();
    let promoted = watched.successor_of(&watched.primary);
    assert_served(&clients, promoted);
    watched.wait_for_sync(promoted, &watched.primary);
    let error = try_cmd!(watched.primary.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
    assert!(error.starts_with("READONLY "), "{error}");
    assert_clean(&clients.stop(), old, new);
}

#[test]
fn a_failover_that_sentinel_was_asked_for_leaves_no_two_inside_and_no_waiter_behind() {
    let watched = Watched::start(SAFE);
    let clients = clients(&watched, SAFE, Stay::Mixed);
    let old = watched.primary.port();
    let mut conn = watched.primary.connect();
    eventually("somebody who holds another lock", || {
        !is_nil(&cmd!(conn, "LOCK.ACQUIRE", "other", "a", 1_000))
    });
    let mut waiter = waiter!(
        watched.primary,
        "LOCK.ACQUIRE",
        "other",
        "b",
        1_000,
        "WAIT",
        0
    );
    cmd!(watched.sentinels[0].connect(), "SENTINEL", "FAILOVER", NAME);
    let promoted = watched.successor_of(&watched.primary);
    clients.go_to(promoted.port());
    let granted_or_gone = waiter.recv_within(PATIENCE).expect("answered");
    if let Err(error) = granted_or_gone {
        // A Sentinel closes the connections of the primary that it demotes.
        let gone = error.starts_with("UNBLOCKED ") || error.starts_with("connection closed");
        assert!(gone, "{error}");
    }
    assert_served(&clients, promoted);
    watched.wait_for_sync(promoted, &watched.primary);
    assert_eq!(int(&cmd!(promoted.connect(), "EXISTS", "other")), 0);
    assert_clean(&clients.stop(), old, promoted.port());
}

// The primary is cut off, with a Sentinel and clients on its side, and lives.
//
//   old primary  ══╳ cut ──grants──grants──┤ NOREPLICAS                   ┬ mended: made a replica
//   the others   ══╳     (down) promoted ├──────── grace ────────┤ grants │
fn primary_is_cut_off(
    settings: Settings,
    then: impl FnOnce(&Watched, &Server, &Contenders),
) -> Record {
    let watched = Watched::start(settings);
    let clients = clients(&watched, settings, Stay::Silent);
    let old = &watched.primary;
    // What is held runs out soon, so that the next grant is one of which only the old primary knows.
    await_hold(old, settings.max_lease - 1_000..settings.max_lease - 300);
    watched.network.cut_off(&[old, &watched.sentinels[0]]);
    let new = watched.successor_of(old);
    // An operator wants to go on at once: the grace protects from the old primary, which has stopped when it ends.
    demand(new, 0);
    clients.go_to(new.port());
    assert!(
        clients.await_grants(new.port(), 1, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    assert_eq!(
        old.info("replication")["role"],
        "master",
        "alive and cut off"
    );
    then(&watched, new, &clients);
    clients.stop()
}

#[test]
fn a_primary_cut_off_with_clients_on_its_side_leaves_no_two_inside() {
    let mut ports = (0, 0);
    let record = primary_is_cut_off(LONG, |watched, new, clients| {
        let old = &watched.primary;
        ports = (old.port(), new.port());
        let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
        assert!(error.starts_with("NOREPLICAS "), "{error}");
        watched.network.mend();
        eventually_within(PATIENCE, "the old primary is a replica", || {
            old.info("replication")["role"] == "slave"
        });
        watched.wait_for_sync(new, old);
        demand(new, 2);
        let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
        assert!(error.starts_with("READONLY "), "{error}");
        assert!(clients.await_grants(new.port(), 1, PATIENCE));
    });
    assert_clean(&record, ports.0, ports.1);
}

#[test]
fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
    assert_finds_two_inside(|| primary_is_cut_off(LONG.without_grace(), |_, _, _| {}));
}

// The primary comes back without its data before anybody has noticed that it was gone.
//
//   primary    ──a holds──✝┌ started, empty ├── grace ──┤ grants
//   replicas               (take its emptiness over)
//   Sentinels  ──────────── nothing happened ───────────────────
fn primary_forgets(settings: Settings) -> Record {
    let mut watched = Watched::start(settings);
    let clients = clients(&watched, settings, Stay::Silent);
    let mut conn = watched.primary.connect();
    eventually_within(
        PATIENCE,
        "somebody holds who has not done so for long",
        || {
            let info = lock_info(&mut conn, "key");
            let held = info
                .iter()
                .flat_map(|info| &info.holds)
                .map(|hold| hold.held);
            held.min().is_some_and(|held| held < 500)
        },
    );
    let port = watched.primary_port();
    watched.primary.sigkill();
    watched.primary.start_again();
    assert!(
        clients.await_grants(watched.primary.port(), 2, PATIENCE),
        "{:?}",
        (clients.refusals(), watched.primary.info("replication"))
    );
    assert_eq!(watched.primary_port(), port, "no Sentinel has noticed");
    for replica in &watched.replicas {
        watched.wait_for_sync(&watched.primary, replica);
    }
    watched.assert_truth(settings);
    clients.stop()
}

#[test]
fn a_primary_that_restarts_without_data_before_anybody_notices_leaves_no_two_inside() {
    primary_forgets(LONG).assert_exclusive();
}

#[test]
fn without_a_grace_a_primary_that_restarts_without_data_leaves_two_inside() {
    assert_finds_two_inside(|| primary_forgets(LONG.without_grace()));
}
