//! A primary fails, and Sentinel or the other nodes of a cluster promote its replica.

use mortise_harness::{Record, Server, Stay, eventually_within, try_cmd};

use crate::topology::{Clustered, Topology};
use crate::watched::{
    PATIENCE, Settings, Watched, assert_clean, assert_finds_two_inside, assert_served, await_hold,
    clients,
};

#[track_caller]
fn await_refusal(server: &Server, code: &str) {
    eventually_within(PATIENCE, "it refuses every client", || {
        let mut conn = server.connect();
        match try_cmd!(conn, "LOCK.ACQUIRE", "key", "x", 1) {
            Err(error) if error.starts_with(code) => Ok(()),
            other => Err(other),
        }
    });
}

// It comes back, acts as a primary without data, and becomes a replica after a while.
fn primary_dies<T: Topology>() {
    let settings = T::safe(1_000);
    let mut servers = T::start(settings);
    let clients = clients(servers.primary(), settings, Stay::Mixed);
    servers.primary_mut().sigkill();
    clients.go_to(servers.successor().port());
    // Only with it the new primary has enough replicas.
    servers.primary_mut().start_again();
    let (old, new) = (servers.primary(), servers.successor());
    assert_served(&clients, new);
    servers.await_demotion(new);
    await_refusal(old, T::DEMOTED);
    assert_clean(&clients.stop(), old.port(), new.port());
}

// The primary is cut off, together with clients, and stays alive.
//
//   old primary  ══╳ cut ──grants──grants──┤ refuses                      ┬ mended: made a replica
//   the others   ══╳     (down) promoted ├──────── grace ────────┤ grants │
fn primary_is_cut_off<T: Topology>(settings: Settings) -> Record {
    let servers = T::start(settings);
    let clients = clients(servers.primary(), settings, Stay::Silent);
    let old = servers.primary();
    // The present lease ends soon, so that only the old primary knows of the next grant.
    await_hold(old, settings.max_lease - 1_000..settings.max_lease - 300);
    servers.cut_off_primary();
    let new = servers.successor();
    // An operator wants writes at once: the grace protects against the old primary, which stops before the grace ends.
    servers.demand(new, 0);
    clients.go_to(new.port());
    assert!(
        clients.await_grants(new.port(), 1, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    let role = &old.info("replication")["role"];
    assert_eq!(role, "master", "alive and cut off");
    let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
    assert!(error.starts_with(T::CUT_OFF), "{error}");
    servers.network().mend();
    servers.await_demotion(new);
    servers.demand(new, 2);
    await_refusal(old, T::DEMOTED);
    assert!(clients.await_grants(new.port(), 1, PATIENCE));
    clients.stop()
}

// The primary comes back without its data before anybody has noticed that it was down.
//
//   primary   ──a holds──✝┌ started, empty ├── grace ──┤ grants
//   replicas              (become empty, too)
//   others    ──────────── notice nothing ─────────────────────
fn primary_forgets<T: Topology>(settings: Settings) -> Record {
    let mut servers = T::start(settings);
    let clients = clients(servers.primary(), settings, Stay::Silent);
    await_hold(servers.primary(), 0..500);
    servers.primary_mut().sigkill();
    servers.primary_mut().start_again();
    let primary = servers.primary();
    assert!(
        clients.await_grants(primary.port(), 2, PATIENCE),
        "{:?}",
        (clients.refusals(), primary.info("replication"))
    );
    servers.assert_unnoticed();
    for replica in servers.replicas() {
        let port = servers.network().port_of(primary);
        mortise_harness::wait_for_sync_at(port, primary, replica);
    }
    clients.stop()
}

mod by_sentinel {
    use super::*;

    #[test]
    fn a_primary_that_dies_and_comes_back_leaves_no_two_inside() {
        primary_dies::<Watched>();
    }

    #[test]
    fn a_primary_cut_off_with_clients_on_its_side_leaves_no_two_inside() {
        primary_is_cut_off::<Watched>(Watched::safe(Watched::LONG)).assert_exclusive();
    }

    #[test]
    fn a_primary_that_restarts_empty_before_anybody_notices_leaves_no_two_inside() {
        primary_forgets::<Watched>(Watched::safe(Watched::LONG)).assert_exclusive();
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
        let settings = Watched::safe(Watched::LONG).without_grace();
        assert_finds_two_inside(|| primary_is_cut_off::<Watched>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_that_restarts_empty_leaves_two_inside() {
        let settings = Watched::safe(Watched::LONG).without_grace();
        assert_finds_two_inside(|| primary_forgets::<Watched>(settings));
    }
}

mod in_a_cluster {
    use super::*;

    #[test]
    fn a_primary_that_dies_and_comes_back_leaves_no_two_inside() {
        primary_dies::<Clustered>();
    }

    #[test]
    fn a_primary_cut_off_with_clients_on_its_side_leaves_no_two_inside() {
        primary_is_cut_off::<Clustered>(Clustered::safe(Clustered::LONG)).assert_exclusive();
    }

    #[test]
    fn a_primary_that_restarts_empty_before_anybody_notices_leaves_no_two_inside() {
        primary_forgets::<Clustered>(Clustered::safe(Clustered::LONG)).assert_exclusive();
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
        let settings = Clustered::safe(Clustered::LONG).without_grace();
        assert_finds_two_inside(|| primary_is_cut_off::<Clustered>(settings));
    }

    #[test]
    #[ignore = "a control that repeats elections: every week"]
    fn without_a_grace_a_primary_that_restarts_empty_leaves_two_inside() {
        // On a busy machine it may rejoin so late that the forgotten lease is over.
        let settings = Clustered::safe(Clustered::LONG).without_grace();
        assert_finds_two_inside(|| primary_forgets::<Clustered>(settings));
    }
}
