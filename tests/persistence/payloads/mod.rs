//! RESTORE of bytes that no DUMP made: refused completely, without harm, or a lock like any other.

mod payload;

use mortise_harness::{
    Conn, Envelope, Server, boot_id, bytes, cmd, hold_of, int, is_nil, lock_info, text,
    wait_for_sync, wall_micros,
};

use payload::{Hold, Payload};

const HOUR: i64 = 3_600_000_000;
/// The longest lease that can be configured, in milliseconds. A payload may have a longer one, within limits.
const TEN_YEARS: i64 = 10 * 365 * 86_400_000;
const PAST_THE_LAST_TOKEN: u64 = 1 << 53;
/// The length of the server's footer of a payload.
const VERSION_AND_CHECKSUM: usize = 2 + 8;

struct Scene {
    server: Server,
    conn: Conn,
    envelope: Envelope,
    digest: String,
}

impl Scene {
    /// A server with a lock and the envelope of its dumps.
    fn set_up() -> Scene {
        let server = Server::builder().config("rdbcompression", "no").start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.RLOCK", "held", "a", 600_000);
        cmd!(conn, "LOCK.RLOCK", "held", "b", 600_000);
        let dump = bytes(&cmd!(conn, "DUMP", "held"));
        let envelope = Envelope::of(&dump);
        let again = envelope.around(&Envelope::open(&dump));
        assert_eq!(again, dump, "as the server makes it");
        let digest = text(&cmd!(conn, "DEBUG", "DIGEST"));
        Scene {
            server,
            conn,
            envelope,
            digest,
        }
    }

    /// Fails unless the dump is refused, under a new name and over a lock, and nothing has changed.
    #[track_caller]
    fn assert_refused(&mut self, dump: &[u8], what: &str) {
        for words in [
            [&b"RESTORE"[..], b"new", b"0", dump].as_slice(),
            &[b"RESTORE", b"held", b"0", dump, b"REPLACE"],
        ] {
            match self.conn.try_cmd(words) {
                Ok(reply) => panic!("{what}: {reply:?}"),
                Err(error) => assert!(error.starts_with("ERR "), "{what}: {error}"),
            }
        }
        let digest = text(&cmd!(self.conn, "DEBUG", "DIGEST"));
        assert_eq!(digest, self.digest, "{what}");
    }

    #[track_caller]
    fn restore(&mut self, payload: &Payload) {
        let dump = self.envelope.around(&payload.body());
        cmd!(self.conn, "RESTORE", "new", 0, dump, "REPLACE");
    }
}

/// A replica cannot know whether a payload is its primary's, so it refuses none for its token.
#[test]
fn a_payload_restored_on_a_writable_replica_cannot_use_up_tokens() {
    let scene = Scene::set_up();
    let replica = Server::builder()
        .replica_of(&scene.server)
        .config("replica-read-only", "no")
        .start();
    wait_for_sync(&scene.server, &replica);
    let highest = Payload::of(vec![
        Hold::writer("w").but(|hold| hold.token = PAST_THE_LAST_TOKEN - 1),
    ]);
    let dump = scene.envelope.around(&highest.body());
    cmd!(replica.connect(), "RESTORE", "new", 0, dump);
    assert!(replica.gauge("last_token") <= wall_micros() + HOUR);
    assert!(replica.gauge("last_token") >= scene.server.gauge("last_token"));
}

#[test]
fn a_payload_made_by_hand_is_restored_as_the_lock_it_describes() {
    let mut scene = Scene::set_up();
    scene.restore(&Payload::of(vec![Hold::writer("w").but(|hold| {
        (hold.write, hold.read, hold.token) = (3, 2, 4_321);
    })]));
    let lock = lock_info(&mut scene.conn, "new").unwrap();
    assert_eq!(lock.mode, "write");
    assert_eq!(lock.facts(), [(b"w".to_vec(), 3, 2, 4_321)]);
    assert!((30_000..=60_000).contains(&lock.holds[0].lease));
    assert!((10..30_000).contains(&lock.holds[0].held));
    assert_eq!(lock.holds[0].client, 0);

    for (mark, revoked) in [(0, false), (1, true)] {
        let marked = Hold::writer("new").but(|hold| hold.mark = mark);
        scene.restore(&Payload::of(vec![marked]));
        let hold = hold_of(&mut scene.conn, "new", "new").unwrap();
        assert_eq!(hold.revoked, revoked);
    }

    let most = i32::MAX as u64;
    let many = Hold::reader("r").but(|hold| hold.read = most);
    scene.restore(&Payload::of(vec![Hold::reader("q"), many]));
    let lock = lock_info(&mut scene.conn, "new").unwrap();
    assert_eq!(lock.mode, "read");
    let r = (b"r".to_vec(), 0, most as i64, 4_000);
    assert_eq!(lock.facts(), [(b"q".to_vec(), 0, 1, 4_000), r]);
}

#[test]
fn the_lease_of_a_restored_hold_begins_anew_on_any_clock() {
    let mut scene = Scene::set_up();
    for boot_id in [*b"0123456789abcdef", boot_id()] {
        for boot_ms in [0, 1_000, 1 << 53] {
            for wall_ms in [0, 1_700_000_000_000, 1 << 53] {
                scene.restore(&Payload::of(vec![Hold::writer("w")]).but(|payload| {
                    (payload.boot_id, payload.boot_ms, payload.wall_ms) =
                        (boot_id, boot_ms, wall_ms);
                }));
                let hold = hold_of(&mut scene.conn, "new", "w").expect("it has just begun");
                assert!((30_000..=60_000).contains(&hold.lease), "{hold:?}");
            }
        }
    }
}

