//! The harness itself, on servers without the module.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::Duration;

use mortise_harness::{
    Builder, Conn, Link, Server, Shutdown, array, as_map, bytes, cmd, error_line, eventually,
    eventually_within, int, is_nil, send, text, try_cmd, wait_for_sync,
};

fn bare() -> Builder {
    Server::builder().without_module()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn greeting(conn: &mut Conn) -> String {
    text(&cmd!(conn, "GET", "greeting"))
}

#[test]
fn a_started_server_replies_and_a_dropped_one_is_gone_with_its_folder() {
    let server = bare().start();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    assert_eq!(text(&cmd!(server.connect(), "PING")), "PONG");
    assert!(is_alive(pid) && dir.exists());
    drop(server);
    assert!(!is_alive(pid) && !dir.exists());
}

#[test]
fn servers_started_in_parallel_have_different_ports() {
    let starts: Vec<_> = (0..6)
        .map(|n| {
            thread::spawn(move || {
                let server = bare().start();
                cmd!(server.connect(), "SET", "greeting", n);
                (server, n)
            })
        })
        .collect();
    // The threads that started the servers have ended by now; the servers have not.
    for start in starts {
        let (server, n) = start.join().unwrap();
        assert_eq!(greeting(&mut server.connect()), n.to_string());
    }
}

#[test]
fn a_clean_restart_keeps_what_the_append_only_file_holds() {
    let mut server = bare().config("appendonly", "yes").start();
    let port = server.port();
    cmd!(server.connect(), "SET", "greeting", "hello");
    server.restart(Shutdown::AsConfigured);
    assert_eq!(server.port(), port);
    assert_eq!(greeting(&mut server.connect()), "hello");
}

#[test]
fn a_clean_restart_can_save_a_snapshot_or_forget() {
    let mut server = bare().start();
    cmd!(server.connect(), "SET", "greeting", "hello");
    server.restart(Shutdown::Save);
    assert_eq!(greeting(&mut server.connect()), "hello");

    cmd!(server.connect(), "SET", "greeting", "bye");
    server.restart(Shutdown::NoSave);
    assert_eq!(greeting(&mut server.connect()), "hello");
}

#[test]
fn a_killed_server_comes_back_with_what_reached_the_disk() {
    let mut server = bare()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let pid = server.pid();
    let mut conn = server.connect();
    cmd!(conn, "SET", "greeting", "hello");
    server.sigkill();
    assert!(!is_alive(pid));
    let error = try_cmd!(conn, "PING").unwrap_err();
    assert!(error.starts_with("connection closed"), "{error}");
    server.start_again();
    assert_eq!(greeting(&mut server.connect()), "hello");
}

#[test]
fn a_terminated_server_ends_cleanly() {
    let mut server = bare().config("save", "3600 1").start();
    cmd!(server.connect(), "SET", "greeting", "hello");
    server.terminate();
    server.start_again();
    assert_eq!(greeting(&mut server.connect()), "hello");
}

#[test]
fn configuration_changed_between_two_lives_takes_effect() {
    let mut server = bare().config("maxclients", "100").start();
    server.set_config("maxclients", "50");
    server.restart(Shutdown::NoSave);
    let reply = cmd!(server.connect(), "CONFIG", "GET", "maxclients");
    assert_eq!(text(&as_map(&reply)["maxclients"]), "50");
}

#[test]
fn a_named_folder_is_kept() {
    let dir = tempfile_dir();
    let server = bare()
        .dir(dir.join("data"))
        .config("appendonly", "yes")
        .start();
    cmd!(server.connect(), "SET", "greeting", "hello");
    drop(server);
    let server = bare()
        .dir(dir.join("data"))
        .config("appendonly", "yes")
        .start();
    assert_eq!(greeting(&mut server.connect()), "hello");
    drop(server);
    fs::remove_dir_all(dir).unwrap();
}

fn tempfile_dir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("mortise-named-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn wait_for_sync_waits_for_all_writes_of_the_primary() {
    let primary = bare().start();
    let replica = bare().replica_of(&primary).start();
    cmd!(primary.connect(), "SET", "greeting", "hello");
    wait_for_sync(&primary, &replica);
    assert_eq!(greeting(&mut replica.connect()), "hello");
    let error = try_cmd!(replica.connect(), "SET", "greeting", "bye").unwrap_err();
    assert!(error.starts_with("READONLY "), "{error}");
}

#[test]
fn a_frozen_server_replies_when_it_continues() {
    let server = bare().start();
    let mut conn = server.connect();
    server.stop_signal();
    send!(conn, "PING");
    assert!(conn.recv_within(Duration::from_millis(50)).is_none());
    server.cont_signal();
    assert_eq!(text(&conn.recv()), "PONG");
}

#[test]
fn a_refused_configuration_is_reported_with_the_log() {
    let error = bare().config("maxclients", "none").try_start().unwrap_err();
    assert!(error.to_string().contains("maxclients"), "{error}");
}

#[test]
fn a_password_is_used_by_the_harness_too() {
    let mut server = bare().config("requirepass", "secret").start();
    assert_eq!(text(&cmd!(server.connect_resp3(), "PING")), "PONG");
    server.restart(Shutdown::NoSave);
}

#[test]
fn a_dropped_server_that_has_crashed_fails_the_test() {
    let server = bare().config("crash-memcheck-enabled", "no").start();
    let mut conn = server.connect();
    try_cmd!(conn, "DEBUG", "SEGFAULT").unwrap_err();
    let panic = catch_unwind(AssertUnwindSafe(|| drop(server))).unwrap_err();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("BUG REPORT"), "{message}");
}

