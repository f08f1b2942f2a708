//! What a client can and cannot do with a stolen owner name, as `docs/security.md` says.

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
fn a_stolen_owner_name_can_end_the_hold_and_keep_that_name_away_but_not_the_next() {
    let (server, mut thief, token) = held();
    let mut next = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    assert_eq!(
        int(&cmd!(thief, "LOCK.LEAVE", "key", "a", "FOR", 600_000)),
        1
    );
    granted(&mut next);
    // The owner's next command shows it the loss, and its writes are refused.
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
fn a_stolen_owner_name_can_share_the_hold_by_the_same_token() {
    let (_server, mut thief, token) = held();
    assert_eq!(int(&cmd!(thief, "LOCK.ACQUIRE", "key", "a", 60_000)), token);
    assert_eq!(
        int(&cmd!(thief, "LOCK.RELEASE", "key", "a")),
        1,
        "still held"
    );
    // It can lengthen the lease, never shorten it.
    assert_eq!(int(&cmd!(thief, "LOCK.RENEW", "key", "a", 1)), token);
    assert!(hold_of(&mut thief, "key", "a").unwrap().lease > 30_000);
}

#[test]
fn a_stolen_owner_name_can_pass_the_hold_on_and_the_owner_notices() {
    let (_server, mut thief, token) = held();
    let passed = int(&cmd!(thief, "LOCK.PASS", "key", "a", "thief", 60_000));
    assert!(passed > token);
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW", "key", "a", 60_000)));
    let error = try_cmd!(thief, "LOCK.GUARD", "key", "a", token, "SET", "data", "x").unwrap_err();
    assert!(error.starts_with("NOTHELD"), "{error}");
}

#[test]
fn a_stolen_owner_name_can_push_the_token_an_hour_ahead_and_never_back() {
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
fn a_stolen_token_without_the_owner_name_has_no_effect() {
    let (_server, mut thief, token) = held();
    let error = try_cmd!(thief, "LOCK.GUARD", "key", "b", token, "GET", "data").unwrap_err();
    assert!(error.starts_with("NOTHELD"), "{error}");
    assert!(is_nil(&cmd!(thief, "LOCK.RELEASE key b TOKEN {token}")));
    assert!(is_nil(&cmd!(thief, "LOCK.RENEW key b 60000 TOKEN {token}")));
}

#[test]
fn a_stolen_task_name_can_get_others_refused_as_deadlocks() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "k1", "task##1", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "k2", "victim", 60_000);
    let _thief = waiter!(server, "LOCK.ACQUIRE k2 task##thief 60000 WAIT 0");
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "k1", "victim", 60_000, "WAIT", 0).unwrap_err();
    assert!(error.starts_with("DEADLOCK"), "{error}");
}

#[test]
fn only_the_user_of_a_box_can_read_it_and_take_its_letters() {
    let (server, mut conn, _) = held();
    let since = queue!(conn, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(conn, "ACL SETUSER thief on nopass ~* +@all");
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
