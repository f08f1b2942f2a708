//! LOCK.PASS: what it transfers, that the old name keeps nothing, and when it is refused.

use mortise_harness::{
    Conn, Server, array, cmd, eventually, hold_of, holders_of, int, is_nil, lock_info, refused,
    try_cmd,
};

/// A server on which `a` holds `key` to write, a connection, and the token.
fn held() -> (Server, Conn, i64) {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    (server, conn, token)
}

/// Every way in which `a` may still try to use the hold by token `old`: each fails.
#[track_caller]
fn assert_powerless(conn: &mut Conn, old: i64) {
    for owner in ["a", "b"] {
        for line in [
            format!("LOCK.RELEASE key {owner} TOKEN {old}"),
            format!("LOCK.RENEW key {owner} 60000 TOKEN {old}"),
            format!("LOCK.PASS key {owner} c 60000 TOKEN {old}"),
        ] {
            assert!(is_nil(&cmd!(conn, "{line}")), "{line}");
        }
        refused!(conn, "NOTHELD ", "LOCK.GUARD key {owner} {old} SET data x");
    }
    for command in [
        "RELEASE key a ALL",
        "RENEW key a 60000",
        "PASS key a c 60000",
    ] {
        assert!(is_nil(&cmd!(conn, "LOCK.{command}")), "{command}");
    }
    assert!(is_nil(&cmd!(conn, "LOCK.FENCE key a {old}")));
}

#[test]
fn a_pass_transfers_the_whole_hold_with_a_new_token_and_exactly_the_new_lease() {
    let server = Server::start();
    let (mut conn, mut sender) = (server.connect(), server.connect());
    let token = int(&cmd!(conn, "LOCK.WLOCK key a 600000 HOLDS 3"));
    cmd!(conn, "LOCK.RLOCK key a 600000 HOLDS 2");
    let other = int(&cmd!(conn, "LOCK.ACQUIRE other z 60000"));
    eventually("some time has passed", || {
        hold_of(&mut conn, "key", "a").unwrap().held > 30
    });

    // In one transaction, so that no time passes in between.
    cmd!(sender, "MULTI");
    cmd!(sender, "LOCK.PASS key a b 5000");
    cmd!(sender, "LOCK.INFO key OWNER b");
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
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key b ALL")), 0);
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
}

#[test]
fn a_pass_may_lengthen_a_lease_and_the_hold_ends_with_the_new_one() {
    let (server, mut conn, _) = held();
    cmd!(conn, "LOCK.PASS key a b 600000");
    assert!(hold_of(&mut conn, "key", "b").unwrap().lease > 300_000);
    cmd!(conn, "LOCK.PASS key b rests 30");
    eventually("the short lease is over, and with it the lock", || {
        lock_info(&mut conn, "key").is_none()
    });
    server.await_gauge("total_expiries", 1);
    assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 60000")));
}

#[test]
fn a_pass_without_a_hold_is_null_and_creates_nothing() {
    let (_server, mut conn, token) = held();
    for none in ["key b", "free a"] {
        assert!(is_nil(&cmd!(conn, "LOCK.PASS {none} c 60000")), "{none}");
    }
    assert_eq!(int(&cmd!(conn, "EXISTS free")), 0);
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    // It has ended, though nothing has swept it.
    cmd!(conn, "DEL key");
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE key a 5");
    cmd!(conn, "DEBUG SLEEP 0.006");
    cmd!(conn, "LOCK.PASS key a b 60000");
    assert!(is_nil(&array(&cmd!(conn, "EXEC"))[2]));
    assert!(lock_info(&mut conn, "key").is_none());
}

#[test]
fn a_pass_to_an_owner_that_holds_is_an_error_even_to_the_old_one() {
    let (_server, mut conn) = Server::start_connected();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    let before = lock_info(&mut conn, "key").unwrap().facts();
    for (old, new) in [("a", "b"), ("a", "a"), ("b", "a")] {
        refused!(conn, "ERR newowner ", "LOCK.PASS key {old} {new} 1");
    }
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), before);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 30_000);
    // An ended hold does not count, swept or not.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.RLOCK key c 5");
    cmd!(conn, "DEBUG SLEEP 0.006");
    cmd!(conn, "LOCK.PASS key a c 60000");
    let passed = int(&array(&cmd!(conn, "EXEC"))[2]);
    assert_eq!(hold_of(&mut conn, "key", "c").unwrap().token, passed);
    assert_eq!(holders_of(&mut conn, "key"), ["b", "c"]);
}

#[test]
fn null_comes_before_left_and_left_before_an_error() {
    let (_server, mut conn, token) = held();
    cmd!(conn, "LOCK.LEAVE key gone FOR 600000");
    refused!(conn, "LEFT ", "LOCK.PASS key a gone 60000");
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    // There is no hold to pass on, so the new owner does not matter.
    for new_owner in ["gone", "a"] {
        let wrong = cmd!(conn, "LOCK.PASS key a {new_owner} 60000 TOKEN 1");
        assert!(is_nil(&wrong), "{new_owner}");
        let none = cmd!(conn, "LOCK.PASS key z {new_owner} 60000");
        assert!(is_nil(&none), "{new_owner}");
    }
    // The owner that has left holds nothing.
    assert!(is_nil(&cmd!(conn, "LOCK.PASS key gone a 60000")));
    // A name that has left another key may hold here.
    cmd!(conn, "LOCK.LEAVE other b FOR 600000");
    assert!(int(&cmd!(conn, "LOCK.PASS key a b 60000")) > token);
}

#[test]
fn after_a_lost_reply_the_same_pass_is_null_and_leaving_by_both_names_frees_the_lock() {
    let (_server, mut conn, token) = held();
    // The reply to the first one is lost.
    for lost in [true, false] {
        let reply = cmd!(conn, "LOCK.PASS key a b 60000 TOKEN {token}");
        assert_eq!(is_nil(&reply), !lost);
    }
    let left = ["a", "b"].map(|owner| int(&cmd!(conn, "LOCK.LEAVE key {owner} FOR 60000")));
    assert_eq!(left, [0, 1]);
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
    // A late request has no effect, either.
    let late = cmd!(conn, "LOCK.PASS key a b 60000 TOKEN {token}");
    assert!(is_nil(&late));
    assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE key c 60000")));
}

#[test]
fn info_counts_passes_and_the_hold_time_of_the_old_owner() {
    let (server, mut conn, _) = held();
    let info = |name: &str| server.gauge(name);
    let before = ["total_grants", "hold_ms_count"].map(info);
    cmd!(conn, "LOCK.PASS key a b 60000");
    cmd!(conn, "LOCK.PASS key a b 60000");
    try_cmd!(conn, "LOCK.PASS key b b 60000").unwrap_err();
    assert_eq!(info("total_passes"), 1);
    assert_eq!(info("hold_ms_count"), before[1] + 1);
    assert_eq!(info("total_grants"), before[0]);
    assert_eq!(info("total_releases"), 0);
    assert_eq!((info("locks"), info("holders")), (1, 1));
}
