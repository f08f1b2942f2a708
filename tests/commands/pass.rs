//! LOCK.PASS: what it transfers, that the old name keeps nothing, and when it is refused.

use mortise_harness::{
    Conn, Server, array, cmd, eventually, hold_of, holders_of, int, is_nil, lock_info, try_cmd,
};

/// A server on which `a` holds `key` to write, a connection, and the token.
fn held() -> (Server, Conn, i64) {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    (server, conn, token)
}

/// Every way in which `a` may still try to use the hold by token `old`: each fails.
#[track_caller]
fn assert_powerless(conn: &mut Conn, old: i64) {
    let old = old.to_string();
    for words in [
        ["LOCK.RELEASE", "key", "a", "ALL"].as_slice(),
        &["LOCK.RELEASE", "key", "a", "TOKEN", &old],
        &["LOCK.RENEW", "key", "a", "60000"],
        &["LOCK.RENEW", "key", "a", "60000", "TOKEN", &old],
        &["LOCK.FENCE", "key", "a", &old],
        &["LOCK.PASS", "key", "a", "c", "60000"],
        &["LOCK.PASS", "key", "a", "b", "60000", "TOKEN", &old],
        &["LOCK.RENEW", "key", "b", "60000", "TOKEN", &old],
        &["LOCK.RELEASE", "key", "b", "TOKEN", &old],
        &["LOCK.PASS", "key", "b", "c", "60000", "TOKEN", &old],
    ] {
        assert!(is_nil(&conn.cmd(words)), "{words:?}");
    }
    for owner in ["a", "b"] {
        let error = try_cmd!(conn, "LOCK.GUARD", "key", owner, &old, "SET", "data", "x");
        let error = error.unwrap_err();
        assert!(error.starts_with("NOTHELD "), "{owner}: {error}");
    }
}

#[test]
fn a_pass_transfers_the_whole_hold_with_a_new_token_and_exactly_the_new_lease() {
    let server = Server::start();
    let (mut conn, mut sender) = (server.connect(), server.connect());
    let token = int(&cmd!(conn, "LOCK.WLOCK", "key", "a", 600_000, "HOLDS", 3));
    cmd!(conn, "LOCK.RLOCK", "key", "a", 600_000, "HOLDS", 2);
    let other = int(&cmd!(conn, "LOCK.ACQUIRE", "other", "z", 60_000));
    eventually("some time has passed", || {
        hold_of(&mut conn, "key", "a").unwrap().held > 30
    });

    // In one transaction, so that no time passes in between.
    cmd!(sender, "MULTI");
    cmd!(sender, "LOCK.PASS", "key", "a", "b", 5_000);
    cmd!(sender, "LOCK.INFO", "key", "OWNER", "b");
    let replies = cmd!(sender, "EXEC");
    let passed = int(&array(&replies)[0]);
    let hold = mortise_harness::Hold::read(&array(&replies)[1]);

    assert!(passed > token.max(other), "{passed} after {token}, {other}");
    assert_eq!((hold.counts(), hold.token), ((3, 2), passed));
    // A millisecond may begin in between.
    assert!((4_990..=5_000).contains(&hold.lease), "{hold:?}");
    assert!(hold.held <= 10, "`held` counts from the pass: {hold:?}");
    assert_eq!(hold.client, sender.client_id());
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
    assert_powerless(&mut conn, token);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "b", "ALL")), 0);
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn a_pass_may_lengthen_a_lease_and_the_hold_ends_with_the_new_one() {
    let (server, mut conn, _) = held();
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 600_000);
    assert!(hold_of(&mut conn, "key", "b").unwrap().lease > 300_000);
    cmd!(conn, "LOCK.PASS", "key", "b", "rests", 30);
    eventually("the short lease is over, and with it the lock", || {
        lock_info(&mut conn, "key").is_none()
    });
    eventually("it has been swept", || server.gauge("total_expiries") == 1);
    assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)));
}

