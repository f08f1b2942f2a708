//! The users of `docs/security.md`, created by the commands there, may do their work and nothing else.

use std::fs;
use std::path::Path;

use mortise_harness::{
    Conn, Server, array, as_map, cmd, eventually, int, is_nil, queue, text, try_cmd, waiter,
};

/// A server with the users of the page, and a connection that may do everything.
fn server() -> (Server, Conn) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let server = Server::start();
    let mut root = server.connect();
    let lines: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("ACL SETUSER "))
        .collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in lines {
        root.cmd(&line.split(' ').collect::<Vec<_>>());
    }
    (server, root)
}

fn log_in(server: &Server, name: &str) -> Conn {
    let mut conn = server.connect();
    cmd!(conn, "AUTH", name, format!("{name}-password"));
    conn
}

#[track_caller]
fn refused(conn: &mut Conn, commands: &[&str]) {
    for line in commands {
        let words: Vec<&str> = line.split(' ').collect();
        let error = conn.try_cmd(&words).expect_err(line);
        assert!(error.starts_with("NOPERM"), "{line}: {error}");
    }
}

#[test]
fn a_locker_may_acquire_and_release_its_locks_and_nothing_else() {
    let (server, _root) = server();
    let mut conn = log_in(&server, "locker");
    let key = "lock:1";
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", key, "a", 60_000));
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW", key, "a", 60_000)), token);
    let fenced = token + 1;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE {key} a {fenced}")), fenced);
    let guarded = cmd!(conn, "LOCK.GUARD {key} a {fenced} LOCK.RENEW {key} a 9000");
    assert_eq!(int(&guarded), fenced);
    queue!(conn, "box", "LOCK.WLOCK", key, "b", 60_000);
    int(&cmd!(conn, "LOCK.PASS", key, "a", "c", 60_000));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", key, "c")), 0);
    let mail = mortise_harness::mail!(conn, "box", "WAIT", 1_000);
    assert_eq!(mail.only().result, "granted");
    assert_eq!(int(&cmd!(conn, "LOCK.LEAVE", key, "b", "FOR", 1_000)), 1);
    assert!(!is_nil(&cmd!(conn, "LOCK.RLOCK", key, "c", 60_000)));
    // The commands that clients send when they connect.
    cmd!(conn, "HELLO 3 AUTH locker locker-password SETNAME me");
    cmd!(conn, "INFO", "server");
    refused(
        &mut conn,
        &[
            "LOCK.ACQUIRE other a 60000",
            "LOCK.INFO lock:1",
            "LOCK.TOP",
            "LOCK.APPLY lock:1 x",
            "LOCK.GUARD lock:1 c 1 SET other x",
            "DEL lock:1",
            "CONFIG GET lock.grace",
            "CLIENT LIST",
            "ACL WHOAMI",
            "KEYS *",
        ],
    );
}

#[test]
fn an_observer_may_read_and_change_nothing() {
    let (server, mut root) = server();
    for key in ["lock:1", "secret"] {
        cmd!(root, "LOCK.ACQUIRE", key, "a", 60_000);
        queue!(root, "box", "LOCK.ACQUIRE", key, "b", 60_000);
    }
    let mut conn = log_in(&server, "observer");
    let info = as_map(&cmd!(conn, "LOCK.INFO lock:1"));
    assert_eq!(int(&info["waiters"]), 1);
    let top = cmd!(conn, "LOCK.TOP");
    let keys: Vec<String> = array(&top)
        .iter()
        .map(|entry| text(&as_map(entry)["key"]))
        .collect();
    assert_eq!(keys, ["lock:1"]);
    assert!(text(&cmd!(conn, "INFO", "lock")).contains("lock_waiters:2"));
    refused(
        &mut conn,
        &[
            "LOCK.INFO secret",
            "LOCK.ACQUIRE lock:1 a 60000",
            "LOCK.RELEASE lock:1 a",
            "LOCK.LEAVE lock:1 a",
            "LOCK.MAIL box",
            "DEL lock:1",
            "GET lock:1",
            "CONFIG GET *",
            "CLIENT LIST",
        ],
    );
}

#[test]
fn an_operator_may_break_a_lock_and_unblock_waiters() {
    let (server, mut root) = server();
    cmd!(root, "LOCK.ACQUIRE", "lock:1", "dead", 60_000);
    let mut first = waiter!(server, "LOCK.ACQUIRE", "lock:1", "b", 60_000, "WAIT", 0);
    let mut second = waiter!(server, "LOCK.ACQUIRE", "lock:1", "c", 60_000, "WAIT", 0);
    let third = waiter!(server, "LOCK.ACQUIRE", "lock:1", "d", 60_000, "WAIT", 0);
    let mut conn = log_in(&server, "operator");
    assert!(!array(&cmd!(conn, "LOCK.TOP")).is_empty());
    assert_eq!(text(&cmd!(conn, "TYPE", "lock:1")), "mort-lock");
    assert!(int(&cmd!(conn, "MEMORY", "USAGE", "lock:1")) > 0);
    let (unblocked, killed) = (second.client_id(), third.client_id());
    assert_eq!(int(&cmd!(conn, "CLIENT UNBLOCK {unblocked}")), 1);
    assert!(is_nil(&second.recv()));
    assert_eq!(int(&cmd!(conn, "CLIENT KILL ID {killed}")), 1);
    assert!(int(&cmd!(conn, "LOCK.REVOKE", "lock:1", "dead")) > 0);
    assert_eq!(int(&cmd!(conn, "LOCK.LEAVE lock:1 dead FOR 60000")), 1);
    int(&first.recv());
    eventually("nobody waits", || server.gauge("waiters") == 0);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "lock:1", "b", "ALL")), 0);
    for line in [
        "CLIENT LIST",
        "CONFIG GET lock.*",
        "CONFIG SET lock.grace 0",
        "SLOWLOG GET",
        "SLOWLOG LEN",
        "LATENCY LATEST",
        "SCAN 0 TYPE mort-lock",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(conn.try_cmd(&words).is_ok(), "{line}");
    }
    refused(
        &mut conn,
        &[
            "LOCK.ACQUIRE lock:1 a 60000",
            "LOCK.GUARD lock:1 a 1",
            "DEL other",
            "FLUSHALL",
            "SHUTDOWN",
            "ACL LIST",
        ],
    );
}

#[test]
fn on_servers_with_module_categories_locks_have_their_own() {
    let (server, mut root) = server();
    if !server.version().is_7_2_or_later() {
        // Removing `@write` does not forbid locks here, as the page says.
        cmd!(root, "ACL SETUSER u on nopass ~* +@all -@write");
        let mut conn = server.connect();
        cmd!(conn, "AUTH", "u", "any");
        int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
        assert!(try_cmd!(root, "ACL", "SETUSER", "u", "+@lock").is_err());
        return;
    }
    cmd!(root, "ACL SETUSER u on nopass ~* -@all +@lock");
    let mut conn = server.connect();
    cmd!(conn, "AUTH", "u", "any");
    int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(array(&cmd!(conn, "LOCK.TOP")).is_empty());
    refused(&mut conn, &["GET key", "PING"]);
    for internal in ["LOCK.APPLY", "LOCK.SETTLE"] {
        let error = conn.try_cmd(&[internal, "key", "x"]).unwrap_err();
        assert!(error.starts_with("ERR"), "{error}");
    }
}
