//! Failover without two holders: clients contend for one lock while their primary dies, is cut off or freezes, and
//! write down when each believed to be inside.
//!
//! With the settings of the contract no two are ever inside. With any one of them wrong the same run finds two: that
//! shows that the test can see what it looks for. And `lock_failover_safe` says in each case which of the two it is.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Contenders, Link, Record, Role, Server, cmd, eventually, lock_info, try_cmd, wait_for_sync_over,
};

const MAX_LEASE: u64 = 1_000;
const LEASE: Duration = Duration::from_millis(MAX_LEASE);
const LAG: u64 = 1;
/// What the contract demands: the longest lease, the lag, and 3 seconds.
const GRACE: u64 = MAX_LEASE + LAG * 1_000 + 3_000;
const ROLES: [Role; 5] = [
    Role::Mover,
    Role::Loyal,
    Role::Mover,
    Role::Loyal,
    Role::Mover,
];
/// In how many runs a wrong setting must show. Mostly the first does; a frozen primary that happens to count its
/// replicas the moment it wakes shows nothing.
const ATTEMPTS: u32 = 12;

/// What one run configures.
#[derive(Clone, Copy)]
struct Settings {
    grace: u64,
    /// On the replicas: what the grace of a promotion is reckoned with.
    max_lease: u64,
    /// `lock.grace` of the first primary: none switches its stall guard off.
    guard: u64,
    min_replicas: u64,
}

const SAFE: Settings = Settings {
    grace: GRACE,
    max_lease: MAX_LEASE,
    guard: GRACE,
    min_replicas: 2,
};

/// A primary and two replicas, each attached over a link of its own.
struct Trio {
    primary: Server,
    replicas: [Server; 2],
    links: [Link; 2],
}

impl Trio {
    fn start(settings: Settings) -> Trio {
        let builder = || {
            Server::builder()
                .module_arg("max-lease", &MAX_LEASE.to_string())
                .config("min-replicas-max-lag", &LAG.to_string())
        };
        let primary = builder().start();
        let links = [Link::to(&primary), Link::to(&primary)];
        let replicas = [0, 1].map(|n| builder().replica_over(&links[n]).start());
        for (replica, link) in replicas.iter().zip(&links) {
            wait_for_sync_over(link, &primary, replica);
        }
        // The graces of the starts are none of this test's matter, so they are configured only now.
        set(&primary, "lock.grace", settings.guard);
        for server in replicas.iter().chain([&primary]) {
            set(server, "min-replicas-to-write", settings.min_replicas);
        }
        for replica in &replicas {
            set(replica, "lock.grace", settings.grace);
            set(replica, "lock.max-lease", settings.max_lease);
        }
        eventually("the primary has heard of both", || {
            let mut conn = primary.connect();
            try_cmd!(conn, "SET", "written", "yes").is_ok()
        });
        let trio = Trio {
            primary,
            replicas,
            links,
        };
        trio.assert_truth(settings);
        trio
    }

    /// `INFO lock` tells whether these settings keep the promise, on the server where one is wrong.
    #[track_caller]
    fn assert_truth(&self, settings: Settings) {
        let primary = verdict(&self.primary);
        let wrong = if settings.guard < GRACE {
            Some("lock.grace")
        } else if settings.min_replicas < 2 {
            Some("min-replicas-to-write")
        } else {
            None
        };
        assert_verdict(&primary, wrong);
        let wrong = if settings.grace < settings.max_lease + LAG * 1_000 + 3_000 {
            Some("lock.grace")
        } else {
            None
        };
        for replica in &self.replicas {
            assert_verdict(&verdict(replica), wrong);
        }
    }

    /// Makes the first replica a primary that has the replicas it needs: as many as it has.
    fn promote(&self) {
        let promoted = &self.replicas[0];
        cmd!(promoted.connect(), "REPLICAOF", "NO", "ONE");
    }

    /// The promoted server's direct replicas are the others now, of which `count` are there.
    fn expect_replicas(&self, count: u64) {
        set(&self.replicas[0], "min-replicas-to-write", count);
    }

    fn follow_promoted(&self, server: &Server) {
        let port = self.replicas[0].port();
        cmd!(server.connect(), "REPLICAOF", "127.0.0.1", port);
    }
}

fn set(server: &Server, name: &str, value: u64) {
    cmd!(server.connect(), "CONFIG", "SET", name, value);
}

