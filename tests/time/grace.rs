//! `lock.grace`: the time after a start or a promotion in which an unknown owner may still hold.

use std::thread;
use std::time::{Duration, Instant};

use super::{assert_try_again, grace_left, millis, promote, with_grace};
use mortise_harness::{
    Server, Shutdown, array, cmd, eventually, granted, hold_of, int, is_nil, lock_info, queue_of,
    send, try_cmd, wait_for_sync, waiter,
};

/// A primary and its replica, both with the settings.
fn pair(grace: u64, max_lease: u64) -> (Server, Server) {
    let primary = with_grace(grace, max_lease).start();
    let replica = with_grace(grace, max_lease).replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    primary.await_gauge("grace_left_ms", 0);
    (primary, replica)
}

#[test]
fn without_a_grace_a_server_grants_from_the_start() {
    let server = Server::start();
    assert_eq!(grace_left(&server), 0);
    int(&cmd!(server.connect(), "LOCK.ACQUIRE key a 1000"));
}

#[test]
fn every_acquire_is_denied_in_the_grace_and_granted_after_it() {
    let server = with_grace(2_000, 1_000).start();
    let mut conn = server.connect();
    assert!((1..=2_000).contains(&grace_left(&server)));
    for command in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        assert!(is_nil(&cmd!(conn, "{command} key a 1000")));
    }
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE key a 1000 WAIT 0");
    assert!(is_nil(&array(&cmd!(conn, "EXEC"))[0]));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 1000")));
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE key a")));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 1000 WAIT 1")));
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
    server.await_gauge("grace_left_ms", 0);
    int(&cmd!(conn, "LOCK.ACQUIRE key a 1000"));
}

#[test]
fn after_a_start_known_holds_are_renewed_fenced_and_released_but_not_re_entered() {
    let (mut server, mut conn) = Server::start_connected();
    for key in ["one", "two"] {
        cmd!(conn, "LOCK.ACQUIRE {key} a 60000");
    }
    server.set_module_arg("grace", "3000");
    server.set_module_arg("max-lease", "100000");
    server.restart(Shutdown::Save);
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE one a 1000")), "re-entry");
    assert!(is_nil(&cmd!(conn, "LOCK.RLOCK one a 1000")), "other mode");
    let token = int(&cmd!(conn, "LOCK.RENEW one a 90000"));
    assert!(hold_of(&mut conn, "one", "a").unwrap().lease > 80_000);
    let fenced = token + 5;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE one a {fenced}")), fenced);
    // Null before TRYAGAIN, TRYAGAIN before LEFT and errors.
    cmd!(conn, "LOCK.LEAVE one gone FOR 60000");
    for new_owner in ["b", "gone", "a"] {
        assert_try_again(try_cmd!(conn, "LOCK.PASS one a {new_owner} 90000"));
        let wrong = cmd!(conn, "LOCK.PASS one a {new_owner} 90000 TOKEN {token}");
        assert!(is_nil(&wrong), "by an old token");
        assert!(is_nil(&cmd!(conn, "LOCK.PASS one b {new_owner} 90000")));
    }
    assert_eq!(hold_of(&mut conn, "one", "a").unwrap().token, token + 5);
    let mut b = waiter!(server, "LOCK.ACQUIRE one b 60000 WAIT 0");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE one a")), 0);
    assert!(int(&cmd!(conn, "EXISTS one")) == 0 && grace_left(&server) > 0);
    assert_eq!(queue_of(&mut conn, "one"), ["b"]);
    assert!(granted(&mut b) > token + 5);
    assert_eq!(grace_left(&server), 0);
    assert!(int(&cmd!(conn, "LOCK.PASS two a c 60000")) > token + 5);
    cmd!(conn, "LOCK.PASS two c a 60000");
    let reentry = int(&cmd!(conn, "LOCK.ACQUIRE two a 1000"));
    assert_eq!(hold_of(&mut conn, "two", "a").unwrap().token, reentry);
}

#[test]
fn a_restart_without_its_data_grants_only_when_the_leases_it_forgot_are_over() {
    let mut server = with_grace(1_000, 1_000).start();
    server.await_gauge("grace_left_ms", 0);
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 1000"));
    let believed = Instant::now() + Duration::from_millis(1_000);
    server.sigkill();
    server.start_again();
    let mut conn = server.connect();
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 1000 WAIT 0");
    let lock = lock_info(&mut conn, "key").unwrap();
    assert!(lock.holds.is_empty(), "its data is gone");
    assert!(granted(&mut b) > token);
    assert!(Instant::now() >= believed, "a still believed in its lease");
}

#[test]
fn a_refused_renewal_of_an_ended_last_hold_leaves_no_key() {
    const COMMANDS: [&str; 2] = ["LOCK.RENEW", "LOCK.FENCE"];
    let (primary, replica) = pair(6_000, 1_500);
    for key in COMMANDS {
        cmd!(primary.connect(), "LOCK.ACQUIRE {key} a 1500");
    }
    wait_for_sync(&primary, &replica);
    promote(&replica);
    let _waiting = COMMANDS.map(|key| waiter!(replica, "LOCK.ACQUIRE {key} b 1000 WAIT 0"));
    // All in one transaction, so that no timer runs before.
    let mut conn = replica.connect();
    send!(conn, "DEBUG SLEEP 2");
    for command in COMMANDS {
        send!(conn, "{command} {command} a 1000");
        send!(conn, "EXISTS {command}");
    }
    conn.recv();
    for command in COMMANDS {
        assert_try_again(conn.try_recv());
        assert_eq!(int(&conn.recv()), 0, "{command}");
    }
}

