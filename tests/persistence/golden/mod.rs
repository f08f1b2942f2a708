//! Files of the format: every version of the module loads them.
//!
//! They are in `v1`; `README.md` says how they were made. The tests set the server's wall clock relative to
//! the time of the files, so none depends on today's date.

mod files;
mod history;

use std::fs;
use std::path::Path;

use mortise_harness::{
    Builder, Envelope, Hold, Server, Shutdown, bytes, cmd, eventually, int, is_nil, lock_info, text,
};

use files::{Ids, WAYS, Writer, at, copy_all, golden};
use history::{HOUR, LAST, LOCKS, MADE_AT, MINUTE, REVOKED, Stake, make_history, token};

/// How long a server may take to load the files, and to reply, in milliseconds.
const SLACK: i64 = MINUTE;

/// Fails unless `hold` is `stake`, `passed` milliseconds after it was written.
#[track_caller]
fn assert_is(hold: &Hold, stake: &Stake, passed: i64) {
    let (owner, write, read, number, lease) = *stake;
    assert_eq!(hold.facts(), (owner.to_vec(), write, read, token(number)));
    // The files were written a moment after the clock started, and are loaded a moment after the server starts.
    let near = |time: i64| time - SLACK..=time + SLACK;
    let left = near(lease - passed).contains(&hold.lease) && hold.lease <= lease;
    assert!(left, "{hold:?} of {lease} ms, {passed} ms later");
    assert!(
        near(passed).contains(&hold.held),
        "{hold:?}, {passed} ms later"
    );
}

/// Fails unless the server has exactly the locks of the files whose leases are longer than `passed` milliseconds.
#[track_caller]
fn assert_has_them(server: &Server, passed: i64) {
    let mut conn = server.connect();
    for ((db, key, mode), stakes) in LOCKS {
        cmd!(conn, "SELECT", db);
        let info = lock_info(&mut conn, key);
        let alive: Vec<&Stake> = stakes.iter().filter(|stake| stake.4 > passed).collect();
        let Some(info) = info else {
            assert!(alive.is_empty(), "{} is not there", key.escape_ascii());
            continue;
        };
        assert_eq!(info.mode, mode);
        assert_eq!(info.holds.len(), alive.len(), "{info:?}");
        for (hold, stake) in info.holds.iter().zip(alive) {
            assert_is(hold, stake, passed);
            let revoked = REVOKED.contains(&(key, stake.0));
            assert_eq!(hold.revoked, revoked, "{hold:?}");
        }
    }
    cmd!(conn, "SELECT", 9);
    assert_eq!(text(&cmd!(conn, "GET", "unrelated")), "value");
}

/// Fails unless the next token exceeds the last one in the files by a minute, for tokens that may have been lost.
#[track_caller]
fn assert_tokens_go_on(server: &Server) {
    let mut conn = server.connect();
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "a", 1_000));
    let bound = LAST + 60_000_000;
    assert!(
        (bound..bound + 1_000).contains(&next),
        "{next}, not past {bound}"
    );
    cmd!(conn, "LOCK.RELEASE", "new", "a");
}

/// Calls `test` for each way to load, with files of the loading machine.
fn of_this_machine(test: impl Fn(&dyn Fn(i64) -> Server)) {
    for (way, load) in WAYS {
        eprintln!("from {way}");
        test(&|later| load(Writer::ThisMachine, later));
    }
}

#[track_caller]
fn assert_locks_like_any_others(server: &Server) {
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "both", "b", 1_000)));
    let renewed = cmd!(conn, "LOCK.RENEW", "both", "a", 5 * HOUR, "TOKEN", token(3));
    assert_eq!(int(&renewed), token(3));
    for key in ["both", "most", "counted"] {
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", key, "a", "ALL")), 0);
        assert_eq!(int(&cmd!(conn, "EXISTS", key)), 0);
    }
}

#[test]
fn files_restore_every_hold_with_the_rest_of_its_lease() {
    let later = 10 * MINUTE;
    of_this_machine(|load| {
        let server = load(later);
        assert_has_them(&server, later);
        assert_tokens_go_on(&server);
        eventually("the short lease is swept", || server.gauge("locks") == 10);
        assert_locks_like_any_others(&server);
    });
}

