//! LOCK.INFO: every field, in both protocols.

use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Hold, LockInfo, Server, array, as_map, cmd, eventually, hold_of, int, is_nil, lock_info,
    text,
};
use redis::Value;

const FIELDS: [&str; 5] = ["mode", "holders", "waiters", "holds", "queue"];
const HOLD_FIELDS: [&str; 8] = [
    "owner", "write", "read", "token", "lease", "held", "client", "revoked",
];

/// The names of a map's fields in the order of the wire.
#[track_caller]
fn fields(map: &Value) -> Vec<String> {
    match map {
        Value::Map(pairs) => pairs.iter().map(|(name, _)| text(name)).collect(),
        Value::Array(flat) => flat.iter().step_by(2).map(text).collect(),
        other => panic!("expected a map, got {other:?}"),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

fn hold_with_three_readers(conn: &mut Conn) {
    for owner in ["a", "b", "c"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
}

#[test]
fn info_is_null_when_nobody_holds() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        assert!(is_nil(&cmd!(conn, "LOCK.INFO key")));
        assert!(is_nil(&cmd!(conn, "LOCK.INFO key OWNER a")));
        assert!(is_nil(&cmd!(conn, "LOCK.INFO key COUNT 5")));
        cmd!(conn, "LOCK.ACQUIRE key a 60000");
        cmd!(conn, "LOCK.RELEASE key a");
        assert!(is_nil(&cmd!(conn, "LOCK.INFO key")));
    }
}

#[test]
fn info_is_a_flat_array_in_resp2_and_a_map_in_resp3_with_the_same_fields() {
    let server = Server::start();
    let (mut old, mut new) = (server.connect(), server.connect_resp3());
    hold_with_three_readers(&mut old);
    for (conn, is_map) in [(&mut old, false), (&mut new, true)] {
        let reply = cmd!(conn, "LOCK.INFO key");
        assert_eq!(matches!(reply, Value::Map(_)), is_map, "{reply:?}");
        assert_eq!(fields(&reply), FIELDS);
        let lock = as_map(&reply);
        assert!(array(&lock["queue"]).is_empty());
        for hold in array(&lock["holds"]) {
            assert_eq!(matches!(hold, Value::Map(_)), is_map, "{hold:?}");
            assert_eq!(fields(hold), HOLD_FIELDS);
        }
    }
    let [flat, map] = [&mut old, &mut new].map(|conn| cmd!(conn, "LOCK.INFO key OWNER b"));
    assert!(matches!((&flat, &map), (Value::Array(_), Value::Map(_))));
    assert_eq!(fields(&flat), HOLD_FIELDS);
    assert_eq!(fields(&map), HOLD_FIELDS);
    assert_eq!(Hold::read(&flat).facts(), Hold::read(&map).facts());
}

#[test]
fn a_written_lock_shows_its_one_holder() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000 HOLDS 3"));
    cmd!(conn, "LOCK.RLOCK key a 60000 HOLDS 2");
    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!(lock.mode, "write");
    assert_eq!((lock.holders, lock.waiters, lock.queue.len()), (1, 0, 0));
    assert_eq!(lock.facts(), [(b"a".to_vec(), 3, 2, token)]);
    assert_eq!(lock.holds[0].client, conn.client_id());
}

#[test]
fn a_read_lock_shows_all_its_holders() {
    let (_server, mut conn) = Server::start_connected();
    hold_with_three_readers(&mut conn);
    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.mode.as_str(), lock.holders), ("read", 3));
    let mut owners: Vec<_> = lock.holds.iter().map(|hold| hold.owner.clone()).collect();
    owners.sort();
    assert_eq!(owners, [b"a", b"b", b"c"]);
    assert!(lock.holds.iter().all(|hold| hold.counts() == (0, 1)));
}

#[test]
fn a_hundred_holds_are_shown_unless_count_sets_another_number() {
    let (_server, mut conn) = Server::start_connected();
    for n in 0..150 {
        cmd!(conn, "LOCK.RLOCK key reader:{n} 60000");
    }
    let mut shown = |options: &str| {
        let lock = LockInfo::read(&cmd!(conn, "LOCK.INFO key {options}"));
        assert_eq!(lock.holders, 150, "all are counted, shown or not");
        let mut owners: Vec<_> = lock.holds.into_iter().map(|hold| hold.owner).collect();
        owners.dedup();
        owners.len()
    };
    assert_eq!(shown(""), 100);
    assert_eq!(shown("COUNT 1"), 1);
    assert_eq!(shown("COUNT 149"), 149);
    assert_eq!(shown("COUNT 150"), 150);
    assert_eq!(shown("count 2147483647"), 150);
}

#[test]
fn owner_shows_that_owners_hold_alone() {
    let (_server, mut conn) = Server::start_connected();
    hold_with_three_readers(&mut conn);
    for owner in ["a", "b", "c"] {
        let hold = hold_of(&mut conn, "key", owner).unwrap();
        assert_eq!(hold.owner, owner.as_bytes());
    }
    for nobody in ["d", "A", "aa", "a\0"] {
        assert_eq!(hold_of(&mut conn, "key", nobody), None);
    }
    for options in ["OWNER b COUNT 1", "COUNT 1 owner b"] {
        let reply = cmd!(conn, "LOCK.INFO key {options}");
        assert_eq!(Hold::read(&reply).owner, b"b");
    }
}

