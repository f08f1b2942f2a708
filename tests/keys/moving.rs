//! A lock is a key: it can be renamed, moved, copied and swapped like one, and keeps its holds and leases.

use mortise_harness::{
    Conn, LockInfo, Server, bytes, cmd, eventually, hold_of, int, is_nil, lock_info, refused, text,
    wall_micros,
};

/// A lease that ends within a test, but not before a busy machine has checked it.
const LEASE: i64 = 500;

/// Waits until every lease of up to `ms` that has begun by now is over, and is swept if its key is known.
///
/// The witness's lease ends last, and leases are swept in the order in which they end.
#[track_caller]
fn await_leases_up_to(server: &Server, ms: i64) {
    let mut conn = server.connect();
    cmd!(conn, "SELECT 15");
    cmd!(conn, "LOCK.ACQUIRE", "witness", "w", ms + 100);
    eventually("the witness is swept", || {
        int(&cmd!(conn, "EXISTS witness")) == 0
    });
}

#[track_caller]
fn lock(conn: &mut Conn, key: &str) -> LockInfo {
    lock_info(conn, key).unwrap_or_else(|| panic!("nobody holds {key}"))
}

fn exists(conn: &mut Conn, key: &str) -> bool {
    int(&cmd!(conn, "EXISTS {key}")) == 1
}

/// Three readers of `key` with different counts.
fn let_readers_in(conn: &mut Conn, key: &str, lease: i64) {
    for (owner, count) in [("a", 1), ("b", 2), ("c", 3)] {
        cmd!(conn, "LOCK.RLOCK {key} {owner} {lease} HOLDS {count}");
    }
}

#[test]
fn a_renamed_lock_keeps_its_holds_under_its_new_name() {
    let (_server, mut conn) = Server::start_connected();
    let_readers_in(&mut conn, "old", 60_000);
    let before = lock(&mut conn, "old");
    cmd!(conn, "RENAME old new");
    assert!(!exists(&mut conn, "old"));
    let after = lock(&mut conn, "new");
    assert_eq!(after.facts(), before.facts());
    assert!(after.holds[0].lease > 30_000);
    assert_eq!(after.holds[0].client, conn.client_id());

    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE old a")));
    assert!(is_nil(&cmd!(conn, "LOCK.WLOCK new w 1000")));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE new a")), 0);
    assert!(!is_nil(&cmd!(conn, "LOCK.WLOCK old w 60000")));
}

#[test]
fn a_renamed_lock_keeps_its_lease_and_is_swept_once_a_command_names_it() {
    let (server, mut conn) = Server::start_connected();
    for name_it in [
        "LOCK.INFO new",
        "LOCK.RELEASE new nobody",
        "LOCK.RENEW new nobody 1",
    ] {
        cmd!(conn, "LOCK.ACQUIRE old a {LEASE}");
        cmd!(conn, "RENAME old new");
        await_leases_up_to(&server, LEASE);
        assert!(is_nil(&cmd!(conn, "{name_it}")), "{name_it}");
        eventually("the key is gone", || !exists(&mut conn, "new"));
    }
    // If a command names it before it ends, it is swept when it ends.
    for name_it in [
        "LOCK.INFO new",
        "LOCK.RENEW new a 1",
        "LOCK.RLOCK new nobody 1",
    ] {
        cmd!(conn, "MULTI");
        cmd!(conn, "LOCK.ACQUIRE old a {LEASE}");
        cmd!(conn, "RENAME old new");
        cmd!(conn, "{name_it}");
        cmd!(conn, "EXEC");
        eventually("the key is gone", || !exists(&mut conn, "new"));
    }
}

#[test]
fn the_end_of_a_renamed_lock_does_not_end_a_new_lock_of_its_old_name() {
    let (server, mut conn) = Server::start_connected();
    for name in ["one", "two", "three"] {
        cmd!(conn, "LOCK.ACQUIRE {name} a {LEASE}");
    }
    cmd!(conn, "RENAME one one:new");
    cmd!(conn, "RENAME two two:new");
    cmd!(conn, "LOCK.ACQUIRE one b 60000");
    cmd!(conn, "SET two value");
    cmd!(conn, "SET three value");
    await_leases_up_to(&server, LEASE);
    assert_eq!(lock(&mut conn, "one").holds[0].owner, b"b");
    assert_eq!(text(&cmd!(conn, "GET two")), "value");
    assert_eq!(text(&cmd!(conn, "GET three")), "value");
}

