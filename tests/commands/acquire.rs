//! LOCK.ACQUIRE, LOCK.WLOCK and LOCK.RLOCK: which requests are granted, and what a grant contains.

use mortise_harness::{Conn, Server, cmd, command, hold_of, int, is_nil, lock_info, text, try_cmd};

const LARGEST_COUNT: i64 = i32::MAX as i64;

/// The counts and the token of `owner`'s hold on `key`.
#[track_caller]
fn counts_and_token(conn: &mut Conn, owner: &str) -> ((i64, i64), i64) {
    let hold = hold_of(conn, "key", owner).expect("the owner holds");
    (hold.counts(), hold.token)
}

#[test]
fn a_free_lock_is_granted_with_a_token_below_two_to_the_53() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 10_000));
    assert!((1..1 << 53).contains(&token), "{token}");

    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.mode.as_str(), lock.holders), ("write", 1));
    assert_eq!(lock.facts(), [(b"a".to_vec(), 1, 0, token)]);
    assert!((1..=10_000).contains(&lock.holds[0].lease), "{lock:?}");
}

#[test]
fn a_lock_is_a_key_of_its_own_type_without_a_redis_ttl_while_it_is_held() {
    let server = Server::start();
    let mut conn = server.connect();
    assert_eq!(text(&cmd!(conn, "TYPE", "key")), "none");
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        cmd!(conn, acquire, "key", "a", 10_000);
        assert_eq!(text(&cmd!(conn, "TYPE", "key")), "mort-lock");
        assert_eq!(int(&cmd!(conn, "PTTL", "key")), -1);
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 1);
        cmd!(conn, "LOCK.RELEASE", "key", "a");
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
        assert_eq!(text(&cmd!(conn, "TYPE", "key")), "none");
    }
}

#[test]
fn a_write_lock_is_refused_to_all_others_and_does_not_change() {
    let server = Server::start();
    let (mut holder, mut other) = (server.connect(), server.connect());
    cmd!(holder, "LOCK.ACQUIRE", "key", "a", 10_000);
    let before = lock_info(&mut holder, "key").unwrap();
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        assert!(is_nil(&cmd!(other, acquire, "key", "b", 60_000)));
        let holds = cmd!(other, acquire, "key", "b", 60_000, "HOLDS", 3);
        assert!(is_nil(&holds));
    }
    let after = lock_info(&mut holder, "key").unwrap();
    assert_eq!(after.facts(), before.facts());
    assert_eq!(after.holds[0].client, holder.client_id());
    assert!(after.holds[0].lease <= before.holds[0].lease);
}

#[test]
fn the_same_owner_on_another_connection_is_the_same_owner() {
    let server = Server::start();
    let (mut one, mut other) = (server.connect(), server.connect_resp3());
    let token = int(&cmd!(one, "LOCK.ACQUIRE", "key", "a", 10_000));
    assert_eq!(int(&cmd!(other, "LOCK.ACQUIRE", "key", "a", 10_000)), token);
    assert_eq!(counts_and_token(&mut one, "a"), ((2, 0), token));
    assert_eq!(int(&cmd!(one, "LOCK.RELEASE", "key", "a")), 1);
}

#[test]
fn owners_that_differ_in_case_or_by_a_trailing_byte_are_different() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "owner", 10_000);
    for other in ["Owner", "owner ", "owne", "owner\0"] {
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", other, 10_000)));
    }
}

#[test]
fn re_entry_raises_the_count_and_keeps_the_token() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        let token = int(&cmd!(conn, acquire, "key", "a", 10_000));
        for count in 2..=5 {
            assert_eq!(int(&cmd!(conn, acquire, "key", "a", 10_000)), token);
            let (counts, now) = counts_and_token(&mut conn, "a");
            assert_eq!((counts.0 + counts.1, now), (count, token));
        }
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
    }
}

#[test]
fn holds_sets_the_count_to_exactly_n_however_often_it_is_sent() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 10_000, "HOLDS", 3));
    for n in [3, 3, 7, 2, 1, LARGEST_COUNT, 1] {
        let again = cmd!(conn, "LOCK.ACQUIRE", "key", "a", 10_000, "HOLDS", n);
        assert_eq!(int(&again), token);
        assert_eq!(counts_and_token(&mut conn, "a"), ((n, 0), token));
    }
}

#[test]
fn a_count_beyond_the_maximum_is_an_error_that_changes_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        cmd!(conn, acquire, "key", "a", 10_000, "HOLDS", LARGEST_COUNT);
        let before = lock_info(&mut conn, "key").unwrap();
        let error = try_cmd!(conn, acquire, "key", "a", 60_000).unwrap_err();
        assert!(error.starts_with("ERR "), "{error}");
        assert!(error.contains("2147483647"), "{error}");
        let after = lock_info(&mut conn, "key").unwrap();
        assert_eq!(after.facts(), before.facts());
        assert!(after.holds[0].lease <= before.holds[0].lease);
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
    }
}

#[test]
fn wlock_is_acquire_under_another_name() {
    let server = Server::start();
    let mut conn = server.connect();
    for (first, second) in [
        ("LOCK.ACQUIRE", "LOCK.WLOCK"),
        ("LOCK.WLOCK", "LOCK.ACQUIRE"),
    ] {
        let token = int(&cmd!(conn, first, "key", "a", 10_000));
        assert!(is_nil(&cmd!(conn, second, "key", "b", 10_000)));
        assert_eq!(int(&cmd!(conn, second, "key", "a", 10_000)), token);
        assert_eq!(counts_and_token(&mut conn, "a"), ((2, 0), token));
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
    }
}