#[test]
fn a_hold_shows_the_connection_of_its_last_grant() {
    let server = Server::start();
    let (mut first, mut second) = (server.connect(), server.connect());
    let client = || hold_of(&mut server.connect(), "key", "a").unwrap().client;
    cmd!(first, "LOCK.ACQUIRE key a 60000");
    assert_eq!(client(), first.client_id());
    let token = int(&cmd!(second, "LOCK.RENEW key a 60000"));
    cmd!(second, "LOCK.FENCE", "key", "a", token + 1);
    assert_eq!(client(), first.client_id());
    cmd!(second, "LOCK.ACQUIRE key a 60000");
    assert_eq!(client(), second.client_id());
    cmd!(first, "LOCK.RELEASE key a");
    assert_eq!(client(), second.client_id());

    cmd!(first, "MULTI");
    cmd!(first, "LOCK.RLOCK key a 60000");
    cmd!(first, "EXEC");
    assert_eq!(client(), first.client_id());
}

#[test]
fn lease_and_held_are_the_time_left_and_the_time_passed() {
    let (_server, mut conn) = Server::start_connected();
    let asked = Instant::now();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let granted = Instant::now();
    for wait in [0, 30, 100] {
        let (hold, least, most) = eventually("some time has passed", || {
            let least = granted.elapsed();
            let hold = hold_of(&mut conn, "key", "a").unwrap();
            let most = asked.elapsed();
            (millis(least) >= wait).then_some((hold, millis(least), millis(most)))
        });
        // A millisecond of tolerance, because three clocks are cut to milliseconds.
        assert!((least - 1..=most + 1).contains(&hold.held), "{hold:?}");
        let passed = 60_000 - hold.lease;
        assert!((least - 1..=most + 1).contains(&passed), "{hold:?}");
    }
}

#[test]
fn held_counts_from_the_first_grant_over_re_entry_renewal_upgrade_and_downgrade() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let mut least = eventually("some time has passed", || {
        let held = hold_of(&mut conn, "key", "a").unwrap().held;
        (held >= 30).then_some(held)
    });
    for step in [
        "LOCK.RLOCK key a 60000",
        "LOCK.RENEW key a 60000",
        "LOCK.FENCE key a 1",
        "LOCK.WLOCK key a 60000",
        "LOCK.RELEASE key a WRITE",
        "LOCK.RELEASE key a READ",
    ] {
        cmd!(conn, "{step}");
        let held = hold_of(&mut conn, "key", "a").unwrap().held;
        assert!(held >= least, "{step}: {held} >= {least}");
        least = held;
    }
    cmd!(conn, "LOCK.RELEASE key a");
    let asked = Instant::now();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let held = hold_of(&mut conn, "key", "a").unwrap().held;
    assert!(held <= millis(asked.elapsed()) + 1, "it began anew: {held}");
}

#[test]
fn ended_holds_are_left_out_of_the_list_and_the_counts() {
    let (_server, mut conn) = Server::start_connected();
    // In a transaction nothing is swept, so the ended holds are still there.
    cmd!(conn, "MULTI");
    for (owner, lease) in [("a", 5), ("b", 60_000), ("c", 5), ("d", 60_000)] {
        cmd!(conn, "LOCK.RLOCK key {owner} {lease}");
    }
    cmd!(conn, "DEBUG SLEEP 0.006");
    cmd!(conn, "LOCK.INFO key");
    cmd!(conn, "LOCK.INFO key COUNT 1");
    cmd!(conn, "LOCK.INFO key OWNER a");
    let replies = cmd!(conn, "EXEC");
    let replies = array(&replies);
    let lock = LockInfo::read(&replies[5]);
    let owners: Vec<&[u8]> = lock.holds.iter().map(|hold| &*hold.owner).collect();
    assert_eq!((lock.holders, owners), (2, vec![&b"b"[..], b"d"]));
    let one = LockInfo::read(&replies[6]);
    assert_eq!((one.holders, one.holds.len()), (2, 1));
    assert!(is_nil(&replies[7]));
}

#[test]
fn info_changes_nothing() {
    let (server, mut conn) = Server::start_connected();
    hold_with_three_readers(&mut conn);
    let changes =
        |server: &Server| server.info("persistence")["rdb_changes_since_last_save"].clone();
    let (before, digest) = (changes(&server), text(&cmd!(conn, "DEBUG DIGEST")));
    for _ in 0..3 {
        cmd!(conn, "LOCK.INFO key");
        cmd!(conn, "LOCK.INFO key OWNER a");
        cmd!(conn, "LOCK.INFO free");
    }
    assert_eq!(changes(&server), before);
    assert_eq!(text(&cmd!(conn, "DEBUG DIGEST")), digest);
}
