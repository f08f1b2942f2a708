//! Servers are brought into the states for which there are alerts. Each test checks the series there, and writes them down with the alerts
//! that they have to raise, for promtool.

use mortise_harness::{
    Conn, Server, Shutdown, cmd, command, eventually, eventually_within, int, queue, queued,
    request, try_cmd, wait_for_sync, waiter,
};

use crate::series::Series;

fn queue_more(conn: &mut Conn, from: usize, to: usize) {
    for n in from..to {
        queue!(
            conn,
            format!("box{}", n % 10),
            "LOCK.ACQUIRE key w{n} 60000"
        );
    }
}

fn patient() -> mortise_harness::Builder {
    Server::builder().module_arg("mail-timeout", "60000")
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn a_healthy_server_raises_no_alert() {
    let server = Server::start();
    let mut conn = server.connect();
    let mut series = Series::of(&server);
    for n in 0..4 {
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut waiting = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
        let samples = series.scrape();
        assert_eq!(samples.of("waiters"), 1.0);
        assert_eq!(samples.of("total_handoffs"), f64::from(n));
        cmd!(conn, "LOCK.RELEASE", "key", "a");
        waiting.recv();
        cmd!(conn, "LOCK.RELEASE", "key", "b");
    }
    series.raises("well", 18, &[]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn growing_waiters_raise_the_alert() {
    let server = patient().start();
    let mut conn = server.connect();
    let mut series = Series::of(&server);
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    let mut queued = 0;
    for (stage, more) in [6, 8, 14, 16].into_iter().enumerate() {
        queue_more(&mut conn, queued, queued + more);
        queued += more;
        let samples = series.scrape();
        assert_eq!(samples.of("waiters"), (queued - stage) as f64);
        // Fewer are granted than come.
        let holder = mortise_harness::holders_of(&mut conn, "key").remove(0);
        cmd!(conn, "LOCK.RELEASE", "key", holder);
    }
    series.raises("waiters_grow", 18, &["MortiseWaitersGrow"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn without_grants_the_total_stops_while_requests_wait() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    let _waiting = waiter!(server, "LOCK.ACQUIRE", "key", "w", 60_000, "WAIT", 0);
    let mut series = Series::of(&server);
    for _ in 0..3 {
        cmd!(conn, "LOCK.RENEW", "key", "holder", 60_000);
        let samples = series.scrape();
        assert_eq!(samples.of("total_grants"), 1.0);
        assert_eq!(samples.of("waiters"), 1.0);
    }
    series.raises("nobody_granted", 20, &["MortiseNobodyGranted"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn hand_offs_that_the_server_refuses_are_held_back() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    let _waiting = waiter!(server, "LOCK.ACQUIRE", "key", "w", 60_000, "WAIT", 0);
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().of("held_back"), 0.0);
    cmd!(conn, "LOCK.ACQUIRE", "short", "holder", 2_000);
    let _short = waiter!(server, "LOCK.ACQUIRE", "short", "w", 60_000, "WAIT", 0);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    eventually("the lease is over and nobody let in", || {
        server.gauge("held_back") == 1
    });
    assert_eq!(series.scrape().of("held_back"), 1.0);
    series.raises("hand_offs_refused", 8, &["MortiseHandOffsRefused"]);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn a_grace_that_restarts_repeatedly_does_not_end() {
    let mut server = Server::builder().module_arg("grace", "600000").start();
    let mut series = Series::of(&server);
    for _ in 0..4 {
        let left = series.scrape().of("grace_left_ms");
        assert!((500_000.0..=600_000.0).contains(&left), "{left}");
        server.restart(Shutdown::NoSave);
    }
    series.raises("grace", 18, &["MortiseGraceDoesNotEnd"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn evicted_keys_may_be_locks() {
    let server = Server::builder()
        .config("maxmemory-policy", "allkeys-random")
        .start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    cmd!(conn, "CONFIG", "SET", "maxmemory", "1gb");
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().own("redis_evicted_keys_total"), 0.0);
    // Less than the server itself takes, so it evicts every key.
    cmd!(conn, "CONFIG", "SET", "maxmemory", 1_000);
    eventually("it has been evicted", || {
        let _ = try_cmd!(conn, "SET", "one more", "x");
        server.gauge("locks") == 0
    });
    cmd!(conn, "CONFIG", "SET", "maxmemory", 0);
    assert!(series.scrape().own("redis_evicted_keys_total") >= 1.0);
    series.raises("evicted", 7, &["MortiseEvicted"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn a_policy_that_would_evict_locks_is_noticed() {
    let server = Server::builder()
        .config("maxmemory-policy", "allkeys-lru")
        .config("maxmemory", "1gb")
        .start();
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().of("evictable"), 1.0);
    series.raises("evictable", 7, &["MortiseEvictable"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn settings_that_no_longer_keep_the_promise_are_noticed() {
    let server = Server::builder()
        .module_arg("max-lease", "1000")
        .module_arg("grace", "20000")
        .config("min-replicas-to-write", "1")
        .start();
    let mut conn = server.connect();
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().of("failover_safe"), 1.0);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
    cmd!(conn, "CONFIG", "SET", "lock.grace", 0);
    eventually("nobody waits for replicas", || {
        server.gauge("replicas_late") == 0
    });
    assert_eq!(series.scrape().of("failover_safe"), 0.0);
    let text = server.info("lock")["lock_failover_missing"].clone();
    assert!(text.contains("min-replicas-to-write is 0"), "{text}");
    // The grace after the start has an alert of its own.
    series.forget("grace_left_ms");
    series.raises("failover_unsafe", 9, &["MortiseFailoverUnsafe"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn limits_are_noticed_before_a_request_is_refused() {
    let server = patient()
        .module_arg("max-waiters", "10")
        .module_arg("max-queued", "100")
        .start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    let mut blocked = Series::of(&server);
    blocked.scrape();
    let requests =
        (0..9).map(|n| command!("LOCK.ACQUIRE", "key", format!("b{n}"), 60_000, "WAIT", 0));
    let _waiting = server.waiters(requests);
    let samples = blocked.scrape();
    assert_eq!(samples.of("blocked_clients"), 9.0);
    assert_eq!(samples.of("max_waiters"), 10.0);
    blocked.raises("blocked_limit", 8, &["MortiseBlockedLimitNear"]);
    let mut mailed = Series::of(&server);
    // Ten boxes, eight requests in each.
    queue_more(&mut conn, 0, 80);
    let samples = mailed.scrape();
    let parts = ["waiters_by_mail", "boxes", "letters"];
    let used: f64 = parts.iter().map(|part| samples.of(part)).sum();
    assert_eq!((used, samples.of("max_queued")), (90.0, 100.0));
    mailed.raises(
        "mail_limit",
        3,
        &["MortiseBlockedLimitNear", "MortiseMailLimitNear"],
    );
    // Letters that nobody deletes count as well.
    let brief = request!("box9", 1, "LOCK.ACQUIRE", "key", "brief", 60_000);
    queued(&conn.run(&brief));
    eventually("its wait is over", || server.gauge("letters") == 1);
    assert_eq!(mailed.scrape().of("letters"), 1.0);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn leases_that_run_out_waits_that_time_out_and_deadlocks_are_counted() {
    let server = Server::start();
    let mut conn = server.connect();
    let mut series = Series::of(&server);
    series.scrape();
    for n in 0..20 {
        cmd!(conn, "LOCK.ACQUIRE", format!("key:{n}"), "dies", 1);
    }
    eventually("they are over", || server.gauge("total_expiries") == 20);
    let samples = series.scrape();
    assert_eq!(samples.of("total_expiries"), 20.0);
    assert_eq!(samples.of("total_grants"), 20.0);
    series.raises("leases_run_out", 12, &["MortiseLeasesRunOut"]);

    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", 60_000);
    let mut series = Series::of(&server);
    series.scrape();
    for n in 0..30 {
        cmd!(conn, "LOCK.ACQUIRE key w{n} 60000 WAIT 1");
    }
    assert_eq!(series.scrape().of("total_timeouts"), 30.0);
    series.raises("waits_time_out", 12, &["MortiseWaitsTimeOut"]);

    let mut series = Series::of(&server);
    series.scrape();
    cmd!(conn, "LOCK.ACQUIRE", "other", "b", 60_000);
    let _b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    try_cmd!(conn, "LOCK.ACQUIRE", "other", "holder", 60_000, "WAIT", 0).unwrap_err();
    assert_eq!(series.scrape().of("total_deadlocks"), 1.0);
    series.raises("deadlocks", 7, &["MortiseDeadlocks"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn replicas_that_acknowledge_nothing_recent_are_late() {
    let primary = Server::builder()
        .module_arg("max-lease", "1000")
        .config("min-replicas-max-lag", "2")
        .start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let mut conn = primary.connect();
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    cmd!(conn, "CONFIG", "SET", "lock.grace", 10_000);
    eventually("the primary grants", || {
        try_cmd!(conn, "LOCK.ACQUIRE", "warm", "w", 1_000).is_ok_and(|reply| int_or_none(&reply))
    });
    let mut series = Series::of(&primary);
    assert_eq!(series.scrape().of("replicas_late"), 0.0);
    replica.stop_signal();
    eventually_within(
        std::time::Duration::from_secs(40),
        "the replica is late",
        || primary.gauge("replicas_late") == 1,
    );
    let samples = series.scrape();
    assert_eq!(samples.of("replicas_late"), 1.0);
    replica.cont_signal();
    series.raises("replicas_late", 8, &["MortiseReplicasLate"]);
}

fn int_or_none(reply: &mortise_harness::redis::Value) -> bool {
    !mortise_harness::is_nil(reply) && int(reply) > 0
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn an_unreachable_server_is_down() {
    let mut server = Server::start();
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().own("redis_up"), 1.0);
    server.sigkill();
    assert_eq!(series.scrape().own("redis_up"), 0.0);
    series.raises("down", 8, &["MortiseDown"]);
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn a_server_without_the_module_is_down() {
    let server = Server::builder().without_module().start();
    let mut series = Series::of(&server);
    assert_eq!(series.scrape().own("redis_up"), 1.0);
    series.raises("no_module", 8, &["MortiseDown", "MortiseUnwatched"]);
}
