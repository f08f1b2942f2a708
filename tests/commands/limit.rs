//! `LIMIT`: a lock as a semaphore, without waiting.

use mortise_harness::{Conn, Server, cmd, hold_of, int, is_nil, lock_info, redis::Value};

/// Requests `holds` of `limit` permits.
fn take(conn: &mut Conn, owner: &str, holds: i64, limit: i64) -> Value {
    cmd!(
        conn,
        "LOCK.RLOCK pool {owner} 60000 HOLDS {holds} LIMIT {limit}"
    )
}

fn inside(conn: &mut Conn) -> i64 {
    let lock = lock_info(conn, "pool");
    lock.map_or(0, |lock| lock.holds.iter().map(|hold| hold.read).sum())
}

#[test]
fn a_pool_admits_as_many_permits_as_its_limit_and_no_more() {
    let (_server, mut conn) = Server::start_connected();
    assert!(int(&take(&mut conn, "a", 3, 10)) > 0);
    assert!(int(&take(&mut conn, "b", 6, 10)) > 0);
    assert!(is_nil(&take(&mut conn, "c", 2, 10)));
    assert!(int(&take(&mut conn, "c", 1, 10)) > 0);
    assert!(is_nil(&take(&mut conn, "d", 1, 10)));
    assert_eq!(inside(&mut conn), 10);
    // Permits released one by one become free one by one.
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE pool b")), 5);
    assert!(is_nil(&take(&mut conn, "d", 2, 10)));
    assert!(int(&take(&mut conn, "d", 1, 10)) > 0);
    cmd!(conn, "LOCK.RELEASE pool a ALL");
    assert!(int(&take(&mut conn, "e", 3, 10)) > 0);
    assert_eq!(inside(&mut conn), 10);
}

#[test]
fn an_owner_that_holds_never_waits_for_a_limit() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&take(&mut conn, "a", 2, 5));
    take(&mut conn, "b", 2, 5);
    // One more permit is free.
    assert_eq!(int(&take(&mut conn, "a", 3, 5)), token);
    // None is free: the reply is null at once despite its `WAIT`, and nothing has changed.
    let more = cmd!(conn, "LOCK.RLOCK pool a 60000 LIMIT 5 WAIT 0");
    assert!(is_nil(&more));
    assert!(is_nil(&take(&mut conn, "a", 4, 5)));
    assert_eq!(hold_of(&mut conn, "pool", "a").unwrap().counts(), (0, 3));
    assert_eq!(server.gauge("waiters"), 0);
    // Its count does not grow, so it is granted even above the limit.
    assert_eq!(int(&take(&mut conn, "a", 3, 3)), token);
    assert_eq!(int(&take(&mut conn, "a", 1, 1)), token);
    assert_eq!(inside(&mut conn), 3);
}
