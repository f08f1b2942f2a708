//! Data that is older than its acknowledgements suggest: a late stream, late acknowledgements, a slow full sync; and a primary
//! that ends leases which its successor believes to be running.
//!
//! ```text
//!  primary   ──grants a (LEASE)──────────────────────────┤ a's lease is over: grants b ──
//!  replica        ······· LATE ·······├─ counts from here ──────────────────────┤
//!                                           promoted ─ TRYAGAIN ─ RENEW a ? ──▶ null
//! ```

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Value;
use mortise_harness::{
    Contenders, Record, Role, Server, Shutdown, Stay, cmd, eventually, eventually_within, granted,
    hold_of, holders_of, int, is_nil, lock_info, try_cmd, wait_for_sync_over, waiter,
};

use crate::pair::{
    GRACE, LAG, LATE, MAX_LEASE, PATIENCE, Pair, assert_suspect, await_hold, await_on_time,
    builder, configure, promote, renewal, two_inside,
};

/// `a`'s lease, which lasts for a while after the replica has received the hold.
const LEASE: u64 = 11_900;
/// A wrong setting must show within this many runs. Mostly it does in the first, unless the machine pauses.
const ATTEMPTS: u32 = 8;

#[test]
fn without_a_grace_each_of_these_runs_finds_two_inside() {
    type Run = fn(u64) -> bool;
    let runs: [(&str, Run); 6] = [
        ("the stream is late", stream_is_late),
        ("the stream was late before", stream_was_late_before),
        ("the full sync is slow", sync_is_slow),
        ("a second successor", chain),
        ("acknowledgements are late", acknowledgements_are_late),
        ("clients contend", |grace| {
            let record = clients_contend_behind_a_late_stream(grace);
            !record.overlaps().is_empty()
        }),
    ];
    thread::scope(|scope| {
        for (what, run) in runs {
            scope.spawn(move || {
                let found = (0..ATTEMPTS).any(|_| run(0));
                assert!(found, "{what}: {ATTEMPTS} runs have not found two inside");
            });
        }
    });
}

/// Whether `a` can renew at the new primary beside another holder at the old one. With a grace its hold must be suspect.
fn is_revived(old: &Server, new: &Server, token: i64, grace: u64) -> bool {
    let two = two_inside(old, new);
    if grace > 0 {
        assert_suspect(&mut new.connect(), "key", "a", token);
    }
    two
}

// The stream is late while acknowledgements pass at once, so the replica seems up to date.
fn stream_is_late(grace: u64) -> bool {
    let pair = Pair::start(grace);
    let mut old = pair.primary.connect();
    pair.link.delay_stream(LATE);
    let token = int(&cmd!(old, "LOCK.ACQUIRE", "key", "a", LEASE));
    await_hold(&pair.replica, "key", "a");
    let _b = pair.fail_over_at_the_end_of_the_lease();
    is_revived(&pair.primary, &pair.replica, token, grace)
}

#[test]
fn a_hold_that_came_late_and_has_ended_at_the_old_primary_is_not_revived() {
    assert!(!stream_is_late(GRACE));
}

// The same with clients that record when they believed. One of them asks again when its lease is over.
fn clients_contend_behind_a_late_stream(grace: u64) -> Record {
    const ROLES: [Role; 3] = [Role::Returner, Role::Loyal, Role::Returner];
    let pair = Pair::start(grace);
    pair.link.hold_stream();
    let lease = Duration::from_millis(LEASE);
    let clients =
        Contenders::start_staying(&ROLES, "key", pair.primary.port(), lease, Stay::Silent);
    let mut conn = pair.primary.connect();
    eventually("a client is inside", || {
        lock_info(&mut conn, "key").is_some()
    });
    thread::sleep(LATE);
    pair.link.release_stream();
    let mut conn = pair.replica.connect();
    eventually_within(PATIENCE, "the replica has received it", || {
        lock_info(&mut conn, "key").is_some()
    });
    await_on_time(&pair.primary);
    let _b = pair.fail_over_at_the_end_of_the_lease();
    clients.go_to(pair.replica.port());
    clients.await_grants(&pair.replica, 1, PATIENCE);
    clients.stop()
}

