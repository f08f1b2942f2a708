//! What the append-only file restores: key-space commands, other boots, cut files, and rewrites during changes.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use mortise_harness::redis::Value;
use mortise_harness::{
    Bundles, ClockStep, Conn, Dice, Server, Snapshot, bytes, cmd, command, command_of, eventually,
    hold_of, int, is_nil, lock_info, try_cmd,
};

fn appending() -> Server {
    Server::builder().appending().start()
}

/// Power is lost and comes back.
fn revive(server: &mut Server) {
    server.sigkill();
    server.start_again();
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
    let keys = "renamed onto moved copied deleted unlinked overwritten dumped";
    for key in keys.split(' ') {
        for n in 0..3 {
            let holds = n + 1;
            cmd!(conn, "LOCK.RLOCK {key} {key}:{n} 600000 HOLDS {holds}");
        }
        cmd!(conn, "LOCK.REVOKE {key} {key}:2");
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
    server.rewrite();
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

#[test]
fn after_a_reboot_the_wall_clock_decides_how_much_of_a_lease_is_left() {
    for preamble in ["yes", "no"] {
        let mut server = Server::builder()
            .on_another_machine(ClockStep::Back(Duration::from_secs(3_600)))
            .appending()
            .config("aof-use-rdb-preamble", preamble)
            .start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "rewritten", "a", 60_000);
        cmd!(conn, "LOCK.ACQUIRE", "short", "a", 300);
        server.rewrite();
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

/// A change of one key, a pass and a grant of several keys are each in the file completely, or not at all.
#[test]
fn a_file_cut_anywhere_gives_the_state_after_some_command() {
    let builder = Server::builder().appending();
    let mut server = builder.config("aof-load-truncated", "yes").start();
    let mut conn = server.connect();
    let steps = [
        "LOCK.ACQUIRE key a 600000",
        "LOCK.RLOCK key a 600000",
        "LOCK.RELEASE key a WRITE",
        "LOCK.RLOCK key b 600000",
        "LOCK.PASS key a c 700000",
        "LOCK.RLOCK other c 600000 HOLDS 5",
        "LOCK.RELEASE key c",
        "LOCK.WLOCK key b 600000",
        "RENAME key new",
        "COPY other key",
        "LOCK.RELEASE other c ALL",
        "LOCK.MACQUIRE m 600000 3 {k}a {k}b {k}c",
        "LOCK.RELEASE {k}a m",
        "LOCK.RELEASE {k}b m",
    ];
    let mut states = vec![BTreeMap::new()];
    for step in steps {
        assert!(!is_nil(&conn.run(&command_of(step))), "{step}");
        states.push(Snapshot::take(&server).facts());
    }
    // The last release grants all three from the queues.
    let ask = "LOCK.MACQUIRE q 600000 3 {k}a {k}b {k}c WAIT 0";
    let mut waiter = server.waiter(&command_of(ask));
    cmd!(conn, "LOCK.RELEASE {{k}}c m");
    int(&waiter.recv());
    let last = Snapshot::take(&server).facts();
    let mut released = last.clone();
    released.retain(|(_, key), _| !key.starts_with(b"{k}"));
    states.extend([released, last]);
    server.sigkill();
    let file = server.append_only_file();
    let whole = fs::read(&file).unwrap();
    let mut seen = 0;
    for len in (0..whole.len()).step_by(23).chain([whole.len()]) {
        fs::write(&file, &whole[..len]).unwrap();
        server.start_again();
        let facts = Snapshot::take(&server).facts();
        let place = states[seen..].iter().position(|state| *state == facts);
        let place = place.unwrap_or_else(|| panic!("{len} bytes: {facts:?} was never so"));
        seen += place;
        server.sigkill();
    }
    assert_eq!(seen, states.len() - 1, "the whole file is the last state");
}

#[test]
fn a_server_killed_while_clients_contend_restores_no_part_of_a_grant_of_several_keys() {
    let mut server = appending();
    for _ in 0..3 {
        let bundles = Bundles::start(server.port(), 16);
        eventually("the clients are at work", || bundles.grants() > 100);
        server.sigkill();
        drop(bundles);
        server.start_again();
        let mut conn = server.connect();
        Bundles::assert_whole(&mut conn);
        cmd!(conn, "FLUSHALL");
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
        server.await_rewrite();
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
