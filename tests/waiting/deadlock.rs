//! A wait that would close a cycle is refused at once, with the keys of the cycle, and changes nothing.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, is_nil, queue_of,
    try_cmd, waiter,
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
fn a_limited_wait_counts_like_an_unlimited_one() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 60_000);
    let error = try_cmd!(conn, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 1).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
}

/// Queues `count` requests by mail.
fn waits(conn: &mut Conn, key: &str, owner: &str, count: usize) {
    let request = |n| {
        let owner = format!("{owner}-{n}");
        let mut request = command!("LOCK.WLOCK", key, owner, 60_000, "WAIT", 0);
        request.arg("MAIL").arg("box").arg("HOLDS").arg(1);
        request
    };
    let requests: Vec<_> = (0..count).map(request).collect();
    for reply in conn.pipeline(&requests) {
        reply.expect("it waits");
    }
}

#[test]
fn a_cycle_through_one_of_thousands_of_readers_is_found_while_thousands_wait_elsewhere() {
    let server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .start();
    let mut conn = server.connect();
    let read = |n| command!("LOCK.RLOCK", "read", format!("reader-{n}"), 60_000);
    let reads: Vec<_> = (0..5_000).map(read).collect();
    for reply in conn.pipeline(&reads) {
        reply.expect("it is shared");
    }
    hold(&mut conn, "LOCK.WLOCK", "elsewhere", "holder");
    waits(&mut conn, "elsewhere", "other", 5_000);
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let mut b = waiter!(server, "LOCK.WLOCK", "k1", "b", 60_000, "WAIT", 0);
    let mut reader = waiter!(server, "LOCK.WLOCK", "k2", "reader-4321", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "read", "a", &["k1", "k2", "read"]);
    cmd!(conn, "LOCK.RELEASE", "k1", "a");
    granted(&mut b);
    cmd!(conn, "LOCK.RELEASE", "k2", "b");
    granted(&mut reader);
}

#[test]
fn three_and_four_owners_in_a_cycle_are_a_deadlock() {
    for length in [3, 4, 9] {
        let server = Server::start();
        let mut conn = server.connect();
        let keys: Vec<String> = (0..length).map(|n| format!("k{n}")).collect();
        let owners: Vec<String> = (0..length).map(|n| format!("o{n}")).collect();
        for (key, owner) in keys.iter().zip(&owners) {
            hold(&mut conn, "LOCK.WLOCK", key, owner);
        }
        // Each except the last waits for the key of the next.
        let mut waiting: Vec<Conn> = (0..length - 1)
            .map(|n| {
                let (key, owner) = (&keys[n + 1], &owners[n]);
                waiter!(server, "LOCK.WLOCK", key, owner, 60_000, "WAIT", 0)
            })
            .collect();
        let names: Vec<&str> = keys.iter().map(String::as_str).collect();
        refused(&mut conn, "LOCK.WLOCK", "k0", &owners[length - 1], &names);
        // When the last one releases, the others are granted one by one.
        for n in (1..length).rev() {
            cmd!(conn, "LOCK.RELEASE", &keys[n], &owners[n], "ALL");
            granted(&mut waiting[n - 1]);
            cmd!(conn, "LOCK.RELEASE", &keys[n], &owners[n - 1]);
        }
    }
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
fn a_cycle_through_a_reader_is_found() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.RLOCK", "k1", "a");
    hold(&mut conn, "LOCK.RLOCK", "k1", "x");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _a = waiter!(server, "LOCK.RLOCK", "k2", "a", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "k1", "b", &["k1", "k2"]);
    // A read request is compatible.
    hold(&mut conn, "LOCK.RLOCK", "k1", "b");
}

#[test]
fn a_cycle_through_one_of_many_readers_is_found() {
    let server = Server::start();
    let mut conn = server.connect();
    for n in 0..200 {
        hold(&mut conn, "LOCK.RLOCK", "k1", &format!("r{n}"));
    }
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _r = waiter!(server, "LOCK.WLOCK", "k2", "r137", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.WLOCK", "k1", "b", &["k1", "k2"]);
}

#[test]
fn a_cycle_through_a_place_behind_a_waiting_writer_is_found() {
    let server = Server::start();
    let mut conn = server.connect();
    // `w` holds k2 and waits for the reader `a`. A reader queued behind `w` waits for it.
    hold(&mut conn, "LOCK.RLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _w = waiter!(server, "LOCK.WLOCK", "k1", "w", 60_000, "WAIT", 0);
    let _w2 = waiter!(server, "LOCK.WLOCK", "k2", "w", 60_000, "WAIT", 0);
    // b would stand behind w at k1, and w waits for b at k2.
    refused(&mut conn, "LOCK.RLOCK", "k1", "b", &["k1", "k2"]);
}

#[test]
fn a_cycle_through_a_writer_behind_a_waiting_reader_is_found() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "h");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _r = waiter!(server, "LOCK.RLOCK", "k1", "r", 60_000, "WAIT", 0);
    let _r2 = waiter!(server, "LOCK.RLOCK", "k2", "r", 60_000, "WAIT", 0);
    // A reader behind another reader waits only for the holder.
    let mut conn2 = server.connect();
    conn2.submit(&command!("LOCK.RLOCK", "k1", "b", 60_000, "WAIT", 300));
    server.await_blocked(&conn2);
    assert!(is_nil(&conn2.recv()));
    // A writer waits for the reader, too.
    refused(&mut conn, "LOCK.WLOCK", "k1", "b", &["k1", "k2"]);
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

#[test]
fn a_queued_request_that_becomes_an_upgrade_without_a_cycle_keeps_waiting() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "key", "x");
    let mut r1 = waiter!(server, "LOCK.RLOCK", "key", "r1", 60_000, "WAIT", 0);
    let mut r2 = waiter!(server, "LOCK.RLOCK", "key", "r2", 60_000, "WAIT", 0);
    let mut r3 = waiter!(server, "LOCK.RLOCK", "key", "r3", 60_000, "WAIT", 0);
    let mut w2 = waiter!(server, "LOCK.WLOCK", "key", "r2", 60_000, "WAIT", 0);
    let mut w3 = waiter!(server, "LOCK.WLOCK", "key", "r3", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "x");
    granted(&mut r1);
    granted(&mut r2);
    // The upgrade of r2 stands ahead of r3, which would otherwise be granted with them.
    assert_eq!(queue_of(&mut conn, "key"), ["r2", "r3", "r3"]);
    cmd!(conn, "LOCK.RELEASE", "key", "r1");
    granted(&mut w2);
    cmd!(conn, "LOCK.RELEASE", "key", "r2", "ALL");
    granted(&mut r3);
    granted(&mut w3);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_cycle_through_an_earlier_request_of_the_same_owner_is_found() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    hold(&mut conn, "LOCK.WLOCK", "k3", "c");
    let _b = waiter!(server, "LOCK.WLOCK", "k3", "b", 60_000, "WAIT", 0);
    let _a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
    refused(&mut conn, "LOCK.RLOCK", "k1", "c", &["k1", "k2", "k3"]);
}

#[test]
fn each_request_that_would_close_a_deadlock_is_refused() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "LOCK.WLOCK", "k1", "a");
    hold(&mut conn, "LOCK.WLOCK", "k2", "b");
    let _a = waiter!(server, "LOCK.WLOCK", "k2", "a", 60_000, "WAIT", 0);
    for _ in 0..3 {
        refused(&mut conn, "LOCK.RLOCK", "k1", "b", &["k1", "k2"]);
    }
}
