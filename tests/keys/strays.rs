//! `INFO lock` counts locks that no longer have their key: those that exist under another name, and not those that were
//! dropped.

use mortise_harness::{Server, cmd, command, eventually, int, wait_for_sync};

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
fn a_renamed_or_moved_lock_is_counted_though_no_command_names_it() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "one", "a", 600_000);
    for owner in ["b", "c", "d"] {
        cmd!(conn, "LOCK.RLOCK", "two", owner, 600_000);
    }
    for (from, to) in [
        ("one", "one:new"),
        ("two", "two:new"),
        ("two:new", "two:newer"),
    ] {
        cmd!(conn, "RENAME", from, to);
        assert_eq!(counts(&server), [2, 4]);
    }
    cmd!(conn, "MOVE", "one:new", 3);
    cmd!(conn, "SWAPDB", 3, 5);
    assert_eq!(counts(&server), [2, 4]);
    // A command names it, and it is still counted once.
    cmd!(conn, "LOCK.INFO", "two:newer");
    assert_eq!(counts(&server), [2, 4]);
    cmd!(conn, "LOCK.RELEASE", "two:newer", "b");
    assert_eq!(counts(&server), [2, 3]);
    cmd!(conn, "SELECT", 5);
    cmd!(conn, "LOCK.RELEASE", "one:new", "a");
    assert_eq!(counts(&server), [1, 2]);
}

#[test]
fn a_lock_whose_key_goes_is_no_longer_counted() {
    let ways: [&[&str]; 7] = [
        &["DEL", "lock"],
        &["UNLINK", "lock"],
        &["SET", "lock", "value"],
        &["SET", "other", "value"],
        &["PEXPIRE", "lock", "1"],
        &["FLUSHDB"],
        &["FLUSHALL"],
    ];
    for renamed in [false, true] {
        for way in ways {
            let server = Server::start();
            let mut conn = server.connect();
            for owner in ["a", "b"] {
                cmd!(conn, "LOCK.RLOCK", "lock", owner, 600_000);
            }
            if renamed {
                cmd!(conn, "RENAME", "lock", "other");
                cmd!(conn, "RENAME", "other", "lock");
            }
            let goes = match way[1..] {
                ["other", ..] => {
                    conn.cmd(way);
                    cmd!(conn, "RENAME", "other", "lock")
                }
                _ => conn.cmd(way),
            };
            await_counts(&server, [0, 0]);
            drop(goes);
        }
    }
}

#[test]
fn a_deleted_lock_is_not_counted_from_the_next_command() {
    let server = Server::start();
    let mut conn = server.connect();
    for round in 0..100 {
        cmd!(conn, "LOCK.ACQUIRE", "lock", "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "kept", "a", 600_000);
        if round % 2 == 0 {
            cmd!(conn, "RENAME", "lock", "other");
            cmd!(conn, "DEL", "other");
        } else {
            cmd!(conn, "DEL", "lock");
        }
        assert_eq!(counts(&server), [1, 1]);
    }
}

#[test]
fn the_holders_of_a_renamed_lock_are_counted_until_their_leases_are_over() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "one", "a", 1_000);
    cmd!(conn, "LOCK.RLOCK", "two", "a", 1_500);
    cmd!(conn, "LOCK.RLOCK", "two", "b", 600_000);
    cmd!(conn, "LOCK.RLOCK", "two", "c", 500);
    for name in ["one", "two"] {
        cmd!(conn, "RENAME", name, format!("{name}:new"));
    }
    await_counts(&server, [1, 1]);
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 2);
    // Once a command has named it, it is counted by its name again.
    cmd!(conn, "LOCK.RLOCK", "two:new", "d", 600_000);
    assert_eq!(counts(&server), [1, 2]);
    cmd!(conn, "LOCK.RELEASE", "two:new", "b");
    cmd!(conn, "LOCK.RELEASE", "two:new", "d");
    assert_eq!(counts(&server), [0, 0]);
}

#[test]
fn expired_holders_are_not_counted_though_their_database_is_swapped_before_they_are_dropped() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "lock", "a", 100);
    for owner in ["b", "c"] {
        cmd!(conn, "LOCK.RLOCK", "lock", owner, 600_000);
    }
    cmd!(conn, "RENAME", "lock", "other");
    await_counts(&server, [1, 2]);
    // It changes nothing, so the ended hold is still there, to be dropped separately.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.INFO", "other");
    cmd!(conn, "SWAPDB", 0, 1);
    cmd!(conn, "EXEC");
    await_counts(&server, [1, 2]);
}

#[test]
fn a_replica_counts_renamed_locks_too() {
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "long", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "short", "a", 1_500);
    cmd!(conn, "RENAME", "long", "long:new");
    cmd!(conn, "RENAME", "short", "short:new");
    wait_for_sync(&primary, &replica);
    await_counts(&replica, [1, 1]);
    cmd!(conn, "DEL", "long:new");
    await_counts(&replica, [0, 0]);
}

#[test]
fn a_hundred_thousand_renamed_locks_end_without_a_stall() {
    const ALL: usize = 100_000;
    let server = Server::start();
    let mut conn = server.connect();
    let mut send = |nth: fn(usize) -> mortise_harness::redis::Cmd| {
        for first in (0..ALL).step_by(5_000) {
            let batch: Vec<_> = (first..first + 5_000).map(nth).collect();
            conn.pipeline(&batch);
        }
    };
    send(|n| command!("LOCK.ACQUIRE", format!("lock-{n}"), "a", 5_000));
    send(|n| command!("RENAME", format!("lock-{n}"), format!("new-{n}")));
    await_counts(&server, [0, 0]);
    let longest = server.gauge("longest_stretch_us");
    assert!(longest < 20_000, "{longest} microseconds at a stretch");
    // They are dropped with their keys, on whatever thread.
    cmd!(conn, "FLUSHALL", "ASYNC");
    cmd!(conn, "LOCK.ACQUIRE", "lock", "a", 600_000);
    await_counts(&server, [1, 1]);
}