/// `lock_failover_safe` and `lock_failover_missing`.
fn verdict(server: &Server) -> (String, String) {
    let mut lines = server.info("lock");
    let mut take = |name| lines.remove(name).expect("a field of INFO lock");
    (take("lock_failover_safe"), take("lock_failover_missing"))
}

#[track_caller]
fn assert_verdict((safe, missing): &(String, String), wrong: Option<&str>) {
    match wrong {
        None => assert_eq!((safe.as_str(), missing.as_str()), ("1", "")),
        Some(setting) => assert!(
            safe == "0" && missing.contains(setting),
            "safe: {safe}, missing: {missing}, expected {setting}"
        ),
    }
}

/// Runs until a run finds two inside.
#[track_caller]
fn assert_finds_two_inside(run: impl Fn() -> Record) {
    for _ in 0..ATTEMPTS {
        let record = run();
        // Tokens tell the two apart even then.
        let overlaps = record.overlaps();
        if !overlaps.is_empty() {
            assert!(overlaps.iter().all(|(one, other)| one.token != other.token));
            return;
        }
    }
    panic!("{ATTEMPTS} runs have found nobody beside somebody else");
}

/// Waits until the server has granted so often; long enough for a grace.
#[track_caller]
fn await_grants(clients: &Contenders, server: &Server, count: usize) {
    let patience = Duration::from_millis(GRACE + 20_000);
    assert!(
        clients.await_grants(server.port(), count, patience),
        "the server on port {} serves nobody; refusals: {:?}; {:?}",
        server.port(),
        clients.refusals(),
        (server.info("lock"), server.info("replication")),
    );
}

// The primary dies with writes that its replicas never had.
//
//   links      ══════╳ cut
//   primary    ──grants──grants──✝
//   replica              (knows nothing of these) promoted ··· grace ··· grants
fn primary_dies(settings: Settings) -> Record {
    let mut trio = Trio::start(settings);
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 5);
    for link in &trio.links {
        link.cut();
    }
    // Time for some grants and renewals that are lost.
    thread::sleep(LEASE * 7 / 10);
    trio.primary.sigkill();
    trio.promote();
    // The operator, who knows that the old one is dead, wants to go on at once.
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 3);
    // The others come back as its replicas, and the promise holds for the next failover.
    trio.follow_promoted(&trio.replicas[1]);
    let port = trio.replicas[0].port();
    trio.primary
        .set_config("replicaof", &format!("127.0.0.1 {port}"));
    trio.primary.start_again();
    trio.expect_replicas(2);
    await_grants(&clients, &trio.replicas[0], 3);
    clients.stop()
}

#[test]
fn a_primary_that_dies_with_its_writes_leaves_no_two_inside() {
    primary_dies(SAFE).assert_exclusive();
}

#[test]
fn without_a_grace_a_primary_that_dies_with_its_writes_leaves_two_inside() {
    assert_finds_two_inside(|| {
        let settings = Settings {
            grace: 0,
            guard: 0,
            ..SAFE
        };
        primary_dies(settings)
    });
}

// The primary is cut off from one replica, which is promoted; the other one stays with it.
//
//   primary    ──grants──grants──grants── (refuses, with the settings that are right)
//   loyal      ════════════════════════
//   replica    ═══╳ cut   promoted ······ grace ······ grants
fn primary_keeps_a_loyal_replica(settings: Settings) -> Record {
    let trio = Trio::start(settings);
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 5);
    trio.links[0].cut();
    trio.promote();
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 4);
    clients.stop()
}

#[test]
fn a_primary_cut_off_from_a_promoted_replica_stops_though_another_is_loyal() {
    let record = primary_keeps_a_loyal_replica(SAFE);
    record.assert_exclusive();
}

#[test]
fn with_one_replica_too_few_required_a_primary_with_a_loyal_replica_never_stops() {
    assert_finds_two_inside(|| {
        primary_keeps_a_loyal_replica(Settings {
            min_replicas: 1,
            ..SAFE
        })
    });
}

