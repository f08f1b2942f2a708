//! What the append-only file restores: key-space commands, other boots, cut files, and rewrites during changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mortise_harness::redis::Value;
use mortise_harness::{
    ClockStep, Conn, Dice, Server, Snapshot, bytes, cmd, command, eventually, hold_of, int, is_nil,
    lock_info, try_cmd,
};

fn appending() -> Server {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start()
}

/// Power is lost and comes back.
fn revive(server: &mut Server) {
    server.sigkill();
    server.start_again();
}

fn await_rewrite(server: &Server) {
    eventually("the rewrite is done", || {
        let state = server.info("persistence");
        let done = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
            .iter()
            .all(|name| state[*name] == "0")
            && state["aof_last_bgrewrite_status"] == "ok";
        if done { Ok(()) } else { Err(state) }
    });
}

/// The `n`th command of a fixed sequence: all kinds, on fifty locks of a few owners.
fn random_step(conn: &mut Conn, n: u64) {
    let mut dice = Dice::new(n);
    let mut roll = |sides: u64| dice.roll(sides);
    let (key, owner) = (format!("lock:{}", roll(50)), format!("owner:{}", roll(4)));
    // The owner of a revoked hold is refused.
    let mut acquire = |acquire: &str, lease: u32| {
        let acquired = try_cmd!(conn, acquire, &key, &owner, lease);
        acquired.unwrap_or_else(|error| {
            assert!(error.starts_with("REVOKED "), "{error}");
            Value::Nil
        })
    };
    match roll(14) {
        0..3 => acquire("LOCK.WLOCK", 600_000),
        3..6 => acquire("LOCK.RLOCK", 600_000),
        6 => cmd!(conn, "LOCK.RELEASE", key, owner, "ALL"),
        7 => cmd!(conn, "LOCK.RELEASE", key, owner, "HOLDS", 0, "READ"),
        8 => cmd!(conn, "LOCK.RENEW", key, owner, 700_000),
        12 => {
            // The other owner may hold already.
            let new_owner = format!("owner:{}", roll(4));
            let passed = try_cmd!(conn, "LOCK.PASS", key, owner, new_owner, 700_000);
            passed.unwrap_or(Value::Nil)
        }
        9 => cmd!(conn, "COPY", key, format!("copy:{}", roll(20)), "REPLACE"),
        10 => cmd!(conn, "DEL", key),
        11 => cmd!(conn, "LOCK.REVOKE", key, owner),
        _ => acquire("LOCK.RLOCK", 1),
    };
}

#[test]
fn the_effects_of_key_space_commands_on_locks_are_restored() {
    let mut server = appending();
    let mut conn = server.connect();
    for key in [
        "renamed",
        "onto",
        "moved",
        "copied",
        "deleted",
        "unlinked",
        "overwritten",
        "dumped",
    ] {
        for n in 0..3 {
            cmd!(
                conn,
                "LOCK.RLOCK",
                key,
                format!("{key}:{n}"),
                600_000,
                "HOLDS",
                n + 1
            );
        }
        cmd!(conn, "LOCK.REVOKE", key, format!("{key}:2"));
    }
    cmd!(conn, "RENAME", "renamed", "onto");
    cmd!(conn, "MOVE", "moved", 3);
    cmd!(conn, "COPY", "copied", "copy");
    cmd!(conn, "COPY", "copied", "copy", "DB", 4);
    cmd!(conn, "LOCK.RELEASE", "copied", "copied:1", "ALL");
    cmd!(conn, "DEL", "deleted");
    cmd!(conn, "UNLINK", "unlinked");
    cmd!(conn, "SET", "overwritten", "value");
    let dump = bytes(&cmd!(conn, "DUMP", "dumped"));
    cmd!(conn, "LOCK.RELEASE", "dumped", "dumped:0");
    cmd!(conn, "RESTORE", "dumped", 0, &dump[..], "REPLACE");
    cmd!(conn, "RESTORE", "restored", 0, &dump[..]);
    cmd!(conn, "SWAPDB", 0, 7);
    cmd!(conn, "LOCK.ACQUIRE", "onto", "after", 600_000);
    cmd!(conn, "SELECT", 5);
    cmd!(conn, "LOCK.ACQUIRE", "flushed", "a", 600_000);
    cmd!(conn, "FLUSHDB");
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE", "in a transaction", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "in a transaction", "a", 600_000);
    cmd!(conn, "LOCK.RLOCK", "in a transaction", "a", 600_000);
    cmd!(conn, "EXEC");
    let script = "for i = 1, 5 do redis.call('LOCK.RLOCK', KEYS[1], 'a' .. i, 600000) end \
                  return redis.call('LOCK.RELEASE', KEYS[1], 'a3')";
    cmd!(conn, "EVAL", script, 1, "in a script");

    let before = Snapshot::take(&server);
    assert_eq!(before.facts().len(), 10);
    revive(&mut server);
    Snapshot::take(&server).assert_continues(&before);
    cmd!(server.connect(), "BGREWRITEAOF");
    await_rewrite(&server);
    revive(&mut server);
    Snapshot::take(&server).assert_continues(&before);
}

