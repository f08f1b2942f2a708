//! LOCK.RELEASE: which counts it lowers, and when it changes nothing.

use mortise_harness::{Conn, Server, cmd, hold_of, int, is_nil, lock_info};

/// Makes `owner` hold `key` with these counts, and returns the token.
fn hold(conn: &mut Conn, owner: &str, write: i64, read: i64) -> i64 {
    cmd!(conn, "DEL", "key");
    let mut token = 0;
    if write > 0 {
        let wlock = cmd!(conn, "LOCK.WLOCK", "key", owner, 60_000, "HOLDS", write);
        token = int(&wlock);
    }
    if read > 0 {
        let rlock = cmd!(conn, "LOCK.RLOCK", "key", owner, 60_000, "HOLDS", read);
        token = int(&rlock);
    }
    token
}

/// `owner`'s counts on `key`, or `None`.
fn counts(conn: &mut Conn, owner: &str) -> Option<(i64, i64)> {
    hold_of(conn, "key", owner).map(|hold| hold.counts())
}

#[test]
fn a_release_lowers_the_count_by_one_and_replies_how_many_are_left() {
    let server = Server::start();
    let mut conn = server.connect();
    for (write, read) in [(4, 0), (0, 4)] {
        let token = hold(&mut conn, "a", write, read);
        for left in [3, 2, 1] {
            assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), left);
            let hold = hold_of(&mut conn, "key", "a").unwrap();
            assert_eq!(hold.token, token);
            assert_eq!(hold.write + hold.read, left);
        }
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    }
}

#[test]
fn an_owner_of_both_modes_must_name_one_or_drop_all() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = hold(&mut conn, "a", 2, 2);
    for options in [
        [].as_slice(),
        &["HOLDS", "1"],
        &["HOLDS", "0"],
        &["TOKEN", &token.to_string()],
    ] {
        let words = [&["LOCK.RELEASE", "key", "a"], options].concat();
        let error = conn.try_cmd(&words).unwrap_err();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
        for named in ["READ", "WRITE", "ALL"] {
            assert!(error.contains(named), "{words:?}: {error}");
        }
        assert_eq!(counts(&mut conn, "a"), Some((2, 2)));
    }
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL")), 0);
}

#[test]
fn releasing_a_mode_that_is_not_held_is_null() {
    let server = Server::start();
    let mut conn = server.connect();
    for (write, read, other) in [(2, 0, "READ"), (0, 2, "WRITE")] {
        hold(&mut conn, "a", write, read);
        for options in [&[other][..], &[other, "HOLDS", "0"], &[other, "HOLDS", "5"]] {
            let words = [&["LOCK.RELEASE", "key", "a"], options].concat();
            assert!(is_nil(&conn.cmd(&words)), "{words:?}");
            assert_eq!(counts(&mut conn, "a"), Some((write, read)));
        }
    }
}

#[test]
fn naming_the_only_held_mode_releases_as_without_it() {
    let server = Server::start();
    let mut conn = server.connect();
    for (write, read, mode) in [(2, 0, "WRITE"), (0, 2, "READ"), (2, 0, "write")] {
        hold(&mut conn, "a", write, read);
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", mode)), 1);
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", mode)), 0);
        assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", "key", "a", mode)));
    }
}

#[test]
fn holds_lowers_the_count_to_n_and_never_raises_it() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "a", 5, 0);
    for (n, left) in [(5, 5), (3, 3), (3, 3), (4, 3), (i32::MAX, 3), (1, 1)] {
        let reply = cmd!(conn, "LOCK.RELEASE", "key", "a", "HOLDS", n);
        assert_eq!(int(&reply), left, "HOLDS {n}");
        assert_eq!(counts(&mut conn, "a"), Some((left, 0)));
    }
    let gone = cmd!(conn, "LOCK.RELEASE", "key", "a", "HOLDS", 0);
    assert_eq!(int(&gone), 0);
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", "key", "a", "HOLDS", 0)));
}

