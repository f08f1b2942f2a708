//! Fencing: a store that refuses old tokens keeps right even where the lock cannot. The script is the guide's own.

use mortise_harness::{Conn, Link, Server, cmd, int, text, try_cmd, wait_for_sync_over};

/// The script of `docs/guarantees.md`.
fn script() -> &'static str {
    let guide = include_str!("../docs/guarantees.md");
    let (_, rest) = guide.split_once("```lua\n").expect("a script in the guide");
    rest.split_once("```").expect("its end").0
}

fn write(store: &mut Conn, token: i64, value: &str) -> Result<String, String> {
    let reply = try_cmd!(store, "EVAL", script(), 1, "account:7", token, value);
    reply.map(|reply| text(&reply))
}

#[test]
fn the_store_refuses_a_holder_that_a_failover_without_a_grace_has_forgotten() {
    let mut old = Server::start();
    let link = Link::to(&old);
    let new = Server::builder().replica_over(&link).start();
    wait_for_sync_over(&link, &old, &new);
    let store_server = Server::builder().without_module().start();
    let mut store = store_server.connect();

    link.cut();
    let first = int(&cmd!(
        old.connect(),
        "LOCK.ACQUIRE",
        "lock:account:7",
        "a",
        60_000
    ));
    assert_eq!(write(&mut store, first, "of a").unwrap(), "OK");
    assert_eq!(write(&mut store, first, "of a, again").unwrap(), "OK");
    old.sigkill();
    cmd!(new.connect(), "REPLICAOF", "NO", "ONE");
    let second = int(&cmd!(
        new.connect(),
        "LOCK.ACQUIRE",
        "lock:account:7",
        "b",
        60_000
    ));
    assert_eq!(write(&mut store, second, "of b").unwrap(), "OK");

    // Both believe to hold. The store knows better.
    let error = write(&mut store, first, "of a, too late").unwrap_err();
    assert_eq!(error, format!("STALE token {first}, already saw {second}"));
    assert_eq!(text(&cmd!(store, "HGET", "account:7", "value")), "of b");
}
