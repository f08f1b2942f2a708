//! A wait that would close a cycle is refused at once, with the keys of the cycle, and changes nothing; one that would not is queued. Which
//! waits close a cycle is the core's to decide: `core/tests/rules/deadlock`.

use mortise_harness::{
    Conn, Server, array, cmd, command, granted, holders_of, int, is_nil, queue, queue_of, refused,
    request, waiter,
};

/// `a` holds `k1`, and `b` holds `k2`.
fn crosswise() -> (Server, Conn) {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.WLOCK k1 a 60000"));
    int(&cmd!(conn, "LOCK.WLOCK k2 b 60000"));
    (server, conn)
}

/// Checks that the request is refused as a deadlock through exactly these keys, and that nothing is queued.
#[track_caller]
fn deadlock(server: &Server, conn: &mut Conn, request: &str, cycle: &[&str]) {
    let gauges = || ["total_deadlocks", "waiters"].map(|name| server.gauge(name));
    let [deadlocks, waiters] = gauges();
    let error = refused!(conn, "DEADLOCK ", "{request} 60000 WAIT 0");
    let mut named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    named.sort_unstable();
    assert_eq!(named, cycle, "{error}");
    assert_eq!(gauges(), [deadlocks + 1, waiters]);
}

#[test]
fn two_owners_crosswise_are_a_cycle() {
    let (server, mut conn) = crosswise();
    let mut a = waiter!(server, "LOCK.WLOCK k2 a 60000 WAIT 0");
    deadlock(&server, &mut conn, "LOCK.WLOCK k1 b", &["k1", "k2"]);
    // The refused owner can release, which ends the conflict.
    cmd!(conn, "LOCK.RELEASE k2 b");
    granted(&mut a);
    assert_eq!(holders_of(&mut conn, "k1"), ["a"]);
}

#[test]
fn a_request_without_wait_gets_null_instead() {
    let (server, mut conn) = crosswise();
    let _a = waiter!(server, "LOCK.WLOCK k2 a 60000 WAIT 0");
    assert!(is_nil(&cmd!(conn, "LOCK.WLOCK k1 b 60000")));
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.WLOCK k1 b 60000 WAIT 0");
    assert!(is_nil(&array(&cmd!(conn, "EXEC"))[0]));
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_cycle_over_two_databases_with_the_same_key_name_is_found() {
    let server = Server::start_alone();
    let [mut zero, mut one, mut a] = [0, 1, 1].map(|db| {
        let mut conn = server.connect();
        cmd!(conn, "SELECT {db}");
        conn
    });
    int(&cmd!(zero, "LOCK.WLOCK key a 60000"));
    int(&cmd!(one, "LOCK.WLOCK key b 60000"));
    a.submit(&command!("LOCK.WLOCK key a 60000 WAIT 0"));
    server.await_blocked(&a);
    refused!(zero, "DEADLOCK ", "LOCK.WLOCK key b 60000 WAIT 0");
    // The connection still works in its own database.
    assert_eq!(holders_of(&mut zero, "key"), ["a"]);
    assert_eq!(holders_of(&mut one, "key"), ["b"]);
    assert_eq!(queue_of(&mut one, "key"), ["a"]);
}

#[test]
fn a_request_by_mail_counts_like_a_blocked_one() {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.WLOCK k1 a##1 60000"));
    int(&cmd!(conn, "LOCK.WLOCK k2 b##1 60000"));
    queue!(conn, "box", "LOCK.WLOCK k2 a##2 60000");
    deadlock(&server, &mut conn, "LOCK.WLOCK k1 b##2", &["k1", "k2"]);
    let error = conn.try_run(&request!("box", 0, "LOCK.WLOCK k1 b##2 60000"));
    assert!(error.unwrap_err().starts_with("DEADLOCK "));
    assert_eq!(server.gauge("waiters"), 1);
    // The same text without the mark is another task.
    let _other = waiter!(server, "LOCK.WLOCK k1 b 60000 WAIT 0");
}

#[test]
fn a_request_waits_for_the_only_owner_that_has_permits() {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.RLOCK pool a 60000 LIMIT 1"));
    int(&cmd!(conn, "LOCK.WLOCK key b 60000"));
    let a = waiter!(server, "LOCK.ACQUIRE key a 60000 WAIT 0");
    refused!(conn, "DEADLOCK ", "LOCK.RLOCK pool b 60000 LIMIT 1 WAIT 0");
    // A permit is free for b, so it need not wait.
    int(&cmd!(conn, "LOCK.RLOCK pool b 60000 LIMIT 2"));
    cmd!(conn, "LOCK.RELEASE pool b");
    drop(a);
    server.await_gauge("waiters", 0);
    let mut b = waiter!(server, "LOCK.RLOCK pool b 60000 LIMIT 1 WAIT 0");
    deadlock(&server, &mut conn, "LOCK.WLOCK key a", &["key", "pool"]);
    cmd!(conn, "LOCK.RELEASE pool a");
    granted(&mut b);
}
