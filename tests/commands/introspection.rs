//! A lock in the server's own tools, and the key-space events.

use std::collections::BTreeSet;

use mortise_harness::{
    Conn, Server, array, bytes, cmd, command, eventually, int, is_nil, text, try_cmd,
};
use redis::Value;

/// The keys that `SCAN 0 TYPE mort-lock` finds, in as many steps as it takes.
fn scan_for_locks(conn: &mut Conn) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let reply = cmd!(conn, "SCAN {cursor} TYPE mort-lock COUNT 7");
        let [next, keys] = array(&reply) else {
            panic!("{reply:?}")
        };
        found.extend(array(keys).iter().map(text));
        cursor = text(next);
        if cursor == "0" {
            return found;
        }
    }
}

#[test]
fn scan_finds_locks_by_their_type() {
    let (_server, mut conn) = Server::start_connected();
    let mut locks = BTreeSet::new();
    for n in 0..30 {
        cmd!(conn, "SET string:{n} value");
        cmd!(conn, "LOCK.ACQUIRE lock:{n} a 60000");
        locks.insert(format!("lock:{n}"));
    }
    assert_eq!(scan_for_locks(&mut conn), locks);
    cmd!(conn, "LOCK.RELEASE lock:7 a");
    locks.remove("lock:7");
    assert_eq!(scan_for_locks(&mut conn), locks);
}

#[test]
fn the_servers_tools_for_objects_work_on_a_lock() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    assert!(!text(&cmd!(conn, "OBJECT ENCODING key")).is_empty());
    assert_eq!(int(&cmd!(conn, "OBJECT REFCOUNT key")), 1);
    assert!(int(&cmd!(conn, "OBJECT IDLETIME key")) < 60);
    assert!(text(&cmd!(conn, "DEBUG OBJECT key")).contains("serializedlength"));
    cmd!(conn, "CONFIG SET maxmemory-policy allkeys-lfu");
    assert!(int(&cmd!(conn, "OBJECT FREQ key")) >= 0);
    assert_eq!(int(&cmd!(conn, "TOUCH key")), 1);
    assert!(!is_nil(&cmd!(conn, "RANDOMKEY")));
    assert_eq!(int(&cmd!(conn, "EXPIRETIME key")), -1);
}

#[test]
fn a_load_leaves_no_memory_beyond_the_locks() {
    const LOCKS: usize = 100_000;
    let (server, mut conn) = Server::start_connected();
    let used = || server.info("memory")["used_memory"].parse::<i64>().unwrap();
    let before = used();
    let acquires: Vec<_> = (0..LOCKS)
        .map(|n| command!("LOCK.ACQUIRE {n} a 3600000"))
        .collect();
    conn.pipeline(&acquires);
    cmd!(conn, "DEBUG RELOAD");
    eventually("all loaded locks have been checked", || {
        server.gauge("locks") == LOCKS as i64 && server.gauge("marked") == 0
    });
    cmd!(conn, "FLUSHALL");
    // The names of that many keys alone would take more.
    eventually("the memory is freed", || used() - before < 1_000_000);
}

fn digest(conn: &mut Conn, key: &str) -> Value {
    array(&cmd!(conn, "DEBUG DIGEST-VALUE {key}"))[0].clone()
}