// A client renews its hold at the promoted server while the old primary, cut off, still grants.
//
//   primary    ──holds: mover──(unrenewed)──grants to loyal──(refuses)
//   replica         promoted ─ RENEW mover? TRYAGAIN ············ RENEW is answered
fn holder_moves_while_the_primary_is_cut_off(settings: Settings) -> Record {
    let trio = Trio::start(settings);
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 3);
    // One of those who move holds, and both replicas know.
    let mut conn = trio.primary.connect();
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(20) {
        let holder = lock_info(&mut conn, "key").and_then(|info| info.holds.into_iter().next());
        let young = |hold: &mortise_harness::Hold| hold.held > 300 && hold.held < 900;
        if holder.is_some_and(|hold| hold.owner.starts_with(b"mover") && young(&hold)) {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    for link in &trio.links {
        link.cut();
    }
    trio.promote();
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 4);
    // Back in one piece: the old primary takes the new one's word.
    for link in &trio.links {
        link.mend();
    }
    trio.follow_promoted(&trio.replicas[1]);
    trio.follow_promoted(&trio.primary);
    trio.expect_replicas(2);
    await_grants(&clients, &trio.replicas[0], 3);
    clients.stop()
}

#[test]
fn a_holder_that_moves_to_the_promoted_server_leaves_no_two_inside() {
    let record = holder_moves_while_the_primary_is_cut_off(SAFE);
    record.assert_exclusive();
    assert!(
        record
            .refusals
            .iter()
            .any(|(_, line)| line.starts_with("NOREPLICAS")),
        "the old primary stops: {:?}",
        record.refusals
    );
}

#[test]
fn a_holder_renewed_while_the_old_primary_still_grants_leaves_two_inside() {
    assert_finds_two_inside(|| {
        // With the longest lease as long as the grace, a renewal has not to wait at all.
        holder_moves_while_the_primary_is_cut_off(Settings {
            max_lease: GRACE,
            ..SAFE
        })
    });
}

// The primary is frozen until the grace of its successor is over, and wakes.
//
//   primary    ──grants──❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄❄ wakes: its replicas look alive for a second or more
//   replica         promoted ····· grace ····· grants ──
fn primary_freezes(settings: Settings) -> Record {
    let trio = Trio::start(settings);
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 5);
    // Its replicas are gone, and it will not hear of it.
    for link in &trio.links {
        link.cut();
    }
    trio.primary.stop_signal();
    trio.promote();
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 2);
    trio.primary.cont_signal();
    // By then it has counted its replicas, and its guard is down.
    thread::sleep(Duration::from_millis(GRACE));
    await_grants(&clients, &trio.replicas[0], 2);
    clients.stop()
}

#[test]
fn a_primary_that_wakes_after_the_grace_grants_nothing() {
    primary_freezes(SAFE).assert_exclusive();
}

#[test]
fn without_its_guard_a_primary_that_wakes_after_the_grace_leaves_two_inside() {
    assert_finds_two_inside(|| primary_freezes(Settings { guard: 0, ..SAFE }));
}

// A planned failover loses nothing, so it needs no grace: the primary pauses until its successor has all of it.
#[test]
fn a_planned_failover_leaves_no_two_inside_even_without_a_grace() {
    let trio = Trio::start(Settings {
        grace: 0,
        guard: 0,
        ..SAFE
    });
    let clients = Contenders::start(&ROLES, "key", trio.primary.port(), LEASE);
    await_grants(&clients, &trio.primary, 5);
    let promoted = &trio.replicas[0];
    trio.expect_replicas(0);
    let mut conn = trio.primary.connect();
    cmd!(conn, "FAILOVER", "TO", "127.0.0.1", promoted.port());
    eventually("the replica has taken over", || {
        promoted.info("replication")["role"] == "master"
    });
    clients.go_to(promoted.port());
    await_grants(&clients, promoted, 5);
    clients.stop().assert_exclusive();
}

// A server that comes back without its data.
fn server_forgets(grace: u64) -> Record {
    let mut server = Server::builder()
        .module_arg("max-lease", &MAX_LEASE.to_string())
        .module_arg("grace", &grace.to_string())
        .start();
    let clients = Contenders::start(&ROLES, "key", server.port(), LEASE);
    await_grants(&clients, &server, 5);
    server.sigkill();
    server.start_again();
    await_grants(&clients, &server, 5);
    clients.stop()
}

#[test]
fn a_restart_without_data_leaves_no_two_inside() {
    server_forgets(MAX_LEASE).assert_exclusive();
}

#[test]
fn without_a_grace_a_restart_without_data_leaves_two_inside() {
    assert_finds_two_inside(|| server_forgets(0));
}
