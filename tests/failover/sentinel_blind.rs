//! What Sentinel cannot see: a primary that is cut off but alive, and one that restarts without its data before any
//! Sentinel notices.

use mortise_harness::{Contenders, Record, Server, Stay, try_cmd};

use crate::watched::{
    LONG, PATIENCE, Settings, Watched, assert_clean, assert_finds_two_inside, await_hold, clients,
    demand,
};

// The primary is cut off together with a Sentinel and clients, and stays alive.
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
    // The present lease ends soon, so that only the old primary knows of the next grant.
    await_hold(old, settings.max_lease - 1_000..settings.max_lease - 300);
    watched.network.cut_off(&[old, &watched.sentinels[0]]);
    let new = watched.successor_of(old);
    // An operator wants writes at once: the grace protects against the old primary, which stops before the grace ends.
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
        watched.await_demotion(old, new);
        demand(new, 2);
        let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "x", 1).unwrap_err();
        assert!(error.starts_with("READONLY "), "{error}");
        assert!(clients.await_grants(new.port(), 1, PATIENCE));
    });
    assert_clean(&record, ports.0, ports.1);
}

#[test]
#[ignore = "a control that repeats elections: every week"]
fn without_a_grace_a_primary_cut_off_with_clients_on_its_side_leaves_two_inside() {
    assert_finds_two_inside(|| primary_is_cut_off(LONG.without_grace(), |_, _, _| {}));
}

// The primary comes back without its data before any Sentinel has noticed that it was down.
//
//   primary    ──a holds──✝┌ started, empty ├── grace ──┤ grants
//   replicas               (become empty, too)
//   Sentinels  ──────────── notice nothing ─────────────────────
fn primary_forgets(settings: Settings) -> Record {
    let mut watched = Watched::start(settings);
    let clients = clients(&watched, settings, Stay::Silent);
    await_hold(&watched.primary, 0..500);
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
fn a_primary_that_restarts_empty_before_anybody_notices_leaves_no_two_inside() {
    primary_forgets(LONG).assert_exclusive();
}

#[test]
#[ignore = "a control that repeats elections: every week"]
fn without_a_grace_a_primary_that_restarts_empty_leaves_two_inside() {
    assert_finds_two_inside(|| primary_forgets(LONG.without_grace()));
}
