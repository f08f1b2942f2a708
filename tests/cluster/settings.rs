//! Cluster: settings that make a failover unsafe, and settings that the module cannot see.

use mortise_harness::{Cluster, Server, Shutdown, cmd, eventually, int, try_cmd};

/// Longest lease, node time-out and 3 seconds.
const MAX_LEASE: u64 = 1_000;
const NODE_TIMEOUT: u64 = 2_000;
const GRACE: u64 = MAX_LEASE + NODE_TIMEOUT + 3_000;

#[test]
fn info_names_the_wrong_setting_in_a_cluster() {
    let cluster = Cluster::start(1, || {
        Server::builder()
            .config("cluster-node-timeout", &NODE_TIMEOUT.to_string())
            .module_arg("max-lease", &MAX_LEASE.to_string())
            .module_arg("grace", &GRACE.to_string())
    });
    let mut conn = cluster.primaries[0].connect();
    let verdict = || {
        let lines = cluster.primaries[0].info("lock");
        let missing = lines["lock_failover_missing"].clone();
        assert_eq!(lines["lock_failover_safe"] == "1", missing.is_empty());
        missing
    };
    // No replicas are required: the majority of the primaries takes their place.
    assert_eq!(verdict(), "");
    for (name, right, wrong, missing) in [
        ("lock.grace", GRACE, 0, "0 is less than 6000"),
        ("lock.grace", GRACE, GRACE - 1, "5999 is less than 6000"),
        ("lock.max-lease", MAX_LEASE, 1_001, "6000 is less than 6001"),
        (
            "cluster-node-timeout",
            NODE_TIMEOUT,
            2_001,
            "6000 is less than 6001",
        ),
    ] {
        cmd!(conn, "CONFIG SET {name} {wrong}");
        assert_eq!(verdict(), format!("lock.grace {missing}"));
        cmd!(conn, "CONFIG SET {name} {right}");
        assert_eq!(verdict(), "");
    }
}

/// A node that hides which slots it has takes each for one that moves.
#[test]
fn several_keys_are_refused_by_a_node_that_hides_its_slots() {
    let mut cluster = Cluster::start(1, Server::builder);
    let server = &mut cluster.primaries[0];
    server.set_config("rename-command", "CLUSTER \"\"");
    server.restart(Shutdown::NoSave);
    let mut conn = server.connect();
    let reply = eventually("the node serves its slots", || {
        match try_cmd!(conn, "LOCK.MACQUIRE", "a", 1_000, 2, "{k}1", "{k}2") {
            Err(error) if error.starts_with("CLUSTERDOWN ") => Err(error),
            other => Ok(other),
        }
    });
    let error = reply.expect_err("refused");
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    assert_eq!(server.info("lock")["lock_hidden_settings"], "CLUSTER NODES");
    assert!(server.log().contains("the server hides CLUSTER NODES"));
    // One key needs no slot.
    int(&cmd!(conn, "LOCK.ACQUIRE", "{k}1", "a", 1_000));
    int(&cmd!(conn, "LOCK.ACQUIRE", "{k}1", "b", 1_000, "WAIT", 0));
}
