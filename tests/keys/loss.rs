//! A lock is a key, and deleting the key frees the lock: nothing of it is left for later commands.

use mortise_harness::{
    Conn, Server, bytes, cmd, eventually, hold_of, int, is_nil, lock_info, text, try_cmd,
};

/// Takes `key` for 600 ms as `a` and, in other locks of all kinds, as others.
fn take_some(conn: &mut Conn) {
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600);
    cmd!(conn, "LOCK.ACQUIRE", "long", "a", 60_000);
    for n in 0..5 {
        cmd!(conn, "LOCK.RLOCK", "read", format!("reader:{n}"), 600 + n);
    }
}

/// Fails unless everything is gone, and the old leases do not end new locks of the same names.
#[track_caller]
fn assert_all_gone(server: &Server, conn: &mut Conn) {
    assert_eq!(int(&cmd!(conn, "EXISTS", "key", "long", "read")), 0);
    assert_eq!((server.gauge("locks"), server.gauge("holders")), (0, 0));
    for key in ["key", "long", "read"] {
        assert_eq!(lock_info(conn, key), None);
        assert!(is_nil(&cmd!(conn, "LOCK.RELEASE", key, "a")));
    }
    cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(conn, "SET", "read", "value");
    // Its lease ends after all the others, so they would have been swept before it.
    cmd!(conn, "LOCK.ACQUIRE", "witness", "w", 700);
    eventually("the witness is swept", || {
        int(&cmd!(conn, "EXISTS", "witness")) == 0
    });
    assert!(hold_of(conn, "key", "b").is_some());
    assert_eq!(text(&cmd!(conn, "GET", "read")), "value");
    cmd!(conn, "DEL", "key", "read");
    assert_eq!((server.gauge("locks"), server.gauge("holders")), (0, 0));
}

