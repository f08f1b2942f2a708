//! A server that hides its settings, as hardening guides recommend: the module assumes the strictest values, and says so.

use mortise_harness::{
    Builder, Link, Server, cmd, command, eventually, int, is_nil, replicated_over_link,
    wait_for_sync_over,
};

/// Settings that make a failover safe, as far as the server lets the module see. The grace after a start would only take time.
fn hardened(replicas: u64) -> Builder {
    Server::builder()
        .module_arg("max-lease", "1000")
        .module_arg("promotion-grace", "5000")
        .config("min-replicas-to-write", &replicas.to_string())
        .config("min-replicas-max-lag", "1")
        .config("rename-command", "CONFIG \"\"")
}

/// A primary and its replica over a link that can be late.
fn pair(replicas: u64) -> (Server, Server, Link) {
    replicated_over_link(|| hardened(replicas))
}

fn is_granted(server: &Server, owner: &str) -> bool {
    let request = command!("LOCK.ACQUIRE", owner, owner, 1_000);
    let reply = server.connect().try_run(&request);
    reply.is_ok_and(|reply| !is_nil(&reply))
}

#[test]
fn a_primary_whose_replica_is_late_grants_nothing() {
    let (primary, _replica, link) = pair(1);
    eventually("it grants", || is_granted(&primary, "before"));
    link.hold_stream();
    eventually("the replica is late", || {
        primary.gauge("replicas_late") == 1
    });
    assert!(!is_granted(&primary, "late"));
    link.release_stream();
    eventually("it grants again", || is_granted(&primary, "after"));

    let hidden = &primary.info("lock")["lock_hidden_settings"];
    assert_eq!(hidden, "min-replicas-to-write, min-replicas-max-lag");
    let said = primary.log().matches("the server hides ").count();
    assert_eq!(said, 2, "each once");
}

#[test]
fn all_attached_replicas_count() {
    let (primary, _replica, _link) = pair(1);
    let link = Link::to(&primary);
    let second = hardened(1).replica_over(&link).start();
    wait_for_sync_over(&link, &primary, &second);
    eventually("it grants", || is_granted(&primary, "before"));
    link.hold_stream();
    // The server itself would be content with the other one.
    eventually("a replica is late", || primary.gauge("replicas_late") == 1);
    assert!(!is_granted(&primary, "late"));
}

#[test]
fn a_primary_that_wants_no_replicas_grants_alone() {
    // INFO shows that it wants none.
    let (primary, _replica, link) = pair(0);
    link.hold_stream();
    // For longer than a heartbeat would count.
    let mut conn = primary.connect();
    for owner in ["a", "b", "c", "d", "e"] {
        int(&cmd!(conn, "LOCK.ACQUIRE key {owner} 1000 WAIT 0"));
    }
    assert_eq!(primary.gauge("replicas_late"), 0);
}

#[test]
fn info_says_what_cannot_be_read() {
    let server = hardened(1).start();
    let lines = server.info("lock");
    assert_eq!(lines["lock_failover_safe"], "0");
    assert_eq!(
        lines["lock_failover_missing"],
        "min-replicas-max-lag cannot be read; min-replicas-to-write cannot be read"
    );
    let open = Server::start().info("lock");
    assert_eq!(open["lock_hidden_settings"], "");
}

#[test]
fn without_a_grace_nothing_rests_on_what_is_hidden() {
    let server = Server::builder()
        .config("rename-command", "CONFIG \"\"")
        .start();
    let mut conn = server.connect();
    int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1_000));
    int(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 1_000, "WAIT", 0));
    assert_eq!(server.info("lock")["lock_hidden_settings"], "");
    assert!(!server.log().contains("the server hides"));
}