#[test]
fn a_lock_restored_from_an_old_dump_keeps_the_lease_that_began_at_the_restore() {
    let mut server = appending();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let dump = bytes(&cmd!(conn, "DUMP", "key"));
    eventually("the dump is older than the restored lock's lease", || {
        hold_of(&mut conn, "key", "a").unwrap().held > 1_500
    });
    cmd!(conn, "RESTORE", "key", 0, dump, "REPLACE");
    let before = Snapshot::take(&server);
    revive(&mut server);
    Snapshot::take(&server).assert_no_lease_is_shorter(&before);
}

#[test]
fn a_restored_lock_keeps_its_lease_when_it_is_renamed_copied_or_swapped_in_the_same_turn() {
    let mut server = appending();
    let mut conn = server.connect();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK", "key", owner, 60_000);
    }
    cmd!(conn, "LOCK.ACQUIRE", "onto", "a", 60_000);
    let dump = bytes(&cmd!(conn, "DUMP", "key"));
    eventually("the dump is older than the restored locks' leases", || {
        hold_of(&mut conn, "key", "b").unwrap().held > 1_500
    });
    let restore = |key: &str| command!("RESTORE", key, 0, &dump[..], "REPLACE");
    let rename = |old: &str, new: &str| command!("RENAME", old, new);
    let ways = [
        vec![restore("one"), rename("one", "renamed")],
        vec![restore("two"), rename("two", "onto")],
        vec![restore("three"), command!("COPY", "three", "copied")],
        vec![restore("four"), command!("MOVE", "four", 3)],
        vec![
            command!("MULTI"),
            restore("five"),
            rename("five", "in a transaction"),
            command!("EXEC"),
        ],
        vec![
            restore("six"),
            command!("LOCK.RENEW", "six", "a", 1),
            rename("six", "renewed and renamed"),
        ],
        vec![
            restore("seven"),
            command!("COPY", "seven", "copied once"),
            rename("copied once", "copied and renamed"),
            rename("copied and renamed", "renamed again"),
        ],
        vec![
            restore("nine"),
            command!("LOCK.PASS", "nine", "a", "c", 60_000),
            rename("nine", "passed on and renamed"),
        ],
        vec![restore("key"), rename("key", "replaced and renamed")],
        vec![restore("ten"), command!("SWAPDB", 0, 8)],
        vec![
            restore("eight"),
            command!("SWAPDB", 0, 7),
            command!("SELECT", 7),
            rename("eight", "swapped and renamed"),
        ],
    ];
    for way in ways {
        for reply in conn.pipeline(&way) {
            reply.unwrap();
        }
    }
    let before = Snapshot::take(&server);
    assert_eq!(before.facts().len(), 13);
    revive(&mut server);
    Snapshot::take(&server).assert_no_lease_is_shorter(&before);
}

#[test]
fn holds_that_ended_before_the_end_of_the_file_do_not_come_back() {
    let mut server = appending();
    let mut conn = server.connect();
    for n in 0..20 {
        cmd!(conn, "LOCK.RLOCK", "read", format!("short:{n}"), 20 + n);
        cmd!(conn, "LOCK.ACQUIRE", format!("lock:{n}"), "a", 20 + n);
    }
    cmd!(conn, "LOCK.RLOCK", "read", "long", 600_000);
    eventually("the short leases have been swept", || {
        int(&cmd!(conn, "DBSIZE")) == 1 && server.gauge("holders") == 1
    });
    revive(&mut server);
    // At once, not only after another sweep.
    assert_eq!(int(&cmd!(server.connect(), "DBSIZE")), 1);
    assert_eq!(lock_info(&mut server.connect(), "read").unwrap().holders, 1);
}

/// The server's append-only files with commands or data, without the manifest.
fn files(server: &Server) -> Vec<PathBuf> {
    let dir = server.dir().join("appendonlydir");
    let files = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| !path.to_string_lossy().ends_with("manifest"))
        .collect();
    files.sort();
    files
}

