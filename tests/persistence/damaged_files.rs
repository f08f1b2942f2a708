//! Damaged files, and files of a newer format: the server logs what it cannot read, and does not crash.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use mortise_harness::{Dice, Server, Shutdown, Snapshot, boot_id, cmd, int, is_nil, lock_info};

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
    assert_eq!(
        good[write_count..][..2],
        [7, 0],
        "the counts follow the owner"
    );
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
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "before", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "key", OWNER, 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "after", "a", 600_000);
    server.sigkill();
    let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut bytes = fs::read(&file).unwrap();
    let owner = find(&bytes, OWNER);
    // The format's number is the first byte after the effect's length.
    let start = find(&bytes[..owner], b"\r\n\x01") + 2;
    bytes[start] = 9;
    fs::write(&file, bytes).unwrap();
    server.start_again();
    let log = server.log();
    let said = log.lines().find(|line| line.contains("CRITICAL"));
    assert!(
        said.is_some_and(|line| line.contains("newer version")),
        "{log}"
    );
    let mut conn = server.connect();
    assert!(lock_info(&mut conn, "before").is_some());
    assert!(lock_info(&mut conn, "after").is_some());
}

/// The positions of the effects in the bytes of an append-only file.
fn effects(file: &[u8]) -> Vec<Range<usize>> {
    const COMMAND: &[u8] = b"LOCK.APPLY\r\n";
    // Two words follow, the key and the effect: each is `$length`, a line end, the bytes and a line end.
    let word = |at: usize| {
        let end = at
            + file[at..]
                .windows(2)
                .position(|two| two == b"\r\n")
                .expect("a length");
        let len: usize = str::from_utf8(&file[at + 1..end]).unwrap().parse().unwrap();
        end + 2..end + 2 + len
    };
    let commands = file.windows(COMMAND.len()).enumerate();
    let starts = commands.filter(|(_, bytes)| *bytes == COMMAND);
    starts
        .map(|(at, _)| word(word(at + COMMAND.len()).end + 2))
        .collect()
}

#[test]
fn an_append_only_file_whose_effects_are_damaged_at_random_gives_sound_locks() {
    let mut server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let mut conn = server.connect();
    for n in 0..10 {
        let (key, owner) = (format!("key:{}", n % 3), format!("owner:{n}"));
        cmd!(conn, "LOCK.RLOCK", &key, &owner, 600_000, "HOLDS", 1 + n);
        cmd!(conn, "LOCK.WLOCK", &key, &owner, 600_000);
        cmd!(
            conn,
            "LOCK.RELEASE",
            &key,
            format!("owner:{}", n / 2),
            "ALL"
        );
    }
    server.sigkill();
    let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let good = fs::read(&file).unwrap();
    let places = effects(&good);
    assert!(places.len() > 10, "{places:?}");
    let mut dice = Dice::new(4);
    for _ in 0..40 {
        let mut bad = good.clone();
        for _ in 0..=dice.roll(6) {
            let place = dice.pick(&places).clone();
            let at = place.start + dice.roll(place.len() as u64) as usize;
            bad[at] ^= 1 << dice.roll(8);
        }
        fs::write(&file, &bad).unwrap();
        server.start_again();
        let mut conn = server.connect();
        for key in (0..3).map(|n| format!("key:{n}")) {
            let Some(lock) = lock_info(&mut conn, &key) else {
                continue;
            };
            let writers = lock.holds.iter().filter(|hold| hold.write > 0).count();
            assert!(writers == 0 || lock.holds.len() == 1, "{lock:?}");
            for hold in &lock.holds {
                assert!(hold.write + hold.read > 0, "{lock:?}");
                let released = cmd!(conn, "LOCK.RELEASE", &key, &hold.owner, "ALL");
                // Null if damage has left it a lease of a few milliseconds.
                assert!(is_nil(&released) || int(&released) == 0, "{lock:?}");
            }
        }
        server.sigkill();
    }
    assert!(server.log().contains("CRITICAL"), "some were refused");
}