#[test]
fn a_rename_onto_a_lock_replaces_its_holds() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE one a 60000");
    let_readers_in(&mut conn, "two", LEASE);
    assert_eq!(int(&cmd!(conn, "RENAMENX one two")), 0);
    assert_eq!(lock(&mut conn, "two").holders, 3);

    let facts = lock(&mut conn, "one").facts();
    cmd!(conn, "RENAME one two");
    assert_eq!(lock(&mut conn, "two").facts(), facts);
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE two b")));
    // The leases of the replaced holds must not end the new ones.
    await_leases_up_to(&server, LEASE);
    assert_eq!(lock(&mut conn, "two").facts(), facts);
}

#[test]
fn a_moved_lock_is_held_in_its_new_database_and_ends_there() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT 1");
    let_readers_in(&mut zero, "key", 60_000);
    let facts = lock(&mut zero, "key").facts();
    assert_eq!(int(&cmd!(zero, "MOVE key 1")), 1);
    assert_eq!(lock(&mut one, "key").facts(), facts);
    assert!(!is_nil(&cmd!(zero, "LOCK.WLOCK key w 60000")));
    assert_eq!(int(&cmd!(zero, "MOVE key 1")), 0);
    assert_eq!(lock(&mut one, "key").facts(), facts);

    cmd!(zero, "LOCK.ACQUIRE short a {LEASE}");
    cmd!(zero, "MOVE short 1");
    cmd!(zero, "LOCK.ACQUIRE short b 60000");
    await_leases_up_to(&server, LEASE);
    assert_eq!(lock_info(&mut one, "short"), None);
    eventually("the moved key is gone", || !exists(&mut one, "short"));
    assert_eq!(lock(&mut zero, "short").holds[0].owner, b"b");
}

#[test]
fn a_copied_lock_has_the_same_holds_and_is_then_independent() {
    let server = Server::start();
    let (mut conn, mut other) = (server.connect(), server.connect());
    cmd!(other, "SELECT 5");
    let_readers_in(&mut conn, "key", 60_000);
    let before = lock(&mut conn, "key");
    assert_eq!(int(&cmd!(conn, "COPY key copy")), 1);
    assert_eq!(int(&cmd!(conn, "COPY key copy DB 5")), 1);
    let copy = lock(&mut conn, "copy");
    assert_eq!(copy.facts(), before.facts());
    assert!(copy.holds[0].lease <= before.holds[0].lease);
    assert!(copy.holds[0].lease > 30_000);
    assert_eq!(lock(&mut other, "copy").facts(), before.facts());

    cmd!(conn, "LOCK.RELEASE copy a");
    cmd!(conn, "LOCK.RENEW copy b 600000");
    assert_eq!(lock(&mut conn, "key").facts(), before.facts());
    assert!(hold_of(&mut conn, "key", "b").unwrap().lease <= 60_000);
    assert_eq!(lock(&mut other, "copy").facts(), before.facts());
    cmd!(conn, "DEL key");
    assert_eq!(lock(&mut conn, "copy").holders, 2);
}

#[test]
fn a_revoked_hold_stays_revoked_when_its_lock_is_renamed_moved_or_copied() {
    let (_server, mut conn) = Server::builder().alone().start_connected();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    cmd!(conn, "LOCK.REVOKE key a");
    let dump = bytes(&cmd!(conn, "DUMP key"));
    cmd!(conn, "COPY key copied");
    cmd!(conn, "RENAME key renamed");
    cmd!(conn, "RESTORE", "restored", 0, dump);
    cmd!(conn, "COPY renamed moved");
    cmd!(conn, "MOVE moved 3");
    cmd!(conn, "COPY renamed swapped");
    cmd!(conn, "SWAPDB 0 5");
    for (db, key) in [
        (5, "copied"),
        (5, "renamed"),
        (5, "restored"),
        (5, "swapped"),
        (3, "moved"),
    ] {
        cmd!(conn, "SELECT {db}");
        assert!(is_nil(&cmd!(conn, "LOCK.RENEW {key} a 70000")), "{key}");
        assert!(!is_nil(&cmd!(conn, "LOCK.RENEW {key} b 70000")), "{key}");
        let revoked = lock(&mut conn, key).holds.into_iter();
        let revoked: Vec<_> = revoked.map(|hold| hold.revoked).collect();
        assert_eq!(revoked, [true, false], "{key}");
    }
}