#[test]
fn equal_locks_have_equal_digests_and_any_difference_changes_them() {
    let (_server, mut conn) = Server::builder().alone().start_connected();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000 HOLDS 2");
    }
    let dump = bytes(&cmd!(conn, "DUMP key"));
    cmd!(conn, "COPY key copy");
    cmd!(conn, "RESTORE", "restored", 0, &dump[..]);
    let original = digest(&mut conn, "key");
    assert_eq!(digest(&mut conn, "copy"), original);
    assert_eq!(digest(&mut conn, "restored"), original);

    let token = int(&cmd!(conn, "LOCK.RENEW key b 1"));
    let fence = format!("LOCK.FENCE key b {}", token + 1);
    let changes = [
        "LOCK.RELEASE key b",
        "LOCK.RELEASE key b ALL",
        "LOCK.RLOCK key b 60000",
        "LOCK.RLOCK key c 60000",
        &fence,
        "LOCK.PASS key b z 60000",
        "LOCK.RELEASE key a ALL",
        "LOCK.REVOKE key a",
    ];
    let mut digests = BTreeSet::from([text(&original)]);
    for change in changes {
        cmd!(conn, "RESTORE", "key", 0, &dump[..], "REPLACE");
        assert_eq!(digest(&mut conn, "key"), original);
        cmd!(conn, "{change}");
        let changed = digests.insert(text(&digest(&mut conn, "key")));
        assert!(changed, "{change}");
    }
    // The same owner with the same counts, but writing instead of reading.
    for acquire in ["LOCK.RLOCK", "LOCK.WLOCK"] {
        cmd!(conn, "DEL key");
        let token = int(&cmd!(conn, "{acquire} key a 60000"));
        let ahead = token / 60_000_000 * 60_000_000 + 600_000_000;
        cmd!(conn, "LOCK.FENCE key a {ahead}");
        assert!(digests.insert(text(&digest(&mut conn, "key"))));
    }
}

#[test]
fn the_whole_data_set_has_a_digest() {
    let (_server, mut conn) = Server::start_connected();
    let whole = |conn: &mut Conn| text(&cmd!(conn, "DEBUG DIGEST"));
    let empty = whole(&mut conn);
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let held = whole(&mut conn);
    assert_ne!(held, empty);
    cmd!(conn, "LOCK.RENEW key a 70000");
    assert_eq!(whole(&mut conn), held, "time is not part of it");
    cmd!(conn, "LOCK.RELEASE key a");
    assert_eq!(whole(&mut conn), empty);
}

/// A connection that is subscribed to every key-space event, and one that causes them.
fn listening(server: &Server, flags: &str) -> (Conn, Conn) {
    let (mut ear, mut conn) = (server.connect(), server.connect());
    cmd!(conn, "CONFIG SET notify-keyspace-events {flags}");
    cmd!(ear, "PSUBSCRIBE __key*__:*");
    (ear, conn)
}

/// The next event: its channel and its message.
fn next_event(ear: &mut Conn) -> (String, String) {
    let push = ear.recv();
    let push = array(&push);
    (text(&push[2]), text(&push[3]))
}

#[test]
fn acquiring_revoking_releasing_and_expiring_are_key_space_events() {
    let server = Server::start();
    let (mut ear, mut conn) = listening(&server, "Kd");
    let channel = "__keyspace@0__:key".to_owned();
    let mut heard = |event: &str| {
        assert_eq!(next_event(&mut ear), (channel.clone(), event.to_owned()));
    };
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        cmd!(conn, "{acquire} key a 60000");
        heard("lock.acquire");
        cmd!(conn, "{acquire} key a 60000");
        heard("lock.acquire");
        cmd!(conn, "LOCK.REVOKE key a");
        heard("lock.revoke");
        cmd!(conn, "LOCK.RELEASE key a");
        heard("lock.release");
        cmd!(conn, "LOCK.RELEASE key a ALL");
        heard("lock.release");
    }
    // Passed on.
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    heard("lock.acquire");
    cmd!(conn, "LOCK.PASS key a b 60000");
    heard("lock.pass");
    cmd!(conn, "LOCK.RELEASE key b");
    heard("lock.release");
    // The sweep ends it.
    cmd!(conn, "LOCK.ACQUIRE key a 20");
    heard("lock.acquire");
    heard("lock.expire");
    // A command finds it ended before the sweep.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE key a 5");
    cmd!(conn, "DEBUG SLEEP 0.006");
    cmd!(conn, "LOCK.ACQUIRE key b 60000");
    cmd!(conn, "EXEC");
    heard("lock.acquire");
    heard("lock.expire");
    heard("lock.acquire");
}

