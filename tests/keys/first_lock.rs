//! The first lock of a server: from then on the module tracks changes of its databases, however that lock was created.

use mortise_harness::{Conn, Server, Shutdown, bytes, cmd, command, eventually, text};

/// A server that has just got a lock at `key`, and the connection that changes its databases.
type Way = fn() -> (Vec<Server>, Conn);

const WAYS: [(&str, Way); 5] = [
    ("a command", by_command),
    ("a RESTORE", by_restore),
    ("an RDB file", || by_file("no")),
    ("an AOF", || by_file("yes")),
    ("its primary", by_primary),
];

fn by_command() -> (Vec<Server>, Conn) {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    (vec![server], conn)
}

/// The `DUMP` of a lock at `key`.
fn payload() -> Vec<u8> {
    let (_server, mut conn) = by_command();
    bytes(&cmd!(conn, "DUMP key"))
}

fn by_restore() -> (Vec<Server>, Conn) {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "RESTORE", "key", 0, payload());
    (vec![server], conn)
}

fn by_file(append_only: &str) -> (Vec<Server>, Conn) {
    let mut server = Server::builder().config("appendonly", append_only).start();
    cmd!(server.connect(), "LOCK.ACQUIRE key a 60000");
    server.restart(Shutdown::Save);
    let conn = server.connect();
    (vec![server], conn)
}

/// The servers, first the replica, which was in sync before there was a lock.
fn by_primary() -> (Vec<Server>, Conn) {
    let primary = Server::start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    (vec![replica, primary], conn)
}

#[test]
fn swapped_databases_keep_their_first_lock() {
    for (way, lock) in WAYS {
        eprintln!("by {way}");
        let (servers, mut conn) = lock();
        let locks = |count| {
            eventually(&format!("{count} is counted"), || {
                servers[0].gauge("locks") == count
            });
        };
        locks(1);
        cmd!(conn, "SWAPDB 0 9");
        cmd!(conn, "FLUSHDB");
        // All earlier changes have reached the replica before this one.
        cmd!(conn, "LOCK.ACQUIRE other a 60000");
        locks(2);
        cmd!(conn, "SELECT 9");
        cmd!(conn, "FLUSHDB");
        locks(1);
        cmd!(conn, "FLUSHALL");
        locks(0);
    }
}

#[test]
fn a_first_lock_that_is_restored_and_swapped_at_once_is_counted_where_it_is() {
    let (server, mut conn) = Server::start_connected();
    let replies = conn.pipeline(&[
        command!("RESTORE", "key", 0, payload()),
        command!("SWAPDB 0 9"),
    ]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    server.await_gauge("locks", 1);
    cmd!(conn, "SELECT 9");
    assert_eq!(text(&cmd!(conn, "TYPE key")), "mort-lock");
    cmd!(conn, "FLUSHDB");
    assert_eq!(server.gauge("locks"), 0);
}