#[test]
fn clients_that_ask_the_promoted_server_whether_they_hold_are_never_two_inside() {
    clients_contend_behind_a_late_stream(GRACE).assert_exclusive();
}

// The stream is late and catches up, so that the primary grants again. Only the successor can still know.
fn stream_was_late(pair: &Pair) -> i64 {
    let mut old = pair.primary.connect();
    pair.link.hold_stream();
    let token = int(&cmd!(old, "LOCK.ACQUIRE", "key", "a", LEASE));
    thread::sleep(LATE);
    pair.link.release_stream();
    await_hold(&pair.replica, "key", "a");
    // Until a heartbeat is acknowledged.
    thread::sleep(Duration::from_millis(100));
    await_on_time(&pair.primary);
    token
}

fn stream_was_late_before(grace: u64) -> bool {
    let pair = Pair::start(grace);
    // So that a time as long as the longest lease ends between the late data and the failover, with prompt data after it.
    thread::sleep(Duration::from_millis(1_500));
    let token = stream_was_late(&pair);
    let _b = pair.fail_over_at_the_end_of_the_lease();
    is_revived(&pair.primary, &pair.replica, token, grace)
}

#[test]
fn a_hold_that_came_late_is_not_revived_though_the_stream_has_caught_up() {
    assert!(!stream_was_late_before(GRACE));
}

// A full sync takes so long that its leases are old when it arrives.
fn sync_is_slow(grace: u64) -> bool {
    let pair = Pair::start(grace);
    let mut old = pair.primary.connect();
    // Each key takes a while.
    eventually("no other key is there", || int(&cmd!(old, "DBSIZE")) == 0);
    // The full sync begins when the replica reconnects, which takes a second.
    let delay = (LATE - Duration::from_secs(1)).as_micros().to_string();
    cmd!(old, "CONFIG", "SET", "rdb-key-save-delay", &delay);
    let token = int(&cmd!(old, "LOCK.ACQUIRE", "key", "a", LEASE));
    cmd!(old, "DEBUG", "CHANGE-REPL-ID");
    cmd!(old, "CLIENT", "KILL", "TYPE", "replica");
    eventually_within(PATIENCE, "all data has been sent again", || {
        let state = pair.replica.info("replication");
        let up = state["master_link_status"] == "up";
        let new = state["master_replid"] == pair.primary.info("replication")["master_replid"];
        up && new
    });
    await_hold(&pair.replica, "key", "a");
    await_on_time(&pair.primary);
    let _b = pair.fail_over_at_the_end_of_the_lease();
    is_revived(&pair.primary, &pair.replica, token, grace)
}

#[test]
fn a_hold_that_came_in_a_slow_full_sync_is_not_revived() {
    assert!(!sync_is_slow(GRACE));
}

// Two promotions: the second server gets the hold from the first, which received it late.
//
//   primary  ──a──────────────────────────────┤ grants b
//   first         ···LATE···──a─┤ promoted ──✝
//   second                        full sync ─┤ promoted ─ RENEW a?
fn chain(grace: u64) -> bool {
    let pair = Pair::start(grace);
    let second = builder().start();
    configure(&second, grace, 1);
    let token = stream_was_late(&pair);
    let _b = pair.fail_over_at_the_end_of_the_lease();
    let mut first = pair.replica;
    cmd!(second.connect(), "REPLICAOF", "127.0.0.1", first.port());
    await_hold(&second, "key", "a");
    // By now the first successor has replicated which holds it suspects.
    configure(&first, grace, 1);
    await_on_time(&first);
    first.sigkill();
    promote(&second);
    is_revived(&pair.primary, &second, token, grace)
}

#[test]
fn a_hold_that_came_late_is_not_revived_by_the_second_successor() {
    assert!(!chain(GRACE));
}

