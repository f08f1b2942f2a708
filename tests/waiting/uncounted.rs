//! Totals count what was replied.

use mortise_harness::{Server, cmd, int, is_nil, try_cmd, waiter};

#[test]
fn a_null_is_not_counted_as_a_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "{k}b", "h", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "{k}c", "x", 60_000);
    // At the free key `a` a request for several keys waits, and behind it a task that waits for `x` elsewhere.
    let _several = waiter!(server, "LOCK.MACQUIRE m 60000 2 {{k}}a {{k}}b WAIT 0");
    let _behind = waiter!(server, "LOCK.ACQUIRE", "{k}a", "t##1", 60_000, "WAIT", 0);
    let _elsewhere = waiter!(server, "LOCK.ACQUIRE", "{k}c", "t##2", 60_000, "WAIT", 0);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "{k}a", "x", 60_000)));
    assert_eq!(server.gauge("total_deadlocks"), 0);
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "{k}a", "x", 60_000, "WAIT", 100);
    assert!(error.unwrap_err().starts_with("DEADLOCK "));
    assert_eq!(server.gauge("total_deadlocks"), 1);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "{k}c", "x")), 0);
}
