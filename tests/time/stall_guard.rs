//! The stall guard: a server that was frozen, or whose wall clock was set back, does not trust what it knew of its
//! replicas.

use std::thread;
use std::time::{Duration, Instant};

use super::{assert_try_again, grace_left, millis, with_grace};
use mortise_harness::ClockStep::Back;
use mortise_harness::{
    Link, Server, cmd, command, eventually, granted, int, is_nil, queue_of, try_cmd,
    wait_for_sync_over, waiter,
};

/// Freezes the server for a while and continues it. Returns a moment just before it continues.
fn freeze(server: &Server, time: Duration) -> Instant {
    server.stop_signal();
    thread::sleep(time);
    let end = Instant::now();
    server.cont_signal();
    end
}

/// A server whose grace is over and that knows the configured lag.
fn guarded() -> Server {
    let server = with_grace(1_500, 1_000)
        .config("min-replicas-max-lag", "1")
        .start();
    server.await_gauge("grace_left_ms", 0);
    server
}

const FROZEN: Duration = Duration::from_millis(1_600);

#[test]
fn a_server_that_was_frozen_grants_and_renews_nothing_until_it_has_seen_its_replicas() {
    let server = guarded();
    let mut conn = server.connect();
    cmd!(conn, "CONFIG SET lock.max-lease 60000");
    cmd!(conn, "LOCK.ACQUIRE mine a 60000");
    cmd!(conn, "LOCK.ACQUIRE key a 1500");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 1000 WAIT 0");
    let since = freeze(&server, FROZEN);
    // The very first command notices.
    assert_try_again(try_cmd!(conn, "LOCK.RENEW mine a 60000"));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE free a 1000")));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE mine a 1000")), "re-entry");
    assert_try_again(try_cmd!(conn, "LOCK.FENCE mine a 1"));
    assert_try_again(try_cmd!(conn, "LOCK.PASS mine a b 60000"));
    let left = grace_left(&server);
    assert!(left <= 4_000 && left + millis(since) >= 3_900, "{left}");
    assert_eq!(queue_of(&mut conn, "key"), ["b"]);
    assert!(server.log().contains("the event loop was away"));
    granted(&mut b);
    assert!((3_900..8_000).contains(&millis(since)), "{since:?}");
    int(&cmd!(conn, "LOCK.RENEW mine a 60000"));
    int(&cmd!(conn, "LOCK.ACQUIRE free a 1000"));
}

#[test]
fn a_waiter_is_granted_nothing_by_a_frozen_server_that_wakes() {
    // No client sends anything: the overdue timers must notice, too.
    let server = guarded();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 1000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 1000 WAIT 0");
    let since = freeze(&server, FROZEN);
    granted(&mut b);
    assert!(millis(since) >= 3_500, "{since:?}");
}

#[test]
fn a_server_that_was_frozen_still_accepts_releases() {
    let server = guarded();
    let mut conn = server.connect();
    cmd!(conn, "CONFIG SET lock.max-lease 60000");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    freeze(&server, FROZEN);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a")), 0);
    assert!(grace_left(&server) > 0);
}

#[test]
fn a_server_without_a_grace_trusts_itself_after_a_freeze() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    freeze(&server, FROZEN);
    int(&cmd!(conn, "LOCK.RENEW key a 60000"));
    int(&cmd!(conn, "LOCK.ACQUIRE free a 1000"));
    assert_eq!(grace_left(&server), 0);
}

#[test]
fn a_short_pause_does_not_trigger_the_stall_guard() {
    // The machine may pause by itself for longer.
    let is_unnoticed = (0..5).any(|_| {
        let server = guarded();
        freeze(&server, Duration::from_millis(200));
        let reply = cmd!(server.connect(), "LOCK.ACQUIRE key a 1000");
        !is_nil(&reply) && !server.log().contains("the event loop was away")
    });
    assert!(is_unnoticed);
}

#[test]
fn a_command_that_takes_more_than_a_second_triggers_the_stall_guard() {
    let server = guarded();
    let mut conn = server.connect();
    cmd!(conn, "DEBUG SLEEP 1.5");
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 1000")));
    assert!(grace_left(&server) > 3_000);
}

#[test]
fn a_command_in_the_turn_of_a_slow_one_notices_the_stall_by_itself() {
    let server = guarded();
    let mut conn = server.connect();
    // In one write: no timer comes between them.
    let replies = conn.pipeline(&[
        command!("DEBUG SLEEP 1.5"),
        command!("LOCK.ACQUIRE key a 1000"),
    ]);
    assert!(replies[1].as_ref().is_ok_and(is_nil), "{replies:?}");
}

/// A primary whose clock can be stepped, and the link to its replica, which it demands.
fn watched_by_a_replica(grace: u64) -> (Server, Server, Link) {
    let primary = with_grace(0, 1_000)
        .clock_shim()
        .config("min-replicas-max-lag", "1")
        .start();
    let link = Link::to(&primary);
    let replica = Server::builder().replica_over(&link).start();
    wait_for_sync_over(&link, &primary, &replica);
    let mut conn = primary.connect();
    cmd!(conn, "CONFIG SET lock.grace {grace}");
    cmd!(conn, "CONFIG SET min-replicas-to-write 1");
    eventually("the replica counts", || try_cmd!(conn, "SET x y").is_ok());
    (primary, replica, link)
}

#[test]
fn a_replica_that_seems_alive_only_by_a_clock_set_back_does_not_count() {
    let (primary, _replica, link) = watched_by_a_replica(5_000);
    let mut conn = primary.connect();
    link.cut();
    primary.step_clock(Back(Duration::from_secs(3_600)));
    eventually("the primary mistrusts itself", || grace_left(&primary) > 0);
    // The server itself would accept writes for an hour.
    for _ in 0..8 {
        thread::sleep(Duration::from_millis(500));
        cmd!(conn, "SET x y");
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 1000")));
    }
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 1000 WAIT 0");
    link.mend();
    granted(&mut b);
}

#[test]
fn a_clock_set_back_stops_a_primary_with_a_live_replica_only_for_a_moment() {
    let (primary, _replica, _link) = watched_by_a_replica(5_000);
    primary.step_clock(Back(Duration::from_secs(3_600)));
    let mut conn = primary.connect();
    // The replica acknowledges every second.
    let since = Instant::now();
    thread::sleep(Duration::from_millis(300));
    eventually(
        "locks are granted",
        || matches!(try_cmd!(conn, "LOCK.ACQUIRE key a 1000"), Ok(token) if !is_nil(&token)),
    );
    assert!(millis(since) < 5_000);
}