#[test]
fn a_copied_lock_is_swept_though_no_command_names_it() {
    let server = Server::start();
    let (mut conn, mut other) = (server.connect(), server.connect());
    cmd!(other, "SELECT 5");
    cmd!(conn, "LOCK.ACQUIRE key a 200");
    cmd!(conn, "COPY key copy");
    cmd!(conn, "COPY key copy DB 5");
    cmd!(conn, "LOCK.RENEW key a 60000");
    eventually("the copies are gone", || {
        !exists(&mut conn, "copy") && !exists(&mut other, "copy")
    });
    assert!(exists(&mut conn, "key"));
}

#[test]
fn a_copy_onto_a_lock_replaces_its_holds_only_with_replace() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE one a 60000");
    cmd!(conn, "LOCK.ACQUIRE two b {LEASE}");
    assert_eq!(int(&cmd!(conn, "COPY one two")), 0);
    assert_eq!(int(&cmd!(conn, "COPY one two REPLACE")), 1);
    let facts = lock(&mut conn, "one").facts();
    assert_eq!(lock(&mut conn, "two").facts(), facts);
    await_leases_up_to(&server, LEASE);
    assert_eq!(lock(&mut conn, "two").facts(), facts);
}

#[test]
fn swapped_databases_keep_their_locks_and_leases() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT 1");
    cmd!(zero, "MULTI");
    cmd!(zero, "LOCK.ACQUIRE short a 100");
    cmd!(zero, "LOCK.ACQUIRE key zero 60000");
    cmd!(zero, "SELECT 1");
    cmd!(zero, "LOCK.ACQUIRE short b 60000");
    cmd!(zero, "LOCK.ACQUIRE key one 60000");
    cmd!(zero, "SWAPDB 0 1");
    cmd!(zero, "SELECT 0");
    cmd!(zero, "EXEC");
    assert_eq!(lock(&mut zero, "key").holds[0].owner, b"one");
    assert_eq!(lock(&mut one, "key").holds[0].owner, b"zero");
    eventually("the short lease is over", || !exists(&mut one, "short"));
    assert_eq!(lock(&mut zero, "short").holds[0].owner, b"b");
    assert_eq!(int(&cmd!(one, "LOCK.RELEASE key zero")), 0);
    assert_eq!(int(&cmd!(zero, "LOCK.RELEASE key one")), 0);
}

#[test]
fn a_restored_lock_has_the_dumped_holds_and_ends_by_itself() {
    let (_server, mut conn) = Server::start_connected();
    let_readers_in(&mut conn, "key", 60_000);
    cmd!(conn, "LOCK.RLOCK key brief 300");
    let before = lock(&mut conn, "key");
    let dump = bytes(&cmd!(conn, "DUMP key"));
    refused!(conn, "BUSYKEY ", "RESTORE", "key", 0, &dump[..]);
    cmd!(conn, "RESTORE", "other", 0, &dump[..]);
    let after = lock(&mut conn, "other");
    assert_eq!(after.facts(), before.facts());
    // No longer than when it was dumped: a payload's lease does not run.
    assert!((30_000..=60_000).contains(&after.holds[0].lease));

    cmd!(conn, "LOCK.RELEASE key a");
    cmd!(conn, "RESTORE", "key", 0, &dump[..], "REPLACE");
    assert_eq!(lock(&mut conn, "key").facts(), before.facts());
    for key in ["other", "key"] {
        eventually("the brief hold has ended", || {
            lock(&mut conn, key).holders == 3
        });
    }

    cmd!(conn, "LOCK.ACQUIRE short a 300");
    let dump = bytes(&cmd!(conn, "DUMP short"));
    cmd!(conn, "DEL short");
    cmd!(conn, "RESTORE", "short", 0, &dump[..]);
    assert!(exists(&mut conn, "short"));
    eventually("it is swept though no command names it", || {
        !exists(&mut conn, "short")
    });
}

#[test]
fn a_restored_token_is_exceeded_by_later_ones() {
    let (one, two) = (Server::start(), Server::start());
    let (mut from, mut to) = (one.connect(), two.connect());
    let ahead = wall_micros() + 1_800_000_000;
    cmd!(from, "LOCK.ACQUIRE key a 60000 FENCE {ahead}");
    let dump = bytes(&cmd!(from, "DUMP key"));
    cmd!(to, "RESTORE", "key", 0, dump);
    assert_eq!(hold_of(&mut to, "key", "a").unwrap().token, ahead);
    let next = int(&cmd!(to, "LOCK.ACQUIRE other a 60000"));
    assert!(next > ahead, "{next} > {ahead}");
}