#[test]
fn files_of_another_machine_restore_every_hold_with_the_lease_left_when_they_were_written() {
    for (way, load) in WAYS {
        for later in [-HOUR, 10 * MINUTE, 24 * HOUR] {
            eprintln!("from {way}, {later} ms later");
            let server = load(Writer::AnotherMachine, later);
            assert_has_them(&server, 0);
            assert_locks_like_any_others(&server);
        }
    }
}

#[test]
fn files_never_restore_more_than_was_left_though_the_clock_shows_an_earlier_time() {
    of_this_machine(|load| {
        let server = load(-HOUR);
        assert_has_them(&server, 0);
        assert_tokens_go_on(&server);
    });
}

#[test]
fn ended_leases_in_files_hold_nothing() {
    of_this_machine(|load| {
        let server = load(24 * HOUR);
        assert_has_them(&server, 24 * HOUR);
        eventually("all locks are swept", || {
            server.gauge("locks") == 0 && int(&cmd!(server.connect(), "DBSIZE")) == 0
        });
        // By now the wall clock is ahead of the token clock.
        let token = int(&cmd!(server.connect(), "LOCK.ACQUIRE", "new", "a", 1_000));
        assert!(token >= MADE_AT + 24 * 3_600_000_000, "{token}");
    });
}

#[test]
fn payloads_are_restored_with_fresh_leases() {
    let server = at(HOUR).start();
    let mut conn = server.connect();
    for ((_, key, mode), stakes) in [LOCKS[2], LOCKS[4]] {
        let name = str::from_utf8(key).unwrap();
        let dump = fs::read(golden().join(format!("{name}.dump"))).unwrap();
        cmd!(conn, "RESTORE", key, 0, dump);
        let info = lock_info(&mut conn, key).unwrap();
        assert_eq!((info.mode.as_str(), info.holds.len()), (mode, stakes.len()));
        for (hold, stake) in info.holds.iter().zip(stakes) {
            assert_is(hold, stake, 0);
            let revoked = REVOKED.contains(&(key, stake.0));
            assert_eq!(hold.revoked, revoked, "{hold:?}");
        }
    }
    // Their token clock is that of their server, which is behind by now.
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "a", 1_000));
    assert!(token >= MADE_AT + 3_600_000_000, "{token}");
}

/// Writes the files of the module's present format into `target/golden`, to be checked and copied.
#[test]
#[ignore = "makes files for a new format; existing ones are not made again"]
fn write_the_files() {
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/golden");
    let readable = |builder: Builder| builder.config("rdbchecksum", "no").start();
    let mut server = readable(at(0));
    let ids = Ids::of(&server);
    make_history(&server, || {});
    let mut conn = server.connect();
    fs::create_dir_all(&out).unwrap();
    for key in ["both", "read"] {
        let dump = bytes(&cmd!(conn, "DUMP", key));
        let mut body = Envelope::open(&dump);
        ids.forget(&mut body);
        fs::write(
            out.join(format!("{key}.dump")),
            Envelope::of(&dump).around(&body),
        )
        .unwrap();
    }
    server.shutdown(Shutdown::Save);
    fs::copy(server.dir().join("dump.rdb"), out.join("dump.rdb")).unwrap();
    ids.forget_in(&out.join("dump.rdb"));

    let mut server = readable(
        at(0)
            .config("appendonly", "yes")
            .config("appendfsync", "always")
            .config("aof-use-rdb-preamble", "no"),
    );
    let ids = Ids::of(&server);
    make_history(&server, || {
        cmd!(server.connect(), "BGREWRITEAOF");
        eventually("the rewrite is done", || {
            let state = server.info("persistence");
            state["aof_rewrite_in_progress"] == "0" && state["aof_rewrite_scheduled"] == "0"
        });
    });
    server.terminate();
    let dir = out.join("appendonlydir");
    copy_all(&server.dir().join("appendonlydir"), &dir);
    for entry in fs::read_dir(dir).unwrap() {
        ids.forget_in(&entry.unwrap().path());
    }
}