#[test]
fn a_promoted_server_that_restarts_in_its_grace_revives_nothing() {
    let mut pair = Pair::start(GRACE);
    let mut conn = pair.replica.connect();
    cmd!(conn, "CONFIG", "SET", "appendfsync", "always");
    cmd!(conn, "CONFIG", "SET", "appendonly", "yes");
    eventually_within(PATIENCE, "the file has begun", || {
        let state = pair.replica.info("persistence");
        let rewrites = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        rewrites.iter().all(|field| state[*field] == "0")
    });
    pair.await_prompt();
    let token = stream_was_late(&pair);
    let _b = pair.fail_over_at_the_end_of_the_lease();
    // The first heartbeat is in the file.
    thread::sleep(Duration::from_millis(500));
    pair.replica.sigkill();
    for (name, value) in [("replicaof", "no one"), ("appendonly", "yes")] {
        pair.replica.set_config(name, value);
    }
    pair.replica.set_module_arg("grace", &GRACE.to_string());
    pair.replica.start_again();
    assert!(is_nil(&renewal(&pair.replica, "key", "a", MAX_LEASE)));
    assert_suspect(&mut pair.replica.connect(), "key", "a", token);
}

// Acknowledgements take so long that the old primary still counts its replica after that has begun to grant.
fn acknowledgements_are_late(grace: u64) -> bool {
    let pair = Pair::start(grace);
    let under_way = Duration::from_millis(GRACE + 2_000);
    pair.link.delay_acknowledgements(under_way);
    thread::sleep(Duration::from_millis(1_500));
    let promoted = Instant::now();
    promote(&pair.replica);
    let (mut old, mut new) = (pair.primary.connect(), pair.replica.connect());
    eventually_within(PATIENCE, "the new primary grants", || {
        !is_nil(&cmd!(new, "LOCK.ACQUIRE", "key", "b", MAX_LEASE))
    });
    // Until the last acknowledgement has arrived and no longer counts.
    while promoted.elapsed() < under_way + Duration::from_secs(LAG + 2) {
        if let Ok(Value::Int(_)) = try_cmd!(old, "LOCK.ACQUIRE", "key", "a", MAX_LEASE) {
            return hold_of(&mut new, "key", "b").is_some();
        }
        thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn late_acknowledgements_do_not_keep_a_cut_off_primary_granting() {
    assert!(!acknowledgements_are_late(GRACE));
}

#[test]
fn a_primary_whose_replicas_are_late_grants_nothing_until_they_catch_up() {
    let pair = Pair::start(GRACE);
    let mut conn = pair.primary.connect();
    int(&cmd!(conn, "LOCK.ACQUIRE", "mine", "a", MAX_LEASE));
    int(&cmd!(conn, "LOCK.WLOCK both a {MAX_LEASE}"));
    int(&cmd!(conn, "LOCK.RLOCK both a {MAX_LEASE}"));
    pair.link.hold_stream();
    eventually("the primary notices", || {
        pair.primary.gauge("replicas_late") == 1
    });
    eventually("the log says so", || {
        pair.primary.log().contains("replicas are late")
    });
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 1_000)));
    let error = try_cmd!(conn, "LOCK.RENEW", "mine", "a", 1_000).unwrap_err();
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    let error = try_cmd!(conn, "LOCK.FENCE", "mine", "a", 1).unwrap_err();
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    assert!(pair.primary.gauge("grace_left_ms") > 0);
    let mut waiting = waiter!(pair.primary, "LOCK.ACQUIRE", "key", "b", 1_000, "WAIT", 0);
    // A release works, but nobody is granted.
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "mine", "a")), 0);
    let mut reading = waiter!(pair.primary, "LOCK.RLOCK both b 1000 WAIT 0");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE both a WRITE")), 1);
    assert!(waiting.recv_within(Duration::from_millis(300)).is_none());
    pair.link.release_stream();
    granted(&mut waiting);
    // Its lock is held, and nothing happens there: its lease is not over.
    granted(&mut reading);
    assert_eq!(holders_of(&mut conn, "both"), ["a", "b"]);
    assert_eq!(pair.primary.gauge("grace_left_ms"), 0);
    eventually("the log says that it is over", || {
        pair.primary.log().contains("replicas are no longer late")
    });
}

