//! Sentinel: three of them, a primary and two replicas, all real processes, and clients that ask a Sentinel where to go.

use std::time::Duration;

use mortise_harness::{
    Contenders, Record, Role, Server, array, as_map, cmd, eventually, eventually_within, int,
    is_nil, text, try_cmd, wait_for_sync, waiter,
};

const MAX_LEASE: u64 = 1_000;
const LEASE: Duration = Duration::from_millis(MAX_LEASE);
/// Longest lease, a lag of a second, and 3 seconds.
const GRACE: u64 = MAX_LEASE + 1_000 + 3_000;
const ROLES: [Role; 4] = [Role::Mover, Role::Loyal, Role::Mover, Role::Loyal];
/// What Sentinels take their time for: they convert an old primary only after eight seconds of its claiming to be one.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "locks";

struct Watched {
    sentinels: [Server; 3],
    primary: Server,
    replicas: [Server; 2],
}

impl Watched {
    /// All of them, with the settings under which no two clients are ever inside.
    fn start() -> Watched {
        let builder = || {
            Server::builder()
                .module_arg("max-lease", &MAX_LEASE.to_string())
                .module_arg("grace", &GRACE.to_string())
                .config("min-replicas-max-lag", "1")
                .config("min-replicas-to-write", "2")
        };
        let primary = builder().start();
        let replicas = [0, 1].map(|_| builder().replica_of(&primary).start());
        for replica in &replicas {
            wait_for_sync(&primary, replica);
        }
        let sentinels = [0, 1, 2].map(|_| {
            Server::builder()
                .sentinel()
                .watching(NAME, &primary, 2)
                .start()
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
        for server in replicas.iter().chain([&primary]) {
            let lines = server.info("lock");
            assert_eq!(lines["lock_failover_missing"], "");
            assert_eq!(lines["lock_failover_safe"], "1");
        }
        Watched {
            sentinels,
            primary,
            replicas,
        }
    }

    /// Where the Sentinels say the primary is, once that is not `old`.
    #[track_caller]
    fn successor_of(&self, old: &Server) -> &Server {
        let port = eventually_within(PATIENCE, "a replica has been promoted", || {
            let mut conn = self.sentinels[0].connect();
            let addr = cmd!(conn, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME);
            let port = text(&array(&addr)[1]);
            if port == old.port().to_string() {
                Err(port)
            } else {
                Ok(port)
            }
        });
        let found = self
            .replicas
            .iter()
            .find(|replica| replica.port().to_string() == port);
        found.expect("one of the two replicas")
    }
}

fn clients(watched: &Watched) -> Contenders {
    let clients = Contenders::start(&ROLES, "key", watched.primary.port(), LEASE);
    let port = watched.primary.port();
    assert!(
        clients.await_grants(port, 5, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    clients
}

#[track_caller]
fn assert_served(clients: &Contenders, server: &Server) {
    assert!(
        clients.await_grants(server.port(), 4, PATIENCE),
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
    let mut watched = Watched::start();
    let clients = clients(&watched);
    let old = watched.primary.port();
    watched.primary.sigkill();
    let new = watched.successor_of(&watched.primary).port();
    clients.go_to(new);
    // It comes back, takes itself for a primary without data, and is told otherwise after a while. Only then has the
    // new one as many replicas as it wants to have.
    watched.primary.start_again();
    let promoted = watched.successor_of(&watched.primary);
    assert_served(&clients, promoted);
    wait_for_sync(promoted, &watched.primary);
    let error = try_cmd!(watched.primary.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
    assert!(error.starts_with("READONLY "), "{error}");
    assert_clean(&clients.stop(), old, new);
}

#[test]
fn a_failover_that_sentinel_was_asked_for_leaves_no_two_inside_and_no_waiter_behind() {
    let watched = Watched::start();
    let clients = clients(&watched);
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
    wait_for_sync(promoted, &watched.primary);
    assert_eq!(int(&cmd!(promoted.connect(), "EXISTS", "other")), 0);
    assert_clean(&clients.stop(), old, promoted.port());
}
