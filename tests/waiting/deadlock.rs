//! A wait that would close a cycle is refused at once, with the keys of the cycle, and changes nothing; one that would not is queued. Which
//! waits close a cycle is the core's to decide: `core/tests/rules/deadlock`.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, is_nil, queue_of,
    request, try_cmd, waiter,
};

/// Acquires `key` for `owner`.
fn hold(conn: &mut Conn, mode: &str, key: &str, owner: &str) {
    int(&cmd!(conn, mode, key, owner, 60_000));
}

/// Checks that the request is refused as a deadlock through exactly these keys, and returns the error.
#[track_caller]
fn refused(conn: &mut Conn, mode: &str, key: &str, owner: &str, cycle: &[&str]) -> String {
    let before = conn.cmd(&["INFO", "lock"]);
    let deadlocks = |info| {
        mortise_harness::info(info)["lock_total_deadlocks"]
            .parse::<i64>()
            .unwrap()
    };
    let waiters = |info| mortise_harness::info(info)["lock_waiters"].clone();
    let error = try_cmd!(conn, mode, key, owner, 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    let mut named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    named.sort_unstable();
    assert_eq!(named, cycle, "{error}");
    let after = conn.cmd(&["INFO", "lock"]);
    assert_eq!(deadlocks(&after), deadlocks(&before) + 1);
    assert_eq!(waiters(&after), waiters(&before), "something was queued");
    error
}

#[test]
fn two_owners_crosswise_are_a_cycle() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let mut a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "k1", "b", &["k1", "k2"]);
    // The refused owner can release, which ends the conflict.
    cmd!(conn, "LOCK.RELEASE", "k2", "b");
    granted(&mut a);
    assert_eq!(holders_of(&mut conn, "k1"), ["a"]);
}

#[test]
fn a_request_without_wait_gets_null_instead() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
    assert!(is_nil(&cmd!(conn, "LOCK.WLOCK", "k1", "b", 60_000)));
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0);
    let replies = cmd!(conn, "EXEC");
    assert!(is_nil(&mortise_harness::array(&replies)[0]));
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn two_readers_that_both_upgrade_are_a_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.RLOCK", "key", "a");
    hold(&mut conn, "LOCK.RLOCK", "key", "b");
    let mut a = waiter!(server, "LOCK.WLOCK", "key", "a", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "key", "b", &["key"]);
    assert_eq!(hold_of(&mut conn, "key", "b").unwrap().counts(), (0, 1));
    cmd!(conn, "LOCK.RELEASE", "key", "b");
    granted(&mut a);
}

#[test]
fn a_cycle_over_two_databases_with_the_same_key_name_is_found() {
    let server = Server::start_alone();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT", 1);
    hold(&mut zero, "LOCK.WLOCK", "key", "a");
    hold(&mut one, "LOCK.WLOCK", "key", "b");
    let mut a = server.connect();
    cmd!(a, "SELECT", 1);
    a.submit(&command!("LOCK.WLOCK", "key", "a", 60_000, "WAIT", 0));
    server.await_blocked(&a);
    let error = try_cmd!(zero, "LOCK.WLOCK", "key", "b", 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    // The connection still works in its own database.
    assert_eq!(holders_of(&mut zero, "key"), ["a"]);
    assert_eq!(holders_of(&mut one, "key"), ["b"]);
    assert_eq!(queue_of(&mut one, "key"), ["a"]);
}

#[test]
fn a_queued_request_that_becomes_an_upgrade_and_closes_a_cycle_is_refused() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.RLOCK", "dumped", "b");
    hold(&mut conn, "LOCK.RLOCK", "dumped", "c");
    let payload = mortise_harness::bytes(&cmd!(conn, "DUMP", "dumped"));
    hold(&mut conn, "LOCK.WLOCK", "key", "x");
    let mut waiting =
        ["b", "c"].map(|owner| waiter!(server, "LOCK.WLOCK", "key", owner, 60_000, "WAIT", 0));
    // Both now hold for reading, so both requests become upgrades, and each waits for the other.
    cmd!(conn, "RESTORE", "key", 0, payload, "REPLACE");
    eventually("one of them is refused", || server.gauge("waiters") == 1);
    assert_eq!(server.gauge("total_deadlocks"), 1);
    let left = queue_of(&mut conn, "key").remove(0);
    let (stays, gives_way) = if left == "b" { (0, 1) } else { (1, 0) };
    let error = waiting[gives_way].try_recv().unwrap_err();
    assert!(
        error.starts_with("DEADLOCK ") && error.contains("'key'"),
        "{error}"
    );
    cmd!(conn, "LOCK.RELEASE", "key", ["b", "c"][gives_way]);
    granted(&mut waiting[stays]);
    assert_eq!(hold_of(&mut conn, "key", left).unwrap().counts(), (1, 1));
}