#[test]
fn a_hold_that_was_alive_when_the_old_primary_stopped_can_be_renewed_without_limit() {
    let pair = Pair::start(GRACE);
    // Long enough for a failover on a busy machine.
    let lease = 2 * MAX_LEASE;
    for server in [&pair.primary, &pair.replica] {
        let mut conn = server.connect();
        cmd!(conn, "CONFIG", "SET", "lock.max-lease", lease);
        cmd!(conn, "CONFIG", "SET", "lock.grace", GRACE + MAX_LEASE);
    }
    pair.await_heartbeat();
    let mut old = pair.primary.connect();
    let token = int(&cmd!(old, "LOCK.ACQUIRE", "key", "a", lease));
    int(&cmd!(old, "LOCK.ACQUIRE", "short", "a", 2_000));
    wait_for_sync_over(&pair.link, &pair.primary, &pair.replica);
    pair.fail_over();
    assert_eq!(int(&renewal(&pair.replica, "key", "a", lease)), token);
    assert!(is_nil(&renewal(&pair.replica, "short", "a", lease)));
    let mut conn = pair.replica.connect();
    eventually_within(PATIENCE, "the grace is over", || {
        match try_cmd!(conn, "LOCK.RENEW", "key", "a", lease, "TOKEN", token) {
            Ok(renewed) => assert_eq!(int(&renewed), token),
            // The machine stood still, and the server renews nothing for a while after that.
            Err(_) if pair.replica.log().contains("the event loop was away") => return false,
            Err(refused) => panic!("{refused}"),
        }
        cmd!(conn, "LOCK.GUARD", "key", "a", token, "INCR", "data");
        pair.replica.gauge("grace_left_ms") == 0
    });
    assert_eq!(pair.replica.gauge("suspect_left_ms"), 0);
    // A hold that is granted now can be renewed, however short it is.
    int(&cmd!(conn, "LOCK.ACQUIRE", "brief", "b", 2_000));
    int(&cmd!(conn, "LOCK.RENEW", "brief", "b", 2_100));
    assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1_000)), token);
}

/// Nobody knows how late the data in a replica's file was. That concerns the holds in the file, until their leases are over.
#[test]
fn what_a_replica_had_in_its_file_does_not_make_a_later_hold_suspect() {
    let mut pair = Pair::start(GRACE);
    let mut old = pair.primary.connect();
    int(&cmd!(old, "LOCK.ACQUIRE saved s 1500"));
    await_hold(&pair.replica, "saved", "s");
    let full = pair.primary.info("stats")["sync_full"].clone();
    pair.replica.restart(Shutdown::Save);
    wait_for_sync_over(&pair.link, &pair.primary, &pair.replica);
    assert_eq!(
        pair.primary.info("stats")["sync_full"],
        full,
        "only the stream"
    );
    let lease = 2 * MAX_LEASE;
    configure(&pair.replica, GRACE, 1);
    for server in [&pair.primary, &pair.replica] {
        let mut conn = server.connect();
        cmd!(conn, "CONFIG SET lock.max-lease {lease}");
        cmd!(conn, "CONFIG", "SET", "lock.grace", GRACE + MAX_LEASE);
    }
    eventually_within(PATIENCE, "the saved lease is over", || {
        hold_of(&mut pair.replica.connect(), "saved", "s").is_none()
    });
    pair.await_prompt();
    pair.await_heartbeat();
    let token = int(&cmd!(old, "LOCK.ACQUIRE key a {lease}"));
    wait_for_sync_over(&pair.link, &pair.primary, &pair.replica);
    pair.fail_over();
    assert_eq!(int(&renewal(&pair.replica, "key", "a", lease)), token);
}
