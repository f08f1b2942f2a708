//! What a stolen name allows, and what it does not, as `docs/security.md` says.

use mortise_harness::{
    Conn, Server, cmd, granted, hold_of, int, is_nil, mail, queue, try_cmd, waiter,
};

/// A server where `a` holds `key`, a connection, and the token.
fn held() -> (Server, Conn, i64) {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    (server, conn, token)
}

#[test]
fn whoever_knows_an_owner_may_end_its_hold_and_keep_the_name_away_but_not_the_next() {
    let (server, mut thief, token) = held();
    let mut next = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    assert_eq!(
        int(&cmd!(thief, "LOCK.LEAVE", "key", "a", "FOR", 600_000)),
        1
    );
    granted(&mut next);
    // The owner learns of it at its next command, and its writes are refused.
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW", "key", "a", 60_000)));
    let error = try_cmd!(thief, "LOCK.GUARD", "key", "a", token, "SET", "data", "x").unwrap_err();
    assert!(error.starts_with("NOTHELD"), "{error}");
    let error = try_cmd!(thief, "LOCK.ACQUIRE", "key", "a", 60_000).unwrap_err();
    assert!(error.starts_with("LEFT"), "{error}");
    cmd!(thief, "LOCK.RELEASE", "key", "b");
    assert!(!is_nil(&cmd!(thief, "LOCK.ACQUIRE", "key", "a2", 60_000)));
    let error = try_cmd!(thief, "LOCK.LEAVE", "key", "a", "FOR", 600_001).unwrap_err();
    assert!(error.starts_with("ERR"), "{error}");
}

#[test]
fn whoever_knows_an_owner_may_hold_along_with_it_by_the_same_token() {
    let (_server, mut thief, token) = held();
    assert_eq!(int(&cmd!(thief, "LOCK.ACQUIRE", "key", "a", 60_000)), token);
    assert_eq!(
        int(&cmd!(thief, "LOCK.RELEASE", "key", "a")),
        1,
        "still held"
    );
    // The lease can be lengthened, never cut short.
    assert_eq!(int(&cmd!(thief, "LOCK.RENEW", "key", "a", 1)), token);
    assert!(hold_of(&mut thief, "key", "a").unwrap().lease > 30_000);
}

#[test]
fn whoever_knows_an_owner_may_pass_its_hold_on_and_the_owner_finds_that_it_is_gone() {
    let (_server, mut thief, token) = held();
    let passed = int(&cmd!(thief, "LOCK.PASS", "key", "a", "thief", 60_000));
    assert!(passed > token);
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW", "key", "a", 60_000)));
    let error = try_cmd!(thief, "LOCK.GUARD", "key", "a", token, "SET", "data", "x").unwrap_err();
    assert!(error.starts_with("NOTHELD"), "{error}");
}

#[test]
fn a_token_is_pushed_no_further_than_an_hour_ahead_and_never_back() {
    let (_server, mut thief, token) = held();
    let hour = 3_600_000_000;
    let error = try_cmd!(thief, "LOCK.FENCE", "key", "a", token + 2 * hour).unwrap_err();
    assert!(error.starts_with("ERR"), "{error}");
    let pushed = token + hour / 2;
    assert_eq!(int(&cmd!(thief, "LOCK.FENCE", "key", "a", pushed)), pushed);
    assert_eq!(int(&cmd!(thief, "LOCK.FENCE", "key", "a", token)), pushed);
    assert!(int(&cmd!(thief, "LOCK.ACQUIRE", "other", "b", 60_000)) > pushed);
}

#[test]
fn a_token_without_the_owners_name_opens_nothing() {
    let (_server, mut thief, token) = held();
    let error = try_cmd!(thief, "LOCK.GUARD", "key", "b", token, "GET", "data").unwrap_err();
    assert!(error.starts_with("NOTHELD"), "{error}");
    assert!(is_nil(&cmd!(
        thief,
        "LOCK.RELEASE",
        "key",
        "b",
        "TOKEN",
        token
    )));
    assert!(is_nil(&cmd!(
        thief,
        "LOCK.RENEW",
        "key",
        "b",
        60_000,
        "TOKEN",
        token
    )));
}

#[test]
fn whoever_waits_under_the_name_of_a_task_has_others_refused() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "k1", "task##1", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "k2", "victim", 60_000);
    let _thief = waiter!(
        server,
        "LOCK.ACQUIRE",
        "k2",
        "task##thief",
        60_000,
        "WAIT",
        0
    );
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "k1", "victim", 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK"), "{error}");
}

#[test]
fn a_box_is_read_by_its_user_alone_and_whoever_is_that_user_may_take_its_letters() {
    let (server, mut conn, _) = held();
    let since = queue!(conn, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(
        conn, "ACL", "SETUSER", "thief", "on", "nopass", "~*", "+@all"
    );
    let mut thief = server.connect();
    cmd!(thief, "AUTH", "thief", "any");
    let error = try_cmd!(thief, "LOCK.MAIL", "box").unwrap_err();
    assert!(error.starts_with("NOPERM"), "{error}");
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    let mut same_user = server.connect();
    let number = mail!(same_user, "box", "WAIT", 1_000).only().number;
    mail!(same_user, "box", "AFTER", since, number);
    assert!(mail!(conn, "box").letters.is_empty(), "its letter is gone");
    assert!(
        hold_of(&mut conn, "key", "b").is_some(),
        "until the lease ends"
    );
}
