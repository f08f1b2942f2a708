//! LOCK.ACQUIRE, LOCK.WLOCK and LOCK.RLOCK: which requests are granted, and what a grant contains.

use mortise_harness::{Conn, Server, cmd, command, int, lock_info, refused, text};

const LARGEST_COUNT: i64 = i32::MAX as i64;

#[test]
fn a_free_lock_is_granted_with_a_token_below_two_to_the_53() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 10000"));
    assert!((1..1 << 53).contains(&token), "{token}");

    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.mode.as_str(), lock.holders), ("write", 1));
    assert_eq!(lock.facts(), [(b"a".to_vec(), 1, 0, token)]);
    assert!((1..=10_000).contains(&lock.holds[0].lease), "{lock:?}");
}

#[test]
fn a_lock_is_a_key_of_its_own_type_without_a_redis_ttl_while_it_is_held() {
    let (_server, mut conn) = Server::start_connected();
    assert_eq!(text(&cmd!(conn, "TYPE key")), "none");
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        cmd!(conn, "{acquire} key a 10000");
        assert_eq!(text(&cmd!(conn, "TYPE key")), "mort-lock");
        assert_eq!(int(&cmd!(conn, "PTTL key")), -1);
        assert_eq!(int(&cmd!(conn, "EXISTS key")), 1);
        cmd!(conn, "LOCK.RELEASE key a");
        assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
        assert_eq!(text(&cmd!(conn, "TYPE key")), "none");
    }
}

#[test]
fn a_count_beyond_the_maximum_is_an_error_that_changes_nothing() {
    let (_server, mut conn) = Server::start_connected();
    for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        cmd!(conn, "{acquire} key a 10000 HOLDS {LARGEST_COUNT}");
        let before = lock_info(&mut conn, "key").unwrap();
        let error = refused!(conn, "ERR ", "{acquire} key a 60000");
        assert!(error.contains("2147483647"), "{error}");
        let after = lock_info(&mut conn, "key").unwrap();
        assert_eq!(after.facts(), before.facts());
        assert!(after.holds[0].lease <= before.holds[0].lease);
        cmd!(conn, "LOCK.RELEASE key a ALL");
    }
}

#[test]
fn tokens_grow_over_keys_modes_releases_deletions_and_flushes() {
    let (_server, mut conn) = Server::start_connected();
    let mut last = 0;
    let mut grows = |conn: &mut Conn, acquire: &str, key: &str, owner: &str| {
        let token = int(&cmd!(conn, "{acquire} {key} {owner} 10000"));
        assert!(token > last, "{acquire} {key} {owner}: {token} > {last}");
        last = token;
    };
    grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    grows(&mut conn, "LOCK.ACQUIRE", "two", "a");
    grows(&mut conn, "LOCK.RLOCK", "three", "a");
    grows(&mut conn, "LOCK.RLOCK", "three", "b");
    cmd!(conn, "LOCK.RELEASE one a");
    grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    for loss in ["DEL one", "UNLINK one", "FLUSHDB", "FLUSHALL", "SELECT 1"] {
        cmd!(conn, "{loss}");
        grows(&mut conn, "LOCK.ACQUIRE", "one", "a");
    }
    // Sent in one write, so that a microsecond may see several.
    let acquires: Vec<_> = (0..1_000)
        .map(|n| command!("LOCK.ACQUIRE lock:{n} a 10000"))
        .collect();
    for reply in conn.pipeline(&acquires) {
        let token = int(&reply.unwrap());
        assert!(token > last, "{token} > {last}");
        last = token;
    }
}
