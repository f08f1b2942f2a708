//! Files that each format there has been was written to: every later version of the module loads them.
//!
//! They lie in `golden/v1` and so on; `golden/README.md` says how they were made. The server's wall clock is set to a time
//! that is counted from theirs, so no test depends on today's date.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_harness::{
    Builder, ClockStep, Conn, Envelope, Hold, Server, Shutdown, bytes, cmd, eventually, granted,
    int, is_nil, lock_info, text, waiter, wall_micros,
};

/// What the wall clock of the server that wrote the files showed when it started: the first second of 2026.
const MADE_AT: i64 = 1_767_225_600_000_000;
/// The last token it had given out, to a lock that was released: only the token clock knows it. Half an hour ahead.
const LAST: i64 = MADE_AT + 1_800_000_000;
/// Stands where that machine's boot id stood.
const ANOTHER_BOOT: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
/// Stands where that machine's own id stood, in formats that tell it.
const ANOTHER_MACHINE: [u8; 8] = *b"\x10\x11\x12\x13\x14\x15\x16\x17";
const HOUR: i64 = 3_600_000;
const MINUTE: i64 = 60_000;
/// How long a server may take from its start to the files, and to the answer, in milliseconds.
const SLACK: i64 = MINUTE;

/// The token that a lock was made with: two minutes ahead of the clock, so that `FENCE` says exactly which.
const fn token(number: i64) -> i64 {
    MADE_AT + 120_000_000 + number
}

/// Database, key and mode of a lock.
type Name = (u32, &'static [u8], &'static str);
/// Owner, write count, read count, number of the token, lease in milliseconds.
type Stake = (&'static [u8], i64, i64, i64, i64);

const MOST: i64 = i32::MAX as i64;

/// All locks in the files.
const LOCKS: [(Name, &[Stake]); 11] = [
    ((0, b"once", "write"), &[(b"a", 1, 0, 1, HOUR)]),
    ((0, b"counted", "write"), &[(b"a", 7, 0, 2, 2 * HOUR)]),
    ((0, b"both", "write"), &[(b"a", 2, 3, 3, 3 * HOUR)]),
    ((0, b"most", "write"), &[(b"a", MOST, MOST, 4, 4 * HOUR)]),
    (
        (0, b"read", "read"),
        &[
            (b"r1", 0, 1, 5, HOUR),
            (b"r2", 0, 2, 6, 2 * HOUR),
            (b"r300", 0, 300, 7, 20 * HOUR),
        ],
    ),
    ((0, b"upgraded", "write"), &[(b"a", 1, 1, 10, HOUR)]),
    ((0, b"downgraded", "read"), &[(b"a", 0, 1, 11, HOUR)]),
    (
        (0, b"fenced and renewed", "read"),
        &[(b"a", 0, 1, 13, 23 * HOUR)],
    ),
    ((0, b"handed on", "write"), &[(b"b", 1, 0, 15, HOUR)]),
    (
        (9, b"odd\0\r\n\xff", "write"),
        &[(&[0xff; 255], 1, 0, 16, HOUR)],
    ),
    // Over when ten minutes have passed, within the slack.
    ((9, b"short", "write"), &[(b"a", 1, 0, 17, MINUTE)]),
];

/// Brings the locks about; `halfway` is done between the two halves.
fn make_history(server: &Server, halfway: impl FnOnce()) {
    let mut conn = server.connect();
    let hour = HOUR;
    cmd!(conn, "LOCK.ACQUIRE", "once", "a", hour, "FENCE", token(1));
    let take = |conn: &mut Conn, mode: &str, key: &str, owner: &str, holds, number, lease| {
        let taken = cmd!(
            conn,
            mode,
            key,
            owner,
            lease,
            "HOLDS",
            holds,
            "FENCE",
            token(number)
        );
        assert_eq!(int(&taken), token(number), "{key}");
    };
    take(&mut conn, "LOCK.WLOCK", "counted", "a", 7, 2, 2 * hour);
    take(&mut conn, "LOCK.WLOCK", "both", "a", 2, 3, 3 * hour);
    cmd!(conn, "LOCK.RLOCK", "both", "a", 1, "HOLDS", 3);
    take(&mut conn, "LOCK.WLOCK", "most", "a", MOST, 4, 4 * hour);
    cmd!(conn, "LOCK.RLOCK", "most", "a", 1, "HOLDS", MOST);
    take(&mut conn, "LOCK.RLOCK", "read", "r1", 1, 5, hour);
    take(&mut conn, "LOCK.RLOCK", "read", "r2", 2, 6, 2 * hour);
    halfway();
    take(&mut conn, "LOCK.RLOCK", "read", "r300", 300, 7, 20 * hour);
    take(&mut conn, "LOCK.RLOCK", "read", "gone", 1, 8, hour);
    cmd!(conn, "LOCK.RELEASE", "read", "gone");
    take(&mut conn, "LOCK.RLOCK", "upgraded", "a", 1, 9, hour);
    take(&mut conn, "LOCK.WLOCK", "upgraded", "a", 1, 10, hour);
    take(&mut conn, "LOCK.WLOCK", "downgraded", "a", 1, 11, hour);
    cmd!(conn, "LOCK.RLOCK", "downgraded", "a", 1);
    cmd!(conn, "LOCK.RELEASE", "downgraded", "a", "WRITE");
    take(
        &mut conn,
        "LOCK.RLOCK",
        "fenced and renewed",
        "a",
        1,
        12,
        hour,
    );
    cmd!(conn, "LOCK.FENCE", "fenced and renewed", "a", token(13));
    cmd!(conn, "LOCK.RENEW", "fenced and renewed", "a", 23 * hour);
    take(&mut conn, "LOCK.WLOCK", "handed on", "a", 1, 14, hour);
    let mut b = waiter!(
        server,
        "LOCK.ACQUIRE",
        "handed on",
        "b",
        hour,
        "WAIT",
        0,
        "FENCE",
        token(15)
    );
    cmd!(conn, "LOCK.RELEASE", "handed on", "a");
    assert_eq!(granted(&mut b), token(15));
    cmd!(conn, "SELECT", 9);
    let (odd, owner) = (&b"odd\0\r\n\xff"[..], vec![0xff_u8; 255]);
    cmd!(conn, "LOCK.ACQUIRE", odd, owner, hour, "FENCE", token(16));
    cmd!(
        conn,
        "LOCK.ACQUIRE",
        "short",
        "a",
        MINUTE,
        "FENCE",
        token(17)
    );
    cmd!(conn, "SET", "unrelated", "value");
    cmd!(conn, "LOCK.ACQUIRE", "released", "a", 1_000, "FENCE", LAST);
    cmd!(conn, "LOCK.RELEASE", "released", "a");
}

/// Files of one format, and what is done to them before they are loaded.
#[derive(Debug, Clone, Copy)]
struct Format {
    folder: &'static str,
    /// They say that they were written on the machine on which they are loaded.
    same_machine: bool,
}

/// Their leases have run on while nobody looked. The first format does not tell the machine.
const OF_THIS_MACHINE: [Format; 2] = [
    Format {
        folder: "v1",
        same_machine: false,
    },
    Format {
        folder: "v2",
        same_machine: true,
    },
];
/// Whose clock may show any time.
const OF_ANOTHER_MACHINE: Format = Format {
    folder: "v2",
    same_machine: false,
};

/// The folder of a format's files.
fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder)
}