/// `a` holds k1, and `b` holds k2.
fn crosswise() -> (Server, Conn) {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    (server, conn)
}

/// `a` waits for k2.
fn a_waits(server: &Server, wait: u64) -> Conn {
    waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", wait)
}

/// Checks that `b` can wait for k1, and is granted it when `a` releases.
#[track_caller]
fn b_may_wait(server: &Server, conn: &mut Conn) {
    let mut b = waiter!(server, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "k1", "a");
    granted(&mut b);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_wait_that_timed_out_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    assert!(is_nil(&a_waits(&server, 100).recv()));
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_that_was_unblocked_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    cmd!(conn, "CLIENT", "UNBLOCK", a.client_id());
    assert!(is_nil(&a.recv()));
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_waiter_that_has_disconnected_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    drop(a_waits(&server, 0));
    eventually("a has left", || server.gauge("waiters") == 0);
    b_may_wait(&server, &mut conn);
}

#[test]
fn a_wait_that_was_granted_after_a_deletion_closes_no_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = a_waits(&server, 0);
    cmd!(conn, "DEL", "k2");
    granted(&mut a);
    b_may_wait(&server, &mut conn);
}

#[test]
fn an_expired_lease_closes_no_cycle() {
    let server = Server::start();
    let mut conn = server.connect();
    // A sweep would drop the hold, and in a pause, which has no sweep, nobody can wait. So whether the request comes
    // before the sweep is left to chance.
    for _ in 0..10 {
        int(&cmd!(conn, "LOCK.WLOCK", "k1", "a", 60));
        int(&cmd!(conn, "LOCK.WLOCK", "k2", "b", 60_000));
        let mut a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
        eventually("a's lease is over", || {
            hold_of(&mut conn, "k1", "a").is_none()
        });
        int(&cmd!(conn, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0));
        cmd!(conn, "LOCK.RELEASE", "k2", "b");
        granted(&mut a);
        for (key, owner) in [("k1", "b"), ("k2", "a")] {
            cmd!(conn, "LOCK.RELEASE", key, owner);
        }
    }
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn tasks_that_hold_by_several_names_and_wait_crosswise_are_a_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "task-a##1");
    hold(&mut conn, "LOCK.WLOCK", "k2", "task-b##1");
    let mut a = waiter!(server, "LOCK.WLOCK", "k2", "task-a##2", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "k1", "task-b##2", &["k1", "k2"]);
    refused(&mut conn, "LOCK.WLOCK", "k1", "task-b##1", &["k1", "k2"]);
    // The same text without the mark is another task.
    let mut other = waiter!(server, "LOCK.WLOCK", "k1", "task-b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "k2", "task-b##1");
    granted(&mut a);
    cmd!(conn, "LOCK.RELEASE", "k1", "task-a##1");
    granted(&mut other);
}

#[test]
fn a_request_by_mail_counts_like_a_blocked_one() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a##1");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b##1");
    let queued = conn.run(&request!("box", 0, "LOCK.WLOCK", "k2", "a##2", 60_000));
    assert!(!is_nil(&queued));
    refused(&mut conn, "LOCK.WLOCK", "k1", "b##2", &["k1", "k2"]);
    let error = conn.try_run(&request!("box", 0, "LOCK.WLOCK", "k1", "b##2", 60_000));
    assert!(error.unwrap_err().starts_with("DEADLOCK "));
}

#[test]
fn a_request_waits_for_the_only_owner_that_has_permits() {
    let server = Server::start();
    let mut conn = server.connect();
    int(&cmd!(conn, "LOCK.RLOCK pool a 60000 LIMIT 1"));
    hold(&mut conn, "LOCK.WLOCK", "key", "b");
    let a = waiter!(server, "LOCK.ACQUIRE", "key", "a", 60_000, "WAIT", 0);
    let error = try_cmd!(conn, "LOCK.RLOCK pool b 60000 LIMIT 1 WAIT 0").unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    // A permit is free for b, so it need not wait.
    int(&cmd!(conn, "LOCK.RLOCK pool b 60000 LIMIT 2"));
    cmd!(conn, "LOCK.RELEASE", "pool", "b");
    drop(a);
    eventually("a has left", || server.gauge("waiters") == 0);
    let mut b = waiter!(server, "LOCK.RLOCK pool b 60000 LIMIT 1 WAIT 0");
    refused(&mut conn, "LOCK.WLOCK", "key", "a", &["key", "pool"]);
    cmd!(conn, "LOCK.RELEASE", "pool", "a");
    granted(&mut b);
}
