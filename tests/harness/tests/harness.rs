//! What of the harness no other test would miss, on servers without the module.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use mortise_harness::{
    Builder, Conn, Link, Server, Shutdown, array, cmd, eventually, eventually_within, send, text,
    try_cmd, wait_for_sync,
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
#[should_panic(expected = "INCR text: ERR value is not an integer")]
fn an_unexpected_error_names_its_command() {
    let server = bare().start();
    let mut conn = server.connect();
    cmd!(conn, "SET", "text", "x");
    cmd!(conn, "INCR", "text");
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
