//! Failover without two holders: clients contend for one lock while their primary dies or is cut off, and record when each
//! believed that it was inside.
//!
//! With the settings of the contract no two are ever inside. With one of them wrong the same run finds two, so the test
//! can detect the fault. `lock_failover_safe` tells the two cases apart.

use mortise_harness::{Contenders, Record, Server, Stay, assert_finds_two_inside, cmd, eventually};

use crate::trio::{
    ATTEMPTS, GRACE, LAG, LEASE, MAX_LEASE, ROLES, SAFE, Settings, Trio, assert_verdict,
    await_grants, look_for_hold, verdict,
};

// The primary dies with writes that its replicas never received.
//
//   links      ══════╳ cut
//   primary    ──grants──grants──✝
//   replica              (knows nothing of these) promoted ··· grace ··· grants
fn primary_dies(settings: Settings) -> Record {
    let mut trio = Trio::start(settings);
    let port = trio.primary.port();
    let clients = Contenders::start_staying(&ROLES, "key", port, LEASE, Stay::Silent);
    await_grants(&clients, &trio.primary, 1);
    // The present lease ends soon, so that no replica receives the next grant.
    let last = look_for_hold(&trio.primary, |hold| (100..400).contains(&hold.lease));
    trio.refresh();
    for link in &trio.links {
        link.cut();
    }
    let last = last.map(|hold| hold.owner);
    look_for_hold(&trio.primary, |hold| Some(&hold.owner) != last.as_ref());
    trio.primary.sigkill();
    trio.promote();
    // The operator knows that the old primary is dead, and wants writes at once.
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 3);
    // The other servers come back as its replicas, so the promise holds for the next failover.
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
    assert_finds_two_inside(ATTEMPTS, || {
        let settings = Settings {
            grace: 0,
            guard: 0,
            ..SAFE
        };
        primary_dies(settings)
    });
}

// The primary is cut off from one replica, which is promoted; the other stays attached.
//
//   primary    ──grants──grants──grants── (refuses, with the right settings)
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
fn a_primary_cut_off_from_a_promoted_replica_stops_though_another_stays_attached() {
    let record = primary_keeps_a_loyal_replica(SAFE);
    record.assert_exclusive();
}

#[test]
fn with_one_replica_too_few_required_a_primary_with_an_attached_replica_never_stops() {
    assert_finds_two_inside(ATTEMPTS, || {
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
    // A client that will move holds, and both replicas have the hold.
    look_for_hold(&trio.primary, |hold| {
        hold.owner.starts_with(b"mover") && hold.held > 300 && hold.held < 900
    });
    for link in &trio.links {
        link.cut();
    }
    trio.promote();
    trio.expect_replicas(0);
    clients.go_to(trio.replicas[0].port());
    await_grants(&clients, &trio.replicas[0], 4);
    // The network is whole again: the old primary follows the new one.
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
    let refusals = &record.refusals;
    let stops = refusals.iter().any(|(_, it)| it.starts_with("NOREPLICAS"));
    assert!(stops, "the old primary stops: {refusals:?}");
}

#[test]
fn a_holder_renewed_while_the_old_primary_still_grants_leaves_two_inside() {
    assert_finds_two_inside(ATTEMPTS, || {
        // If the longest lease is as long as the grace, the promoted server renews at once.
        holder_moves_while_the_primary_is_cut_off(Settings {
            max_lease: GRACE,
            ..SAFE
        })
    });
}

// A planned failover loses nothing, so it needs no grace: the primary pauses until the replica has all its data.
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

// A server restarts without its data.
fn server_forgets(grace: u64) -> Record {
    let mut server = Server::builder()
        .module_arg("max-lease", &MAX_LEASE.to_string())
        .module_arg("grace", &grace.to_string())
        .config("min-replicas-max-lag", &LAG.to_string())
        .start();
    let port = server.port();
    let clients = Contenders::start_staying(&ROLES, "key", port, LEASE, Stay::Silent);
    await_grants(&clients, &server, 2);
    // A client with a fresh grant believes in it for longer than a start takes.
    look_for_hold(&server, |hold| hold.held < 100);
    server.sigkill();
    server.start_again();
    // A grace that is enough for a restart is too short for a failover, and there is no replica.
    let verdict = verdict(&server);
    assert_verdict(&verdict, Some("min-replicas-to-write is 0"));
    let short = format!("lock.grace {grace} is less than {GRACE}");
    assert_verdict(&verdict, Some(&short));
    await_grants(&clients, &server, 3);
    clients.stop()
}

#[test]
fn a_restart_without_data_leaves_no_two_inside() {
    server_forgets(MAX_LEASE).assert_exclusive();
}

#[test]
fn without_a_grace_a_restart_without_data_leaves_two_inside() {
    assert_finds_two_inside(ATTEMPTS, || server_forgets(0));
}
