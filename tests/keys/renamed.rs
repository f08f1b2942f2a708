//! `INFO lock` counts a lock by its key. One that RENAME or MOVE took to another key counts from the first command that names it
//! there.

use mortise_harness::{Server, cmd, command, eventually, wait_for_sync};

/// Locks and holders.
fn counts(server: &Server) -> [i64; 2] {
    let lines = server.info("lock");
    ["lock_locks", "lock_holders"].map(|field| lines[field].parse().unwrap())
}

#[track_caller]
fn await_counts(server: &Server, wanted: [i64; 2]) {
    eventually("INFO lock counts what is held", || match counts(server) {
        found if found == wanted => Ok(()),
        found => Err(found),
    });
}

#[test]
fn a_renamed_or_moved_lock_counts_from_the_first_command_that_names_it() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE one a 600000");
    for owner in ["b", "c", "d"] {
        cmd!(conn, "LOCK.RLOCK two {owner} 600000");
    }
    assert_eq!(counts(&server), [2, 4]);
    cmd!(conn, "RENAME two two:new");
    assert_eq!(counts(&server), [1, 1]);
    cmd!(conn, "LOCK.INFO two:new");
    assert_eq!(counts(&server), [2, 4]);
    cmd!(conn, "RENAME two:new two:newer");
    cmd!(conn, "LOCK.RELEASE two:newer b");
    assert_eq!(counts(&server), [2, 3]);
    cmd!(conn, "MOVE one 3");
    cmd!(conn, "SWAPDB 3 5");
    assert_eq!(counts(&server), [1, 2]);
    cmd!(conn, "SELECT 5");
    cmd!(conn, "LOCK.RENEW one a 600000");
    assert_eq!(counts(&server), [2, 3]);
    cmd!(conn, "LOCK.RELEASE one a");
    assert_eq!(counts(&server), [1, 2]);
}

#[test]
fn a_lock_whose_key_goes_does_not_count_from_then_on() {
    let (server, mut conn) = Server::start_connected();
    for way in [
        "DEL lock",
        "UNLINK lock",
        "SET lock value",
        "RENAME other lock",
        "PEXPIRE lock 0",
        "FLUSHDB",
        "FLUSHALL",
    ] {
        cmd!(conn, "DEL lock");
        cmd!(conn, "SET other value");
        for owner in ["a", "b"] {
            cmd!(conn, "LOCK.RLOCK lock {owner} 600000");
        }
        assert_eq!(counts(&server), [1, 2]);
        cmd!(conn, "{way}");
        assert_eq!(counts(&server), [0, 0], "{way}");
    }
}

#[test]
fn a_replica_counts_a_renamed_lock_from_the_first_effect_on_it() {
    let primary = Server::start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE lock a 600000");
    cmd!(conn, "RENAME lock new");
    wait_for_sync(&primary, &replica);
    await_counts(&replica, [0, 0]);
    cmd!(conn, "LOCK.RENEW new a 700000");
    wait_for_sync(&primary, &replica);
    await_counts(&replica, [1, 1]);
}

#[test]
fn a_hundred_thousand_renamed_locks_end_without_a_stall() {
    const ALL: usize = 100_000;
    let (server, mut conn) = Server::start_connected();
    let mut send = |nth: fn(usize) -> mortise_harness::redis::Cmd| {
        for first in (0..ALL).step_by(5_000) {
            let batch: Vec<_> = (first..first + 5_000).map(nth).collect();
            conn.pipeline(&batch);
        }
    };
    send(|n| command!("LOCK.ACQUIRE lock-{n} a 600000"));
    send(|n| command!("RENAME lock-{n} new-{n}"));
    await_counts(&server, [0, 0]);
    cmd!(conn, "FLUSHALL ASYNC");
    let longest = server.gauge("longest_stretch_us");
    assert!(longest < 20_000, "{longest} microseconds at a stretch");
    cmd!(conn, "LOCK.ACQUIRE lock a 600000");
    await_counts(&server, [1, 1]);
}