#[test]
fn after_a_promotion_nothing_is_renewed_until_the_old_primary_must_have_stopped() {
    let (primary, replica) = pair(9_000, 7_000);
    let mut old = primary.connect();
    let token = int(&cmd!(old, "LOCK.ACQUIRE key a 7000"));
    cmd!(old, "LOCK.ACQUIRE other a 7000");
    wait_for_sync(&primary, &replica);
    let mut conn = replica.connect();
    let since = promote(&replica);
    assert!((8_000..=9_000).contains(&grace_left(&replica)));
    // A hold that ends in this time cannot be renewed, and a released lock is not granted to others.
    assert_try_again(try_cmd!(conn, "LOCK.RENEW key a 7000"));
    assert_try_again(try_cmd!(conn, "LOCK.FENCE key a {token}"));
    assert_try_again(try_cmd!(conn, "LOCK.PASS key a c 7000"));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 7000")), "re-entry");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE other a")), 0);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE other b 7000")));
    loop {
        match try_cmd!(conn, "LOCK.RENEW key a 7000") {
            Ok(reply) => {
                assert_eq!(int(&reply), token);
                break;
            }
            refused => assert_try_again(refused),
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(millis(since) >= 1_999 && grace_left(&replica) > 0);
    let fenced = token + 1;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE key a {fenced}")), fenced);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE other b 7000")));
    // Renewals are allowed earlier than grants, and a pass is a grant.
    assert_try_again(try_cmd!(conn, "LOCK.PASS key a c 7000"));
    replica.await_gauge("grace_left_ms", 0);
    assert!(millis(since) >= 8_999);
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE other b 7000")) > token);
}

#[test]
fn waiters_of_a_promoted_server_are_served_in_order_at_the_end_of_the_grace() {
    let (primary, replica) = pair(2_000, 1_000);
    cmd!(primary.connect(), "LOCK.ACQUIRE key a 1000");
    wait_for_sync(&primary, &replica);
    let since = promote(&replica);
    let mut b = waiter!(replica, "LOCK.ACQUIRE key b 1000 WAIT 0");
    let mut c = waiter!(replica, "LOCK.ACQUIRE key c 1000 WAIT 0");
    granted(&mut b);
    assert!((1_999..5_000).contains(&millis(since)), "{since:?}");
    assert_eq!(queue_of(&mut replica.connect(), "key"), ["c"]);
    // After the grace nothing is delayed.
    cmd!(replica.connect(), "LOCK.RELEASE key b");
    granted(&mut c);
}

#[test]
fn the_grace_configured_at_the_moment_of_the_promotion_counts() {
    let (primary, replica) = pair(0, 1_000);
    let mut conn = replica.connect();
    cmd!(conn, "CONFIG SET lock.grace 2000");
    let since = promote(&replica);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 1000")));
    // Too late to change anything about this one.
    cmd!(conn, "CONFIG SET lock.grace 0");
    let mut b = waiter!(replica, "LOCK.ACQUIRE key b 1000 WAIT 0");
    granted(&mut b);
    assert!(millis(since) >= 1_999);

    let mut conn = primary.connect();
    cmd!(conn, "CONFIG SET lock.grace 60000");
    int(&cmd!(conn, "LOCK.ACQUIRE key a 1000"));
    assert_eq!(grace_left(&primary), 0);
}

#[test]
fn replicaof_no_one_on_a_primary_begins_no_grace() {
    let server = with_grace(500, 100).start();
    server.await_gauge("grace_left_ms", 0);
    promote(&server);
    assert_eq!(grace_left(&server), 0);
}

#[test]
fn a_grace_shorter_than_the_longest_lease_logs_a_warning() {
    let warnings = |server: &Server| {
        let log = server.log();
        log.matches("is less than lock.max-lease").count()
    };
    assert_eq!(warnings(&with_grace(0, 1_000).start()), 0);
    assert_eq!(warnings(&with_grace(1_000, 1_000).start()), 0);
    assert_eq!(warnings(&with_grace(500, 1_000).start()), 1);
}

#[test]
fn a_grace_logs_its_beginning() {
    let lines = |server: &Server, of: &str| server.log().matches(of).count();
    let server = with_grace(300, 300).start();
    assert_eq!(
        lines(&server, "for 300 ms (lock.grace) nothing is granted"),
        1
    );
    eventually("the grace is over", || grace_left(&server) == 0);
    assert!(!is_nil(&cmd!(server.connect(), "LOCK.ACQUIRE key a 100")));
    let (_primary, replica) = pair(500, 400);
    assert_eq!(lines(&replica, "nothing is granted"), 0);
    promote(&replica);
    assert_eq!(
        lines(&replica, "the server has become a primary: for 500 ms"),
        1
    );
    let without = Server::start();
    assert_eq!(lines(&without, "grace"), 0);
}