/// A server whose wall clock shows the time that was `later` milliseconds after the files were made.
fn at(later: i64) -> Builder {
    let micros = wall_micros() - (MADE_AT + 1_000 * later);
    let step = Duration::from_micros(micros.unsigned_abs());
    let builder = Server::builder().on_another_machine(if micros > 0 {
        ClockStep::Back(step)
    } else {
        ClockStep::Forward(step)
    });
    // What it dumps is looked into.
    builder.config("rdbcompression", "no")
}

/// The ways to load the files, each with a name for messages.
const WAYS: [(&str, Load); 2] = [("RDB", from_rdb), ("AOF", from_aof)];

/// Starts a server with the files when a time, in milliseconds, has passed since they were made.
type Load = fn(Format, i64) -> Server;

fn from_rdb(format: Format, later: i64) -> Server {
    let mut server = at(later).start();
    let here = Ids::of(&server);
    server.sigkill();
    let file = server.dir().join("dump.rdb");
    fs::copy(golden(format.folder).join("dump.rdb"), &file).unwrap();
    format.put_machine(here, &file);
    server.start_again();
    server
}

fn from_aof(format: Format, later: i64) -> Server {
    let mut server = at(later).config("appendonly", "yes").start();
    let here = Ids::of(&server);
    server.sigkill();
    let dir = server.dir().join("appendonlydir");
    fs::remove_dir_all(&dir).unwrap();
    copy_all(&golden(format.folder).join("appendonlydir"), &dir);
    for entry in fs::read_dir(dir).unwrap() {
        format.put_machine(here, &entry.unwrap().path());
    }
    server.start_again();
    server
}

impl Format {
    fn put_machine(self, here: Ids, file: &Path) {
        if self.same_machine {
            let mut bytes = fs::read(file).unwrap();
            replace_all(&mut bytes, &ANOTHER_MACHINE, &here.machine);
            fs::write(file, bytes).unwrap();
        }
    }
}

