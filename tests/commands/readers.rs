//! Readers: each holds together with the others, with its own lease and token.

use std::collections::BTreeSet;

use mortise_harness::{
    Conn, Dice, Server, as_map, cmd, eventually, hold_of, int, is_nil, lock_info, send, text,
    try_cmd,
};

/// Makes `owners` read, and returns their tokens.
fn let_in(conn: &mut Conn, key: &str, owners: &[String]) -> Vec<i64> {
    for owner in owners {
        send!(conn, "LOCK.RLOCK", key, owner, 60_000);
    }
    owners.iter().map(|_| int(&conn.recv())).collect()
}

fn owners(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("reader:{n}")).collect()
}

/// The numbers below `len` in a shuffled order, the same in every run.
fn shuffled(len: usize) -> Vec<usize> {
    let mut dice = Dice::new(1);
    let mut order: Vec<usize> = (0..len).collect();
    for i in (1..len).rev() {
        order.swap(i, dice.roll(i as u64 + 1) as usize);
    }
    order
}

#[test]
fn many_readers_hold_at_once_each_by_its_own_token() {
    let server = Server::start();
    let mut conn = server.connect();
    let owners = owners(50);
    let tokens = let_in(&mut conn, "key", &owners);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");

    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.mode.as_str(), lock.holders), ("read", 50));
    for (owner, token) in owners.iter().zip(tokens) {
        let hold = hold_of(&mut conn, "key", owner).unwrap();
        assert_eq!((hold.counts(), hold.token), ((0, 1), token));
    }
}

#[test]
fn each_reader_has_a_lease_of_its_own() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000);
    cmd!(conn, "LOCK.RLOCK", "key", "b", 600_000);
    cmd!(conn, "LOCK.RLOCK", "key", "c", 6_000_000);
    let mut lease = |owner| hold_of(&mut conn, "key", owner).unwrap().lease;
    assert!((30_000..=60_000).contains(&lease("a")));
    assert!((300_000..=600_000).contains(&lease("b")));
    assert!((3_000_000..=6_000_000).contains(&lease("c")));
}

#[test]
fn readers_keep_writers_out_until_the_last_has_left() {
    let server = Server::start();
    let mut conn = server.connect();
    let tokens = let_in(&mut conn, "key", &owners(3));
    for n in 0..3 {
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "writer", 10_000)));
        let released = cmd!(conn, "LOCK.RELEASE", "key", format!("reader:{n}"));
        assert_eq!(int(&released), 0);
    }
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "writer", 10_000));
    assert!(token > tokens[2], "{token} > {tokens:?}");
}

#[test]
fn the_end_of_one_readers_lease_does_not_change_the_others() {
    let server = Server::start();
    let mut conn = server.connect();
    for (owner, lease) in [("a", 60_000), ("b", 40), ("c", 60_000), ("d", 80)] {
        cmd!(conn, "LOCK.RLOCK", "key", owner, lease);
        cmd!(conn, "LOCK.RLOCK", "key", owner, lease);
    }
    let before = lock_info(&mut conn, "key").unwrap().facts();
    eventually("the short leases are over", || {
        lock_info(&mut conn, "key").unwrap().holders == 2
    });
    let after = lock_info(&mut conn, "key").unwrap();
    let kept: Vec<_> = before
        .into_iter()
        .filter(|(owner, ..)| owner == b"a" || owner == b"c")
        .collect();
    assert_eq!(after.facts(), kept);
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", "key", "b")));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 1);
}

#[test]
fn a_downgraded_lock_is_free_after_the_last_read_release() {
    let server = Server::start();
    let mut conn = server.connect();
    let mut step = |command: &[&str]| {
        conn.cmd(command);
        lock_info(&mut conn, "key").map_or("free".to_owned(), |lock| lock.mode)
    };
    assert_eq!(step(&["LOCK.WLOCK", "key", "a", "60000"]), "write");
    assert_eq!(step(&["LOCK.RLOCK", "key", "a", "60000"]), "write");
    assert_eq!(step(&["LOCK.RELEASE", "key", "a", "WRITE"]), "read");
    assert_eq!(step(&["LOCK.RLOCK", "key", "b", "60000"]), "read");
    assert_eq!(step(&["LOCK.RELEASE", "key", "a"]), "read");
    assert_eq!(step(&["LOCK.RELEASE", "key", "b"]), "free");
    assert_eq!(text(&cmd!(conn, "TYPE", "key")), "none");
}

#[test]
fn a_reader_that_re_enters_keeps_its_token_while_others_come_and_go() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000));
    for n in 0..20 {
        cmd!(conn, "LOCK.RLOCK", "key", format!("other:{n}"), 60_000);
        assert_eq!(int(&cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000)), token);
        if n % 3 > 0 {
            cmd!(conn, "LOCK.RELEASE", "key", format!("other:{n}"));
        }
    }
    let hold = hold_of(&mut conn, "key", "a").unwrap();
    assert_eq!((hold.counts(), hold.token), ((0, 21), token));
}

#[test]
fn a_thousand_readers_can_be_released_in_any_order() {
    let server = Server::start();
    let mut conn = server.connect();
    let owners = owners(1_000);
    let tokens = let_in(&mut conn, "key", &owners);
    let distinct: BTreeSet<_> = tokens.iter().collect();
    assert_eq!(distinct.len(), 1_000);
    assert_eq!(lock_info(&mut conn, "key").unwrap().holds.len(), 1_000);

    for (done, n) in shuffled(1_000).into_iter().enumerate() {
        let left = cmd!(conn, "LOCK.RELEASE", "key", &owners[n], "TOKEN", tokens[n]);
        assert_eq!(int(&left), 0);
        assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", "key", &owners[n])));
        let holders = lock_holders(&mut conn);
        assert_eq!(holders, 999 - done as i64);
        if holders > 0 {
            assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "writer", 1_000)));
        }
    }
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

/// The number of holders, without reading every hold.
fn lock_holders(conn: &mut Conn) -> i64 {
    let reply = cmd!(conn, "LOCK.INFO", "key", "COUNT", 1);
    if is_nil(&reply) {
        return 0;
    }
    int(&as_map(&reply)["holders"])
}

#[test]
fn a_thousand_readers_with_leases_of_all_lengths_end_one_by_one() {
    let server = Server::start();
    let mut conn = server.connect();
    for (place, n) in shuffled(1_000).into_iter().enumerate() {
        send!(
            conn,
            "LOCK.RLOCK",
            "key",
            format!("reader:{place}"),
            100 + n
        );
    }
    for _ in 0..1_000 {
        conn.recv();
    }
    let mut last = 1_000;
    eventually("nobody holds any more", || {
        let holders = lock_holders(&mut conn);
        assert!(holders <= last, "{holders} after {last}");
        last = holders;
        holders == 0
    });
    eventually("the key is gone", || int(&cmd!(conn, "EXISTS", "key")) == 0);
}

#[test]
fn a_read_count_beyond_the_maximum_is_an_error_with_other_readers_too() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "key", "other", 60_000);
    cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000, "HOLDS", i32::MAX);
    let before = lock_info(&mut conn, "key").unwrap().facts();
    let error = try_cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000).unwrap_err();
    assert!(error.starts_with("ERR "), "{error}");
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), before);
}