#[test]
fn the_log_can_be_read() {
    let server = bare().start();
    assert!(server.log().contains("Ready to accept connections"));
}

#[test]
fn errors_are_the_lines_of_the_wire() {
    let server = bare().start();
    let mut conn = server.connect();
    cmd!(conn, "SET", "text", "x");
    assert_eq!(
        try_cmd!(conn, "LPUSH", "text", "y").unwrap_err(),
        "WRONGTYPE Operation against a key holding the wrong kind of value"
    );
    assert_eq!(
        conn.try_cmd(&["INCR", "text"]).unwrap_err(),
        "ERR value is not an integer or out of range"
    );
    cmd!(conn, "MULTI");
    cmd!(conn, "LPUSH", "text", "y");
    let replies = cmd!(conn, "EXEC");
    let line = error_line(&array(&replies)[0]).unwrap();
    assert!(line.starts_with("WRONGTYPE "), "{line}");
}

#[test]
#[should_panic(expected = "INCR text: ERR value is not an integer")]
fn an_unexpected_error_names_its_command() {
    let server = bare().start();
    let mut conn = server.connect();
    cmd!(conn, "SET", "text", "x");
    cmd!(conn, "INCR", "text");
}

#[test]
fn arguments_of_all_kinds_arrive_unchanged() {
    let server = bare().unix_socket().start();
    let mut conn = server.connect_unix();
    let (name, raw): (String, &[u8]) = ("list".to_owned(), b"\xff\0\r\n");
    cmd!(
        conn,
        "RPUSH",
        &name,
        raw,
        b"abc",
        "text",
        17,
        -1i64,
        u64::MAX
    );
    let items = cmd!(conn, "LRANGE", name, 0, -1);
    let items: Vec<_> = array(&items).iter().map(bytes).collect();
    let expected: [&[u8]; 6] = [raw, b"abc", b"text", b"17", b"-1", b"18446744073709551615"];
    assert_eq!(items, expected);
    assert_eq!(bytes(&conn.cmd(&[b"ECHO".as_slice(), raw])), raw);
}

#[test]
fn a_blocked_command_is_seen_and_answered_later() {
    let server = bare().start();
    let (mut waiter, mut pusher) = (server.connect(), server.connect());
    send!(waiter, "BLPOP", "list", 0);
    server.await_blocked(&waiter);
    // A read that times out must not swallow a later reply.
    assert!(waiter.recv_within(Duration::from_millis(5)).is_none());
    cmd!(pusher, "RPUSH", "list", "x");
    assert_eq!(text(&array(&waiter.recv())[1]), "x");

    send!(waiter, "BLPOP", "list", 0);
    server.await_blocked(&waiter);
    let unblocked = cmd!(pusher, "CLIENT", "UNBLOCK", waiter.client_id());
    assert_eq!(int(&unblocked), 1);
    assert!(is_nil(&waiter.recv()));
}

#[test]
fn what_a_new_connection_sends_can_arrive_before_what_an_old_one_has_sent() {
    let server = bare().start();
    let link = Link::to(&server);
    let mut old = Conn::to_port(link.port()).unwrap();
    cmd!(old, "SET", "key", "first");
    link.hold_older();
    old.send(&["SET", "key", "old"]);
    let mut new = Conn::to_port(link.port()).unwrap();
    cmd!(new, "SET", "key", "new");
    let value = || text(&cmd!(server.connect(), "GET", "key"));
    assert_eq!(value(), "new");
    link.release_older();
    old.recv();
    assert_eq!(value(), "old");
}

/// Other tests of this process have a few files open, too.
#[cfg(target_os = "linux")]
#[test]
fn a_link_keeps_no_socket_of_a_connection_that_has_ended() {
    let server = bare().start();
    let link = Link::to(&server);
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..300 {
        let mut conn = Conn::to_port(link.port()).unwrap();
        assert_eq!(text(&cmd!(conn, "PING")), "PONG");
    }
    eventually("the sockets are closed", || open() < before + 150);
}

#[test]
fn maps_read_the_same_in_both_protocols() {
    let server = bare().start();
    let (mut old, mut new) = (server.connect(), server.connect_resp3());
    cmd!(old, "HSET", "hash", "a", 1, "b", 2);
    let from_flat = as_map(&cmd!(old, "HGETALL", "hash"));
    assert_eq!(from_flat, as_map(&cmd!(new, "HGETALL", "hash")));
    assert_eq!(from_flat.len(), 2);
}

#[test]
#[should_panic(expected = "until pigs fly; the last check: \"no pigs\"")]
fn a_vain_wait_fails_with_the_last_check() {
    eventually_within(Duration::from_millis(50), "pigs fly", || {
        Err::<(), _>("no pigs")
    });
}

#[test]
fn the_version_of_the_server_is_supported() {
    let version = bare().start().version();
    assert!(
        version.is_redis_from(7, 0) || version.is_valkey_from(7, 2),
        "{version}"
    );
}