#[test]
fn a_pass_without_a_hold_is_null_and_creates_nothing() {
    let (_server, mut conn, token) = held();
    let last = |conn: &mut Conn| int(&cmd!(conn, "LOCK.ACQUIRE other x 60000 HOLDS 1"));
    let before = last(&mut conn);
    for wrong in [1, token - 1, token + 1, (1 << 53) - 1] {
        let reply = cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000, "TOKEN", wrong);
        assert!(is_nil(&reply));
    }
    assert!(is_nil(&cmd!(conn, "LOCK.PASS", "key", "b", "c", 60_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.PASS", "free", "a", "b", 60_000)));
    assert_eq!(int(&cmd!(conn, "EXISTS", "free")), 0);
    let facts = lock_info(&mut conn, "key").unwrap().facts();
    assert_eq!(facts, [(b"a".to_vec(), 1, 0, token)]);
    assert_eq!(last(&mut conn), before);

    cmd!(conn, "LOCK.RELEASE", "key", "a");
    assert!(is_nil(&cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000)));
    // It has ended, though nothing has swept it.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 5);
    cmd!(conn, "DEBUG", "SLEEP", "0.006");
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000);
    assert!(is_nil(&array(&cmd!(conn, "EXEC"))[2]));
    assert!(lock_info(&mut conn, "key").is_none());

    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    let reply = cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000, "token", token);
    assert!(int(&reply) > token);
}

#[test]
fn a_pass_to_an_owner_that_holds_is_an_error_even_to_the_old_one() {
    let server = Server::start();
    let mut conn = server.connect();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK", "key", owner, 60_000);
    }
    let before = lock_info(&mut conn, "key").unwrap().facts();
    for (old, new) in [("a", "b"), ("a", "a"), ("b", "a")] {
        let error = try_cmd!(conn, "LOCK.PASS", "key", old, new, 1).unwrap_err();
        assert!(error.starts_with("ERR newowner "), "{error}");
    }
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), before);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 30_000);
    // An ended hold does not count, swept or not.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.RLOCK", "key", "c", 5);
    cmd!(conn, "DEBUG", "SLEEP", "0.006");
    cmd!(conn, "LOCK.PASS", "key", "a", "c", 60_000);
    let passed = int(&array(&cmd!(conn, "EXEC"))[2]);
    assert_eq!(hold_of(&mut conn, "key", "c").unwrap().token, passed);
    assert_eq!(holders_of(&mut conn, "key"), ["b", "c"]);
}

#[test]
fn null_comes_before_left_and_left_before_an_error() {
    let (_server, mut conn, token) = held();
    cmd!(conn, "LOCK.LEAVE", "key", "gone", "FOR", 600_000);
    let error = try_cmd!(conn, "LOCK.PASS", "key", "a", "gone", 60_000).unwrap_err();
    assert!(error.starts_with("LEFT "), "{error}");
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    // There is no hold to pass on, so the new owner does not matter.
    for new_owner in ["gone", "a"] {
        let wrong = cmd!(conn, "LOCK.PASS", "key", "a", new_owner, 60_000, "TOKEN", 1);
        assert!(is_nil(&wrong), "{new_owner}");
        let none = cmd!(conn, "LOCK.PASS", "key", "z", new_owner, 60_000);
        assert!(is_nil(&none), "{new_owner}");
    }
    // The owner that has left holds nothing.
    assert!(is_nil(&cmd!(conn, "LOCK.PASS", "key", "gone", "a", 60_000)));
    // A name that has left another key may hold here.
    cmd!(conn, "LOCK.LEAVE", "other", "b", "FOR", 600_000);
    assert!(int(&cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000)) > token);
}