/// What a server writes down to say where it is.
#[derive(Debug, Clone, Copy)]
struct Ids {
    boot: [u8; 16],
    machine: [u8; 8],
}

impl Ids {
    /// Looks at how `server` dumps a lock: a version, the boot, the machine.
    fn of(server: &Server) -> Ids {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "ids", "a", 1_000);
        let body = Envelope::open(&bytes(&cmd!(conn, "DUMP", "ids")));
        cmd!(conn, "LOCK.RELEASE", "ids", "a");
        let ids = Ids {
            boot: body[1..17].try_into().unwrap(),
            machine: body[17..25].try_into().unwrap(),
        };
        assert_ne!(ids.machine, [0; 8], "it is told");
        ids
    }
}

fn replace_all(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    for at in 0..bytes.len().saturating_sub(old.len() - 1) {
        if bytes[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new);
        }
    }
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Fails unless `hold` is `stake`, `passed` milliseconds after it was written.
#[track_caller]
fn assert_is(hold: &Hold, stake: &Stake, passed: i64) {
    let (owner, write, read, number, lease) = *stake;
    assert_eq!(hold.facts(), (owner.to_vec(), write, read, token(number)));
    // The files were written a moment after the clock began, and are looked at a moment after the server was started.
    let near = |time: i64| time - SLACK..=time + SLACK;
    let left = near(lease - passed).contains(&hold.lease) && hold.lease <= lease;
    assert!(left, "{hold:?} of {lease} ms, {passed} ms later");
    assert!(
        near(passed).contains(&hold.held),
        "{hold:?}, {passed} ms later"
    );
}

/// Fails unless the server has the locks of the files whose leases go on for more than `passed` milliseconds, and no
/// others.
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
        }
    }
    cmd!(conn, "SELECT", 9);
    assert_eq!(text(&cmd!(conn, "GET", "unrelated")), "value");
}

/// Fails unless the next token is past the last one in the files, a minute ahead for what may have been lost.
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

/// Calls `test` for every format and way, with files of the machine that loads them.
fn of_this_machine(test: impl Fn(&dyn Fn(i64) -> Server)) {
    for format in OF_THIS_MACHINE {
        for (way, load) in WAYS {
            eprintln!("from {way}, {format:?}");
            test(&|later| load(format, later));
        }
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
fn files_of_every_version_give_every_hold_with_what_is_left_of_its_lease() {
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
fn files_of_another_machine_give_every_hold_with_the_lease_that_was_left_when_they_were_written() {
    for (way, load) in WAYS {
        for later in [-HOUR, 10 * MINUTE, 24 * HOUR] {
            eprintln!("from {way}, {later} ms later");
            let server = load(OF_ANOTHER_MACHINE, later);
            assert_has_them(&server, 0);
            assert_locks_like_any_others(&server);
        }
    }
}

#[test]
fn files_never_give_more_than_was_left_though_the_clock_shows_an_earlier_time() {
    of_this_machine(|load| {
        let server = load(-HOUR);
        assert_has_them(&server, 0);
        assert_tokens_go_on(&server);
    });
}

#[test]
fn leases_that_are_over_hold_nothing() {
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
fn payloads_of_every_version_are_restored_with_leases_that_begin_anew() {
    for folder in ["v1", "v2"] {
        let server = at(HOUR).start();
        let mut conn = server.connect();
        for ((_, key, mode), stakes) in [LOCKS[2], LOCKS[4]] {
            let name = str::from_utf8(key).unwrap();
            let dump = fs::read(golden(folder).join(format!("{name}.dump"))).unwrap();
            cmd!(conn, "RESTORE", key, 0, dump);
            let info = lock_info(&mut conn, key).unwrap();
            assert_eq!((info.mode.as_str(), info.holds.len()), (mode, stakes.len()));
            for (hold, stake) in info.holds.iter().zip(stakes) {
                assert_is(hold, stake, 0);
            }
        }
        // The clock that they carry is that of their server, and is behind by now.
        let token = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "a", 1_000));
        assert!(token >= MADE_AT + 3_600_000_000, "{token}");
    }
}

/// Writes the files of the version that the module is of now into `target/golden`, to be looked at and copied.
#[test]
#[ignore = "makes files for a new version; those that are kept are not made again"]
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

impl Ids {
    fn forget_in(self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        self.forget(&mut bytes);
        fs::write(file, bytes).unwrap();
    }

    /// Puts other ids in the place of these.
    fn forget(self, bytes: &mut [u8]) {
        replace_all(bytes, &self.boot, &ANOTHER_BOOT);
        replace_all(bytes, &self.machine, &ANOTHER_MACHINE);
    }
}