#[test]
fn deleted_locks_are_free() {
    let server = Server::start();
    let mut conn = server.connect();
    for delete in ["DEL", "UNLINK"] {
        take_some(&mut conn);
        cmd!(conn, delete, "key", "long", "read");
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn flushed_locks_are_free() {
    let server = Server::start();
    let mut conn = server.connect();
    for flush in [
        ["FLUSHDB"].as_slice(),
        &["FLUSHDB", "SYNC"],
        &["FLUSHDB", "ASYNC"],
        &["FLUSHALL"],
        &["FLUSHALL", "SYNC"],
        &["FLUSHALL", "ASYNC"],
    ] {
        take_some(&mut conn);
        conn.cmd(flush);
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn a_flush_of_thousands_of_locks_leaves_nothing_behind() {
    let server = Server::start();
    let mut conn = server.connect();
    for flush in ["SYNC", "ASYNC"] {
        for n in 0..2_000 {
            cmd!(conn, "LOCK.RLOCK", format!("lock:{n}"), "a", 60_000);
            cmd!(conn, "LOCK.RLOCK", "all", format!("reader:{n}"), 60_000);
        }
        assert_eq!(server.gauge("locks"), 2_001);
        assert_eq!(server.gauge("holders"), 4_000);
        cmd!(conn, "FLUSHALL", flush);
        take_some(&mut conn);
        cmd!(conn, "FLUSHDB");
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn a_flush_of_one_database_leaves_the_others_alone() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT", 1);
    cmd!(one, "LOCK.ACQUIRE", "key", "one", 60_000);
    cmd!(one, "LOCK.ACQUIRE", "short", "one", 200);
    take_some(&mut zero);
    cmd!(zero, "FLUSHDB");
    assert!(hold_of(&mut one, "key", "one").is_some());
    eventually("leases still end there", || {
        int(&cmd!(one, "EXISTS", "short")) == 0
    });
}

#[test]
fn a_lock_that_something_else_is_written_over_is_free() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "RPUSH", "list", "b", "a");
    cmd!(conn, "SADD", "set", "x");
    let overwrites: [&[&str]; 6] = [
        &["SET", "key", "value"],
        &["MSET", "key", "value", "unrelated", "value"],
        &["SORT", "list", "ALPHA", "STORE", "key"],
        &["SUNIONSTORE", "key", "set"],
        &["COPY", "list", "key", "REPLACE"],
        &["BITOP", "NOT", "key", "unrelated"],
    ];
    for overwrite in overwrites {
        take_some(&mut conn);
        conn.cmd(overwrite);
        let error = try_cmd!(conn, "LOCK.RELEASE", "key", "a").unwrap_err();
        assert!(error.starts_with("WRONGTYPE "), "{overwrite:?}: {error}");
        assert_eq!(server.gauge("locks"), 2, "{overwrite:?}");
        cmd!(conn, "DEL", "key", "long", "read");
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn a_lock_is_replaced_by_what_is_restored_over_it() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "SET", "string", "value");
    let dump = bytes(&cmd!(conn, "DUMP", "string"));
    take_some(&mut conn);
    cmd!(conn, "RESTORE", "key", 0, dump, "REPLACE");
    assert_eq!(text(&cmd!(conn, "GET", "key")), "value");
    cmd!(conn, "DEL", "key", "long", "read");
    assert_all_gone(&server, &mut conn);
}

#[test]
fn a_ttl_that_somebody_puts_on_a_lock_ends_it() {
    let server = Server::start();
    let mut conn = server.connect();
    take_some(&mut conn);
    for key in ["key", "long", "read"] {
        assert_eq!(int(&cmd!(conn, "PEXPIRE", key, 20)), 1);
    }
    eventually("the keys are gone", || int(&cmd!(conn, "DBSIZE")) == 0);
    assert_all_gone(&server, &mut conn);

    // A command finds it before the server has noticed.
    for (n, command) in ["LOCK.ACQUIRE", "LOCK.RLOCK"].into_iter().enumerate() {
        cmd!(conn, "MULTI");
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
        cmd!(conn, "PEXPIRE", "key", 5);
        cmd!(conn, "EXEC");
        let token = eventually("somebody else gets it", || {
            let reply = cmd!(conn, command, "key", format!("b{n}"), 60_000);
            (!is_nil(&reply)).then(|| int(&reply))
        });
        let lock = lock_info(&mut conn, "key").unwrap();
        assert_eq!((lock.holders, lock.holds[0].token), (1, token));
        assert_eq!(int(&cmd!(conn, "PTTL", "key")), -1);
        cmd!(conn, "DEL", "key");
    }
}

#[test]
fn a_ttl_that_is_taken_back_changes_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    cmd!(conn, "EXPIRE", "key", 1_000);
    cmd!(conn, "PERSIST", "key");
    assert_eq!(int(&cmd!(conn, "PTTL", "key")), -1);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 30_000);
}

#[test]
fn a_lease_ends_a_lock_whose_ttl_is_longer() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60);
    cmd!(conn, "EXPIRE", "key", 1_000);
    eventually("the key is gone", || int(&cmd!(conn, "EXISTS", "key")) == 0);
    assert_eq!(server.gauge("locks"), 0);
}

#[test]
fn an_evicted_lock_is_free_and_is_evicted_only_where_any_key_may_be() {
    let server = Server::start();
    let mut conn = server.connect();
    take_some(&mut conn);
    cmd!(conn, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl");
    cmd!(conn, "CONFIG", "SET", "maxmemory", 1);
    let error = try_cmd!(conn, "SET", "unrelated", "value").unwrap_err();
    assert!(error.starts_with("OOM "), "{error}");
    assert!(hold_of(&mut conn, "long", "a").is_some());

    cmd!(conn, "CONFIG", "SET", "maxmemory-policy", "allkeys-random");
    eventually("the locks are evicted", || {
        // Evicting happens before a command that may need memory.
        let _ = try_cmd!(conn, "SET", "unrelated", "value");
        int(&cmd!(conn, "EXISTS", "key", "long", "read")) == 0
    });
    cmd!(conn, "CONFIG", "SET", "maxmemory", 0);
    assert_all_gone(&server, &mut conn);
}

#[test]
fn a_full_memory_refuses_new_holds_and_lets_old_ones_be_renewed_fenced_and_released() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    cmd!(conn, "CONFIG", "SET", "maxmemory-policy", "noeviction");
    cmd!(conn, "CONFIG", "SET", "maxmemory", 1);
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        let error = try_cmd!(conn, acquire, "other", "a", 60_000).unwrap_err();
        assert!(error.starts_with("OOM "), "{error}");
    }
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "key", "a", 70_000)), token);
    assert_eq!(
        int(&cmd!(conn, "LOCK.FENCE", "key", "a", token + 5)),
        token + 5
    );
    assert!(lock_info(&mut conn, "key").is_some());
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
}