#[test]
fn a_new_owner_out_of_1_to_255_bytes_is_an_error_that_names_it() {
    let (_server, mut conn, token) = held();
    for len in [0, 256, 100_000] {
        let name = "x".repeat(len);
        let error = try_cmd!(conn, "LOCK.PASS", "key", "a", name, 60_000).unwrap_err();
        let named = error.starts_with("ERR newowner must be 1 to 255 bytes long");
        assert!(named, "{error}");
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    for len in [1, 23, 255] {
        let name = "x".repeat(len);
        int(&cmd!(conn, "LOCK.PASS", "key", "a", &name, 60_000));
        int(&cmd!(conn, "LOCK.PASS", "key", &name, "a", 60_000));
    }
}

#[test]
fn invalid_options_of_a_pass_are_errors() {
    let (_server, mut conn, token) = held();
    let token = token.to_string();
    let cases: &[&[&str]] = &[
        &["TOKEN"],
        &["TOKEN", &token, "TOKEN", &token],
        &["TOKEN", &token, "more"],
        &["HOLDS", "1"],
        &["WAIT", "1"],
        &["FENCE", "1"],
    ];
    for options in cases {
        let words = [&["LOCK.PASS", "key", "a", "b", "60000"], *options].concat();
        let error = conn.try_cmd(&words).unwrap_err();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
        assert_eq!(holders_of(&mut conn, "key"), ["a"], "{words:?}");
    }
}

#[test]
fn after_a_lost_reply_the_same_pass_is_null_and_leaving_by_both_names_frees_the_lock() {
    let (_server, mut conn, token) = held();
    // The reply to the first one is lost.
    for lost in [true, false] {
        let reply = cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000, "TOKEN", token);
        assert_eq!(is_nil(&reply), !lost);
    }
    let left = ["a", "b"].map(|owner| int(&cmd!(conn, "LOCK.LEAVE", "key", owner, "FOR", 60_000)));
    assert_eq!(left, [0, 1]);
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    // A late request has no effect, either.
    let late = cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000, "TOKEN", token);
    assert!(is_nil(&late));
    assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "c", 60_000)));
}

#[test]
fn a_pass_works_in_a_transaction_a_script_and_a_guard() {
    let (_server, mut conn, _) = held();
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000);
    let passed = int(&array(&cmd!(conn, "EXEC"))[0]);
    let script = "return redis.call('LOCK.PASS', KEYS[1], 'b', 'c', 60000, 'TOKEN', ARGV[1])";
    let scripted = int(&cmd!(conn, "EVAL", script, 1, "key", passed));
    assert_eq!(hold_of(&mut conn, "key", "c").unwrap().client, 0);
    let inner = ["LOCK.PASS", "key", "c", "d", "60000"].map(str::to_owned);
    let guard = ["LOCK.GUARD", "key", "c", &scripted.to_string()].map(str::to_owned);
    let guarded = int(&conn.cmd(&[&guard[..], &inner[..]].concat()));
    assert!(passed < scripted && scripted < guarded);
    let hold = hold_of(&mut conn, "key", "d").unwrap();
    assert_eq!((hold.token, hold.client), (guarded, conn.client_id()));
    // The guard's own hold is gone, so the guard runs nothing any more.
    let again = conn.try_cmd(&[&guard[..], &inner[..]].concat());
    assert!(again.unwrap_err().starts_with("NOTHELD "));
}

#[test]
fn info_counts_passes_and_the_hold_time_of_the_old_owner() {
    let (server, mut conn, _) = held();
    let info = |name: &str| server.gauge(name);
    let before = ["total_grants", "hold_ms_count"].map(info);
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000);
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000);
    try_cmd!(conn, "LOCK.PASS", "key", "b", "b", 60_000).unwrap_err();
    assert_eq!(info("total_passes"), 1);
    assert_eq!(info("hold_ms_count"), before[1] + 1);
    assert_eq!(
        (info("total_grants"), info("total_releases")),
        (before[0], 0)
    );
    assert_eq!((info("locks"), info("holders")), (1, 1));
}
