//! A backup that is restored later: it brings old holds back, lacks newer ones, and tokens go on.

use std::fs;

use mortise_harness::{Server, Shutdown, cmd, eventually, holders_of, int, is_nil};

/// A server that was started with a backup of its past, and the last token from before. Then `released` and `over` were
/// held by `a`; since then `released` was released, the lease of `over` has run out, and `b` has taken `newer`.
fn restored(grace: u64) -> (Server, i64) {
    let mut server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "over", "a", 1_000);
    cmd!(conn, "SAVE");
    let (file, backup) = (
        server.dir().join("dump.rdb"),
        server.dir().join("backup.rdb"),
    );
    fs::copy(&file, &backup).unwrap();
    cmd!(conn, "LOCK.RELEASE", "released", "a");
    let last = int(&cmd!(conn, "LOCK.ACQUIRE", "newer", "b", 600_000));
    eventually("its lease is over", || {
        is_nil(&cmd!(conn, "LOCK.INFO", "over"))
    });
    server.shutdown(Shutdown::NoSave);
    fs::copy(&backup, &file).unwrap();
    server.set_module_arg("grace", &grace.to_string());
    server.start_again();
    (server, last)
}

#[test]
fn a_restored_backup_brings_back_what_was_released_and_forgets_what_was_taken() {
    let (server, last) = restored(0);
    let mut conn = server.connect();
    assert_eq!(holders_of(&mut conn, "released"), ["a"]);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "released", "c", 1_000)));
    // A lease does not run on from where it was saved.
    assert!(is_nil(&cmd!(conn, "LOCK.INFO", "over")));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "newer", "b", 600_000)));
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "newer", "c", 600_000));
    assert!(token > last, "{token} after {last}");
}

#[test]
fn a_grace_keeps_others_out_beside_whom_the_backup_does_not_know() {
    let (server, _) = restored(600_000);
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "newer", "c", 1_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "newer", "b", 600_000)));
    // The holds in the backup go on.
    assert!(!is_nil(&cmd!(conn, "LOCK.RENEW", "released", "a", 600_000)));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "released", "a")), 0);
}
