//! Cluster: a replica takes over from a primary that dies, freezes, is cut off, or hands over.

use std::time::{Duration, Instant};

use mortise_harness::{
    Builder, Cluster, Conn, Contenders, Role, Server, cmd, eventually_within, hold_of, int,
    queue_of, try_cmd, wait_for_sync, waiter,
};

/// Longest lease, node time-out and 3 seconds.
const MAX_LEASE: u64 = 1_000;
const NODE_TIMEOUT: u64 = 2_000;
const GRACE: u64 = MAX_LEASE + NODE_TIMEOUT + 3_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn node() -> Builder {
    Server::builder().config("cluster-node-timeout", &NODE_TIMEOUT.to_string())
}

#[track_caller]
fn assert_unblocked(waiter: &mut Conn, within: Duration) {
    let since = Instant::now();
    let reply = waiter.recv_within(PATIENCE).expect("an answer");
    let error = reply.expect_err("sent away");
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert!(since.elapsed() < within, "after {:?}", since.elapsed());
}

#[test]
fn a_manual_failover_keeps_holds_and_unblocks_waiters() {
    let cluster = Cluster::start_with_replicas(3, node);
    let home = cluster.home_of("key");
    let (old, new) = (&cluster.primaries[home], &cluster.replicas[home]);
    let mut conn = old.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    let mut b = waiter!(old, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(conn, "CONFIG", "SET", "lock.mail-timeout", 60_000);
    let mut letters = waiter!(old, "LOCK.MAIL", "box:{key}", "WAIT", 30_000);
    wait_for_sync(old, new);
    cmd!(new.connect(), "CLUSTER", "FAILOVER");
    assert_unblocked(&mut b, Duration::from_secs(20));
    // Its time would be over with no letters.
    assert_unblocked(&mut letters, Duration::from_secs(29));
    wait_for_sync(new, old);
    let mut conn = new.connect();
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    assert_eq!(old.gauge("waiters"), 0);
    assert!(queue_of(&mut conn, "key").is_empty());
    let error = try_cmd!(old.connect(), "LOCK.ACQUIRE", "key", "b", 1_000).unwrap_err();
    assert!(error.starts_with("MOVED "), "{error}");
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000)) > token);
}

#[test]
fn info_names_the_wrong_setting_in_a_cluster() {
    let cluster = Cluster::start(1, || {
        node()
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
    let wrong = [
        ("lock.grace", 0, "lock.grace 0 is less than 6000"),
        ("lock.grace", GRACE - 1, "lock.grace 5999 is less than 6000"),
        (
            "lock.max-lease",
            MAX_LEASE + 1,
            "lock.grace 6000 is less than 6001",
        ),
        (
            "cluster-node-timeout",
            NODE_TIMEOUT + 1,
            "lock.grace 6000 is less than 6001",
        ),
    ];
    let right = [
        ("lock.grace", GRACE),
        ("lock.max-lease", MAX_LEASE),
        ("cluster-node-timeout", NODE_TIMEOUT),
    ];
    for (name, value, missing) in wrong {
        cmd!(conn, "CONFIG", "SET", name, value);
        assert_eq!(verdict(), missing);
        for (name, value) in right {
            cmd!(conn, "CONFIG", "SET", name, value);
        }
        assert_eq!(verdict(), "");
    }
}

// A primary that the majority cannot reach stops by itself.
//
//   primary    ──grants──❄❄❄❄❄❄❄ wakes: knows neither of its successor nor of the freeze
//   replica            (node time-out) elected ··· grace ··· grants
#[test]
fn a_primary_that_was_frozen_while_its_replica_was_elected_grants_nothing() {
    let cluster = Cluster::start_with_replicas(3, || {
        node()
            .module_arg("max-lease", &MAX_LEASE.to_string())
            .module_arg("grace", &GRACE.to_string())
    });
    let home = cluster.home_of("key");
    let roles = [Role::Mover, Role::Loyal, Role::Loyal];
    let old = &cluster.primaries[home];
    let clients = Contenders::start(&roles, "key", old.port(), Duration::from_millis(MAX_LEASE));
    assert!(
        clients.await_grants(old.port(), 4, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    old.stop_signal();
    let new = &cluster.replicas[home];
    eventually_within(PATIENCE, "the replica has taken over", || {
        new.info("replication")["role"] == "master"
    });
    clients.go_to(new.port());
    assert!(
        clients.await_grants(new.port(), 2, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    old.cont_signal();
    eventually_within(PATIENCE, "the old primary is a replica", || {
        old.info("replication")["role"] == "slave"
    });
    assert!(
        clients.await_grants(new.port(), 3, PATIENCE),
        "{:?}",
        clients.refusals()
    );
    clients.stop().assert_exclusive();
}