#[test]
fn all_drops_the_whole_hold() {
    let server = Server::start();
    let mut conn = server.connect();
    for (write, read) in [(1, 0), (9, 0), (0, 9), (3, 4)] {
        hold(&mut conn, "a", write, read);
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL")), 0);
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    }
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL")));
}

#[test]
fn options_that_exclude_each_other_are_an_error() {
    let server = Server::start();
    let mut conn = server.connect();
    hold(&mut conn, "a", 2, 2);
    let cases: &[&[&str]] = &[
        &["ALL", "READ"],
        &["ALL", "WRITE"],
        &["READ", "ALL"],
        &["ALL", "HOLDS", "1"],
        &["HOLDS", "1", "ALL"],
        &["READ", "WRITE"],
        &["WRITE", "READ"],
        &["READ", "READ"],
        &["WRITE", "write"],
        &["ALL", "ALL"],
        &["READ", "HOLDS", "1", "HOLDS", "1"],
        &["ALL", "TOKEN", "1", "TOKEN", "1"],
        &["READ", "HOLDS"],
        &["ALL", "TOKEN"],
        &["READ", "TWICE"],
        &["READ", "WAIT", "5"],
        &["READ", "FENCE", "5"],
        &["READ", "5"],
    ];
    for options in cases {
        let words = [&["LOCK.RELEASE", "key", "a"], *options].concat();
        let error = conn.try_cmd(&words).unwrap_err();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
        assert_eq!(counts(&mut conn, "a"), Some((2, 2)), "{words:?}");
    }
}

#[test]
fn a_release_with_a_token_ends_only_the_hold_of_that_token() {
    let server = Server::start();
    let mut conn = server.connect();
    let old = hold(&mut conn, "a", 1, 0);
    let token = hold(&mut conn, "a", 2, 2);
    assert_ne!(old, token);
    for wrong in [old, token - 1, token + 1, 1, (1 << 53) - 1] {
        for rest in [&["READ"][..], &["ALL"], &["WRITE", "HOLDS", "0"], &[]] {
            let wrong = wrong.to_string();
            let words = [&["LOCK.RELEASE", "key", "a", "TOKEN", &wrong], rest].concat();
            assert!(is_nil(&conn.cmd(&words)), "{words:?}");
            assert_eq!(counts(&mut conn, "a"), Some((2, 2)), "{words:?}");
        }
    }
    let right = cmd!(conn, "LOCK.RELEASE", "key", "a", "READ", "TOKEN", token);
    assert_eq!(int(&right), 3);
    let right = cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", token, "ALL");
    assert_eq!(int(&right), 0);
    let repeated = cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", token, "ALL");
    assert!(is_nil(&repeated));
}

#[test]
fn a_release_without_a_hold_changes_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    for options in [&[][..], &["READ"], &["WRITE"], &["ALL"], &["HOLDS", "0"]] {
        let free = [&["LOCK.RELEASE", "free", "b"], options].concat();
        assert!(is_nil(&conn.cmd(&free)), "{free:?}");
        assert_eq!(int(&cmd!(conn, "EXISTS", "free")), 0);
        for (write, read) in [(2, 0), (0, 2)] {
            hold(&mut conn, "a", write, read);
            let before = lock_info(&mut conn, "key").unwrap();
            let words = [&["LOCK.RELEASE", "key", "b"], options].concat();
            assert!(is_nil(&conn.cmd(&words)), "{words:?}");
            let after = lock_info(&mut conn, "key").unwrap();
            assert_eq!(after.facts(), before.facts(), "{words:?}");
        }
    }
}

#[test]
fn a_downgrade_lets_readers_in_and_keeps_writers_out() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = hold(&mut conn, "a", 2, 1);
    cmd!(conn, "LOCK.RELEASE", "key", "a", "WRITE");
    assert!(is_nil(&cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000)));
    cmd!(conn, "LOCK.RELEASE", "key", "a", "WRITE");

    let hold = hold_of(&mut conn, "key", "a").unwrap();
    assert_eq!((hold.counts(), hold.token), ((0, 1), token));
    assert_eq!(lock_info(&mut conn, "key").unwrap().mode, "read");
    assert!(!is_nil(&cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "c", 60_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)));
}