#[test]
fn after_a_reboot_the_wall_clock_decides_how_much_of_a_lease_is_left() {
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .on_another_machine(ClockStep::Back(Duration::from_secs(3_600)))
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", preamble)
            .start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "rewritten", "a", 60_000);
        cmd!(conn, "LOCK.ACQUIRE", "short", "a", 300);
        cmd!(conn, "BGREWRITEAOF");
        await_rewrite(&server);
        cmd!(conn, "LOCK.ACQUIRE", "appended", "a", 60_000);
        let leases = |conn: &mut Conn| {
            ["rewritten", "appended"].map(|key| hold_of(conn, key, "a").unwrap().lease)
        };
        let asked = Instant::now();
        let before = leases(&mut conn);
        let answered = Instant::now();
        server.sigkill();
        server.reboot_machine();
        eventually("the short lease is over", || {
            answered.elapsed() > Duration::from_millis(400)
        });
        let revived = Instant::now();
        server.start_again();
        let mut conn = server.connect();
        for (before, after) in before.into_iter().zip(leases(&mut conn)) {
            let passed = before - after;
            let millis = |passed: Duration| passed.as_millis() as i64;
            // The test measures by another clock than the wall clock.
            let least = millis(revived.duration_since(answered)) - 20;
            let most = millis(asked.elapsed()) + 20;
            assert!((least..=most).contains(&passed), "{least} {passed} {most}");
        }
        assert_eq!(lock_info(&mut conn, "short"), None);
    }
}

#[test]
fn a_file_cut_anywhere_gives_the_state_after_some_command() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-load-truncated", "yes")
        .start();
    let mut conn = server.connect();
    let steps: [&[&str]; 11] = [
        &["LOCK.ACQUIRE", "key", "a", "600000"],
        &["LOCK.RLOCK", "key", "a", "600000"],
        &["LOCK.RELEASE", "key", "a", "WRITE"],
        &["LOCK.RLOCK", "key", "b", "600000"],
        &["LOCK.RLOCK", "other", "c", "600000", "HOLDS", "5"],
        &["LOCK.RELEASE", "key", "a"],
        &["LOCK.WLOCK", "key", "b", "600000"],
        &["RENAME", "key", "new"],
        &["COPY", "other", "key"],
        &["LOCK.RELEASE", "other", "c", "ALL"],
        &["LOCK.RELEASE", "new", "b", "ALL"],
    ];
    let mut states = vec![BTreeMap::new()];
    for step in steps {
        assert!(!is_nil(&conn.cmd(step)), "{step:?}");
        states.push(Snapshot::take(&server).facts());
    }
    server.sigkill();
    let file = files(&server).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let mut seen = 0;
    for tenth in 0..=20 {
        let len = whole.len() * tenth / 20;
        fs::write(&file, &whole[..len]).unwrap();
        server.start_again();
        let facts = Snapshot::take(&server).facts();
        let place = states[seen..].iter().position(|state| *state == facts);
        let place = place.unwrap_or_else(|| panic!("{len} bytes: {facts:?} was never so"));
        seen += place;
        server.sigkill();
    }
    assert_eq!(seen, steps.len(), "the whole file is the last state");
}

#[test]
fn a_rewrite_during_changes_loses_none_of_them() {
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .config("appendonly", "yes")
            .config("aof-use-rdb-preamble", preamble)
            .config("appendfsync", "no")
            .start();
        let mut conn = server.connect();
        for n in 0..6_000 {
            if n % 1_000 == 500 {
                await_rewrite(&server);
                cmd!(conn, "BGREWRITEAOF");
            }
            random_step(&mut conn, n);
        }
        await_rewrite(&server);
        await_short_leases(&server, &mut conn);
        let before = Snapshot::take(&server);
        assert!(before.facts().len() > 10);
        server.terminate();
        server.start_again();
        Snapshot::take(&server).assert_continues(&before);
    }
}

#[test]
fn an_append_only_file_enabled_during_changes_has_all_of_them() {
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .config("aof-use-rdb-preamble", preamble)
            .start();
        let mut conn = server.connect();
        let started = Instant::now();
        let mut n = 0;
        // Long enough that effects have no receiver for a while.
        while started.elapsed() < Duration::from_millis(2_500) {
            random_step(&mut conn, n);
            n += 1;
        }
        cmd!(conn, "CONFIG", "SET", "appendonly", "yes");
        for n in n..n + 2_000 {
            random_step(&mut conn, n);
        }
        await_rewrite(&server);
        await_short_leases(&server, &mut conn);
        let before = Snapshot::take(&server);
        server.set_config("appendonly", "yes");
        server.terminate();
        server.start_again();
        Snapshot::take(&server).assert_continues(&before);
    }
}

/// Waits until the leases of a millisecond are swept, so that none ends between two snapshots.
fn await_short_leases(server: &Server, conn: &mut Conn) {
    cmd!(conn, "LOCK.ACQUIRE", "witness", "w", 100);
    eventually("the witness is swept", || {
        int(&cmd!(conn, "EXISTS", "witness")) == 0
    });
    let facts = Snapshot::take(server).facts();
    assert_eq!(server.gauge("locks") as usize, facts.len());
}
