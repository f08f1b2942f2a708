//! Damaged files, and files of a newer format: the server logs what it cannot read, and does not crash.

use std::fs;
use std::path::PathBuf;

use mortise_harness::{Server, Shutdown, Snapshot, boot_id, cmd, lock_info};

/// An owner that the test can find in a file.
const OWNER: &[u8] = b"an owner of its own";

/// A server that was shut down and left a file with a few locks.
fn shut_down_with_locks() -> (Server, Snapshot, PathBuf) {
    let mut server = Server::builder()
        // Without checksums, so that the module refuses it, not the server.
        .config("rdbchecksum", "no")
        .config("rdbcompression", "no")
        .start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "before", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "key", OWNER, 600_000, "HOLDS", 7);
    cmd!(conn, "LOCK.RLOCK", "read", "a", 600_000);
    cmd!(conn, "LOCK.RLOCK", "read", "b", 600_000);
    let locks = Snapshot::take(&server);
    server.shutdown(Shutdown::Save);
    let file = server.dir().join("dump.rdb");
    (server, locks, file)
}

/// The last position of `part` in `bytes`.
#[track_caller]
fn find(bytes: &[u8], part: &[u8]) -> usize {
    let found = bytes.windows(part.len()).rposition(|window| window == part);
    found.unwrap_or_else(|| panic!("'{}' is in the file", part.escape_ascii()))
}

#[test]
fn an_rdb_file_with_an_unreadable_lock_keeps_the_server_from_starting_and_the_log_names_the_reason()
{
    let (mut server, locks, file) = shut_down_with_locks();
    let good = fs::read(&file).unwrap();
    let owner = find(&good, OWNER);
    let write_count = owner + OWNER.len();
    let counts = &good[write_count..][..2];
    assert_eq!(counts, [7, 0], "they follow the owner");
    let format = find(&good[..owner], &boot_id()) - 1;
    assert_eq!(good[format], 1, "its number comes before the boot id");
    let damages: [(&str, usize, u8); 4] = [
        ("no counts", write_count, 0),
        ("an owner cut off", owner - 1, 3),
        ("an owner too long", owner - 1, 0x7f),
        ("a newer format", format, 2),
    ];
    for (what, at, byte) in damages {
        let mut bad = good.clone();
        bad[at] = byte;
        fs::write(&file, bad).unwrap();
        let error = server.try_start_again().expect_err(what);
        let refusal = error.log.lines().rfind(|line| line.contains("refused: "));
        assert!(refusal.is_some(), "{what}: {}", error.log);
    }
    // The refusal has lost nothing.
    fs::write(&file, &good).unwrap();
    server.start_again();
    Snapshot::take(&server).assert_continues(&locks);
}

#[test]
fn an_unreadable_effect_is_logged_as_critical_and_the_others_are_applied() {
    let mut server = Server::builder().appending().start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "before", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "key", OWNER, 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "after", "a", 600_000);
    server.sigkill();
    let file = server.append_only_file();
    let mut bytes = fs::read(&file).unwrap();
    let owner = find(&bytes, OWNER);
    // The format's number is the first byte after the effect's length.
    let start = find(&bytes[..owner], b"\r\n\x01") + 2;
    bytes[start] = 9;
    fs::write(&file, bytes).unwrap();
    server.start_again();
    let log = server.log();
    let said = log.lines().find(|line| line.contains("CRITICAL"));
    let is_named = said.is_some_and(|line| line.contains("newer version"));
    assert!(is_named, "{log}");
    let mut conn = server.connect();
    assert!(lock_info(&mut conn, "before").is_some());
    assert!(lock_info(&mut conn, "after").is_some());
}