#[test]
fn requests_that_change_nothing_emit_no_event() {
    let server = Server::start();
    let (mut ear, mut conn) = listening(&server, "Kd");
    cmd!(conn, "LOCK.ACQUIRE key a 60000 HOLDS 2");
    cmd!(conn, "LOCK.ACQUIRE key b 60000");
    cmd!(conn, "LOCK.RELEASE key b");
    cmd!(conn, "LOCK.RELEASE key a READ");
    cmd!(conn, "LOCK.RELEASE key a TOKEN 1");
    cmd!(conn, "LOCK.RELEASE key a HOLDS 2");
    cmd!(conn, "LOCK.REVOKE key b");
    cmd!(conn, "LOCK.REVOKE key a TOKEN 1");
    cmd!(conn, "LOCK.INFO key");
    cmd!(conn, "LOCK.PASS key b c 60000");
    try_cmd!(conn, "LOCK.PASS key a a 60000").unwrap_err();
    try_cmd!(conn, "LOCK.ACQUIRE key a 0").unwrap_err();
    try_cmd!(conn, "LOCK.RELEASE key a ALL READ").unwrap_err();
    cmd!(conn, "LOCK.REVOKE key a");
    cmd!(conn, "LOCK.REVOKE key a");
    cmd!(conn, "LOCK.ACQUIRE last a 60000");
    for (key, event) in [
        ("key", "lock.acquire"),
        ("key", "lock.revoke"),
        ("last", "lock.acquire"),
    ] {
        let expected = (format!("__keyspace@0__:{key}"), event.to_owned());
        assert_eq!(next_event(&mut ear), expected);
    }
}

#[test]
fn events_name_the_database_and_are_published_on_both_channels() {
    let server = Server::start_alone();
    let (mut ear, mut conn) = listening(&server, "KEd");
    cmd!(conn, "SELECT 3");
    cmd!(conn, "LOCK.ACQUIRE key a 30");
    for event in ["lock.acquire", "lock.expire"] {
        let heard = BTreeSet::from([next_event(&mut ear), next_event(&mut ear)]);
        let expected = BTreeSet::from([
            ("__keyspace@3__:key".to_owned(), event.to_owned()),
            (format!("__keyevent@3__:{event}"), "key".to_owned()),
        ]);
        assert_eq!(heard, expected);
    }
}

#[test]
fn other_classes_of_events_include_no_lock_events() {
    let server = Server::start();
    let (mut ear, mut conn) = listening(&server, "Kg$");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    cmd!(conn, "LOCK.RELEASE key a");
    cmd!(conn, "SET string value");
    let (channel, event) = next_event(&mut ear);
    assert_eq!((&channel[..], &event[..]), ("__keyspace@0__:string", "set"));
    // But a lock is deleted like any key.
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    cmd!(conn, "DEL key");
    let (channel, event) = next_event(&mut ear);
    assert_eq!((&channel[..], &event[..]), ("__keyspace@0__:key", "del"));
}

#[test]
fn clients_that_track_a_key_are_notified_when_its_lock_changes() {
    let server = Server::start();
    let (mut tracker, mut conn) = (server.connect_resp3(), server.connect());
    cmd!(tracker, "CLIENT TRACKING ON");
    for change in [
        "LOCK.ACQUIRE key a 60000",
        "LOCK.RENEW key a 70000",
        "LOCK.PASS key a b 70000",
        "LOCK.REVOKE key b",
        "LOCK.RELEASE key b",
        "LOCK.MACQUIRE a 60000 2 {key}2 key",
    ] {
        cmd!(tracker, "LOCK.INFO key");
        cmd!(conn, "{change}");
        let push = eventually("told", || Some(tracker.recv()));
        let told = format!("{push:?}");
        assert!(told.contains("Invalidate"), "{change:?}: {told}");
    }
}
