//! Servers without LOCK.REVOKE can read everything that newer ones write, as long as nobody revokes.

use std::fs;

use mortise_harness::{Conn, Envelope, Server, bytes, cmd, int};

use crate::damaged_files::effects;

/// The format of `key`'s dump.
fn format_of(conn: &mut Conn, key: &str) -> u8 {
    Envelope::open(&bytes(&cmd!(conn, "DUMP", key)))[0]
}

/// The formats of the effects in the append-only file, in order.
fn formats_in_file(server: &Server) -> Vec<u8> {
    let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let file = fs::read(file).unwrap();
    effects(&file).iter().map(|at| file[at.start]).collect()
}

#[test]
fn format_3_is_written_only_for_a_revoked_hold() {
    let server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("rdbcompression", "no")
        .start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.WLOCK", "key", "a", 600_000));
    cmd!(conn, "LOCK.RLOCK", "key", "a", 600_000);
    cmd!(conn, "LOCK.RENEW", "key", "a", 700_000);
    cmd!(conn, "LOCK.FENCE", "key", "a", token + 1);
    for owner in ["a", "b", "c"] {
        cmd!(conn, "LOCK.RLOCK", "read", owner, 600_000);
    }
    cmd!(conn, "LOCK.RELEASE", "read", "c");
    cmd!(conn, "LOCK.RLOCK", "free", "a", 600_000);
    cmd!(conn, "LOCK.RELEASE", "free", "a");
    let before = formats_in_file(&server);
    assert!(before.len() >= 10 && before.iter().all(|format| *format == 2));

    cmd!(conn, "LOCK.REVOKE", "read", "b");
    // These touch the revoked hold once more, and then only others.
    cmd!(conn, "LOCK.FENCE", "read", "b", token + 2);
    cmd!(conn, "LOCK.RENEW", "read", "a", 700_000);
    cmd!(conn, "LOCK.RENEW", "key", "a", 700_000);
    assert_eq!(format_of(&mut conn, "read"), 3);
    assert_eq!(format_of(&mut conn, "key"), 2);
    cmd!(conn, "LOCK.LEAVE", "read", "b");
    assert_eq!(format_of(&mut conn, "read"), 2);
    let after = formats_in_file(&server);
    assert_eq!(after[before.len()..], [3, 3, 2, 2, 2]);
}