#[test]
fn tokens_grow_over_keys_modes_releases_deletions_and_flushes() {
    let server = Server::start();
    let mut conn = server.connect();
    let mut last = 0;
    let mut grows = |conn: &mut Conn, acquire: &str, key: &str, owner: &str| {
        let token = int(&cmd!(conn, acquire, key, owner, 10_000));
        assert!(token > last, "{acquire} {key} {owner}: {token} > {last}");
        last = token;
    };
    grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    grows(&mut conn, "LOCK.ACQUIRE", "two", "a");
    grows(&mut conn, "LOCK.RLOCK", "three", "a");
    grows(&mut conn, "LOCK.RLOCK", "three", "b");
    cmd!(conn, "LOCK.RELEASE", "one", "a");
    grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    for loss in [["DEL", "one"], ["UNLINK", "one"]] {
        conn.cmd(&loss);
        grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    }
    for loss in [["FLUSHDB"], ["FLUSHALL"]] {
        conn.cmd(&loss);
        grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    }
    cmd!(conn, "SELECT", 1);
    grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    // Sent in one write, so that a microsecond may see several.
    let acquires: Vec<_> = (0..1_000)
        .map(|n| command!("LOCK.ACQUIRE", format!("lock:{n}"), "a", 10_000))
        .collect();
    acquires.iter().for_each(|acquire| conn.submit(acquire));
    for _ in acquires {
        let token = int(&conn.recv());
        assert!(token > last, "{token} > {last}");
        last = token;
    }
}

#[test]
fn options_come_in_any_order_and_any_case() {
    let server = Server::start();
    let mut conn = server.connect();
    let orders: [[(&str, &str); 3]; 4] = [
        [("WAIT", "1000"), ("HOLDS", "3"), ("FENCE", "7")],
        [("FENCE", "7"), ("WAIT", "1000"), ("HOLDS", "3")],
        [("holds", "3"), ("fence", "7"), ("wait", "1000")],
        [("Fence", "7"), ("hOlDs", "3"), ("waiT", "1000")],
    ];
    for acquire in ["LOCK.ACQUIRE", "lock.wlock", "Lock.RLock"] {
        for options in orders {
            let mut words = vec![acquire, "key", "a", "10000"];
            words.extend(options.iter().flat_map(|(name, value)| [name, value]));
            assert!(int(&conn.cmd(&words)) > 7);
            let hold = hold_of(&mut conn, "key", "a").unwrap();
            assert_eq!(hold.write + hold.read, 3, "{words:?}");
            cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
        }
    }
}

#[test]
fn an_option_unknown_given_twice_or_without_its_value_is_an_error_that_names_it() {
    let server = Server::start();
    let mut conn = server.connect();
    let cases: &[(&[&str], &str)] = &[
        (&["PATIENCE", "5"], "PATIENCE"),
        (&["WAITS", "5"], "WAITS"),
        (&["WAI", "5"], "WAI"),
        (&["AFTER", "5"], "AFTER"),
        (&["TOKEN"], "TOKEN"),
        (&["TOKEN", "5", "TOKEN", "5"], "TOKEN"),
        (&["WAIT", "5", "HOLDS", "2", "MAIL"], "MAIL"),
        (&["MAIL", "box", "MAIL", "box"], "MAIL"),
        (&["", "5"], "''"),
        (&["HOLDS", "2", "5"], "5"),
        (&["WAIT"], "WAIT"),
        (&["HOLDS"], "HOLDS"),
        (&["FENCE"], "FENCE"),
        (&["HOLDS", "2", "WAIT"], "WAIT"),
        (&["WAIT", "5", "WAIT", "5"], "WAIT"),
        (&["HOLDS", "2", "WAIT", "5", "holds", "2"], "HOLDS"),
        (&["FENCE", "5", "FENCE", "5"], "FENCE"),
    ];
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        for (options, named) in cases {
            let words = [&[acquire, "key", "a", "1000"], *options].concat();
            let error = conn.try_cmd(&words).unwrap_err();
            assert!(error.starts_with("ERR "), "{words:?}: {error}");
            assert!(error.contains(named), "{words:?}: {error}");
        }
    }
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn locks_of_the_same_name_in_two_databases_are_two_locks() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT", 1);
    cmd!(zero, "LOCK.ACQUIRE", "key", "a", 10_000);
    assert!(!is_nil(&cmd!(one, "LOCK.ACQUIRE", "key", "b", 10_000)));
    assert!(is_nil(&cmd!(zero, "LOCK.RELEASE", "key", "b")));
    assert_eq!(int(&cmd!(one, "LOCK.RELEASE", "key", "b")), 0);
    assert_eq!(int(&cmd!(zero, "EXISTS", "key")), 1);
}

#[test]
fn many_readers_hold_at_once_each_by_its_own_token() {
    let server = Server::start();
    let mut conn = server.connect();
    let owners: Vec<String> = (0..50).map(|n| format!("reader:{n}")).collect();
    let take = |owner: &String| int(&cmd!(conn, "LOCK.RLOCK key {owner} 60000"));
    let tokens: Vec<i64> = owners.iter().map(take).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.mode.as_str(), lock.holders), ("read", 50));
    for (owner, token) in owners.iter().zip(tokens) {
        let hold = hold_of(&mut conn, "key", owner).unwrap();
        assert_eq!((hold.counts(), hold.token), ((0, 1), token));
    }
}
