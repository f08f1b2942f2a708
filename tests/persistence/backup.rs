//! Restoring an old backup: old holds come back, newer ones are missing, and tokens still grow.

use std::fs;

use mortise_harness::{Server, Shutdown, cmd, eventually, holders_of, int, is_nil};

/// A server started from a backup, and the last token granted before. In the backup `a` holds `released` and `over`; since
/// then `released` was released, the lease of `over` has ended, and `b` has acquired `newer`.
fn restored(grace: u64) -> (Server, i64) {
    let mut server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "over", "a", 1_000);
    cmd!(conn, "SAVE");
    let [file, backup] = ["dump.rdb", "backup.rdb"].map(|name| server.dir().join(name));
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
fn a_restored_backup_brings_back_released_holds_and_lacks_newer_ones() {
    let (server, last) = restored(0);
    let mut conn = server.connect();
    assert_eq!(holders_of(&mut conn, "released"), ["a"]);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "released", "c", 1_000)));
    // A lease does not continue from where it was saved.
    assert!(is_nil(&cmd!(conn, "LOCK.INFO", "over")));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "newer", "b", 600_000)));
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "newer", "c", 600_000));
    assert!(token > last, "{token} after {last}");
}

#[test]
fn a_grace_protects_holds_that_the_backup_lacks() {
    let (server, _) = restored(600_000);
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "newer", "c", 1_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "newer", "b", 600_000)));
    // The holds in the backup continue.
    assert!(!is_nil(&cmd!(conn, "LOCK.RENEW", "released", "a", 600_000)));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "released", "a")), 0);
}