#[test]
fn a_restored_lease_that_has_ended_holds_nothing() {
    let mut scene = Scene::set_up();
    scene.restore(&Payload::of(vec![
        Hold::reader("long"),
        Hold::reader("over").but(|hold| hold.left = 0),
    ]));
    let lock = lock_info(&mut scene.conn, "new").unwrap();
    assert_eq!((lock.holders, &lock.holds[0].owner[..]), (1, &b"long"[..]));
    scene.restore(&Payload::of(vec![
        Hold::writer("over").but(|hold| hold.left = 0),
    ]));
    assert_eq!(lock_info(&mut scene.conn, "new"), None);
    assert!(!is_nil(&cmd!(scene.conn, "LOCK.ACQUIRE new next 60000")));
}

#[test]
fn the_longest_times_are_restored_without_overflow() {
    let mut scene = Scene::set_up();
    scene.restore(&Payload::of(vec![Hold::writer("w").but(|hold| {
        (hold.left, hold.held) = (1 << 53, 1 << 53);
    })]));
    let hold = hold_of(&mut scene.conn, "new", "w").unwrap();
    assert!(hold.lease > TEN_YEARS, "{hold:?}");
    cmd!(scene.conn, "LOCK.RENEW", "new", "w", 1_000);
    cmd!(scene.conn, "LOCK.ACQUIRE", "new", "w", 1_000);
    cmd!(scene.conn, "DEBUG", "RELOAD");
    assert!(hold_of(&mut scene.conn, "new", "w").unwrap().lease > TEN_YEARS);
    assert_eq!(int(&cmd!(scene.conn, "LOCK.RELEASE", "new", "w", "ALL")), 0);
}

/// Faults of each kind; `core/tests/rules/codec` has all of them.
#[test]
fn well_formed_nonsense_is_refused_and_changes_nothing() {
    let mut scene = Scene::set_up();
    let (r, w) = (Hold::reader, Hold::writer);
    let good = || Payload::of(vec![r("a"), r("b")]);
    let with = |change: fn(&mut Hold)| Payload::of(vec![w("a").but(change)]);
    let faults = [
        ("a newer format", good().but(|p| p.format = 2)),
        ("more said", good().but(|p| p.said = 3)),
        ("something behind", good().but(|p| p.tail = vec![0])),
        ("a wall time", good().but(|p| p.wall_ms = u64::MAX)),
        ("a last token", good().but(|p| p.last = PAST_THE_LAST_TOKEN)),
        ("no owner", with(|hold| hold.owner.clear())),
        ("no counts", with(|hold| hold.write = 0)),
        ("a mark that is neither", with(|hold| hold.mark = 2)),
        ("a token ahead", with(|hold| hold.token = ahead())),
        (
            "a writer beside a reader",
            Payload::of(vec![w("a"), r("b")]),
        ),
        ("owners in disorder", Payload::of(vec![r("b"), r("a")])),
    ];
    for (what, payload) in faults {
        let dump = scene.envelope.around(&payload.body());
        scene.assert_refused(&dump, what);
    }
    assert!(scene.server.log().contains("refused"), "the log says why");
}

/// A token that is further ahead than a client may push the clock.
fn ahead() -> u64 {
    (wall_micros() + HOUR + HOUR / 60) as u64
}

#[test]
fn a_payload_with_a_wrong_envelope_is_refused() {
    let mut scene = Scene::set_up();
    let body = Payload::of(vec![Hold::writer("a")]).body();
    let good = scene.envelope.around(&body);
    let inner = Envelope::inner(&good);
    // If less is missing, the server takes other bytes for version and checksum, which may match by chance.
    for len in 0..inner.len() - VERSION_AND_CHECKSUM {
        let dump = scene.envelope.around_all(&inner[..len]);
        scene.assert_refused(&dump, &format!("{len} of {} bytes", inner.len()));
    }
    let more = [&inner[..inner.len() - 1], &[5, 1, b'x', 0]].concat();
    let longer = vec![5, 0x80, 0xff, 0xff, 0xff, 0xff, 1];
    for (what, inner) in [
        ("a whole number instead of a string", vec![2, 7, 0]),
        ("a float instead of a string", vec![3, 0, 0, 0, 0, 0]),
        ("a string too many", more),
        ("a string longer than all", longer),
        ("an unknown opcode", vec![9, 1, 0]),
    ] {
        let dump = scene.envelope.around_all(&inner);
        scene.assert_refused(&dump, what);
    }
    let mut newer = scene.envelope.clone();
    *newer.head.last_mut().unwrap() += 1;
    scene.assert_refused(&newer.around(&body), "a newer encoding");
    let mut other = scene.envelope.clone();
    other.head[3] ^= 0x55;
    scene.assert_refused(&other.around(&body), "another module's type");
}

#[test]
fn a_restored_token_clock_cannot_use_up_the_numbers() {
    let mut scene = Scene::set_up();
    let last = PAST_THE_LAST_TOKEN - 1;
    scene.restore(&Payload::of(vec![Hold::writer("w")]).but(|payload| payload.last = last));
    let next = int(&cmd!(scene.conn, "LOCK.ACQUIRE", "other", "a", 60_000));
    assert!(next <= wall_micros() + HOUR + 1, "{next}");
    // Nor by repeated restores.
    for _ in 0..5 {
        scene.restore(&Payload::of(vec![Hold::writer("w")]).but(|payload| payload.last = last));
    }
    cmd!(scene.conn, "LOCK.RELEASE", "other", "a");
    let next = int(&cmd!(scene.conn, "LOCK.ACQUIRE", "other", "a", 60_000));
    assert!(next <= wall_micros() + HOUR + 1, "{next}");
}
