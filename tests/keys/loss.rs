//! A lock is a key: deleting the key frees the lock, and nothing of it affects later commands.

use mortise_harness::{
    Conn, Server, bytes, cmd, eventually, hold_of, int, is_nil, lock_info, refused, text,
};

/// Acquires `key` for 600 ms as `a`, and other locks of all kinds.
fn take_some(conn: &mut Conn) {
    cmd!(conn, "LOCK.ACQUIRE key a 600");
    cmd!(conn, "LOCK.ACQUIRE long a 60000");
    for n in 0..5 {
        cmd!(conn, "LOCK.RLOCK", "read", format!("reader:{n}"), 600 + n);
    }
}

/// Fails unless all locks are gone, and their old leases do not end new locks of the same names.
#[track_caller]
fn assert_all_gone(server: &Server, conn: &mut Conn) {
    assert_eq!(int(&cmd!(conn, "EXISTS key long read")), 0);
    assert_eq!((server.gauge("locks"), server.gauge("holders")), (0, 0));
    for key in ["key", "long", "read"] {
        assert_eq!(lock_info(conn, key), None);
        assert!(is_nil(&cmd!(conn, "LOCK.RELEASE {key} a")));
    }
    cmd!(conn, "LOCK.ACQUIRE key b 60000");
    cmd!(conn, "SET read value");
    // Its lease ends last, so the others would be swept before it.
    cmd!(conn, "LOCK.ACQUIRE witness w 700");
    eventually("the witness is swept", || {
        int(&cmd!(conn, "EXISTS witness")) == 0
    });
    assert!(hold_of(conn, "key", "b").is_some());
    assert_eq!(text(&cmd!(conn, "GET read")), "value");
    cmd!(conn, "DEL key read");
    assert_eq!((server.gauge("locks"), server.gauge("holders")), (0, 0));
}

#[test]
fn deleted_locks_are_free() {
    let (server, mut conn) = Server::start_connected();
    for delete in ["DEL", "UNLINK"] {
        take_some(&mut conn);
        cmd!(conn, "{delete} key long read");
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn flushed_locks_are_free() {
    let (server, mut conn) = Server::start_connected();
    for flush in ["FLUSHDB", "FLUSHALL"] {
        for how in ["", "SYNC", "ASYNC"] {
            take_some(&mut conn);
            cmd!(conn, "{flush} {how}");
            assert_all_gone(&server, &mut conn);
        }
    }
}

#[test]
fn a_flush_of_one_database_does_not_change_the_others() {
    let server = Server::start();
    let (mut zero, mut one) = (server.connect(), server.connect());
    cmd!(one, "SELECT 1");
    cmd!(one, "LOCK.ACQUIRE key one 60000");
    cmd!(one, "LOCK.ACQUIRE short one 200");
    take_some(&mut zero);
    cmd!(zero, "FLUSHDB");
    assert!(hold_of(&mut one, "key", "one").is_some());
    eventually("leases still end there", || {
        int(&cmd!(one, "EXISTS short")) == 0
    });
}

#[test]
fn overwriting_a_lock_with_another_type_frees_it() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "RPUSH list b a");
    cmd!(conn, "SADD set x");
    for overwrite in [
        "SET key value",
        "MSET key value unrelated value",
        "SORT list ALPHA STORE key",
        "SUNIONSTORE key set",
        "COPY list key REPLACE",
        "BITOP NOT key unrelated",
    ] {
        take_some(&mut conn);
        cmd!(conn, "{overwrite}");
        refused!(conn, "WRONGTYPE ", "LOCK.RELEASE key a");
        assert_eq!(server.gauge("locks"), 2, "{overwrite}");
        cmd!(conn, "DEL key long read");
        assert_all_gone(&server, &mut conn);
    }
}

#[test]
fn restore_replace_over_a_lock_replaces_its_holds() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "SET string value");
    let dump = bytes(&cmd!(conn, "DUMP string"));
    take_some(&mut conn);
    cmd!(conn, "RESTORE", "key", 0, dump, "REPLACE");
    assert_eq!(text(&cmd!(conn, "GET key")), "value");
    cmd!(conn, "DEL key long read");
    assert_all_gone(&server, &mut conn);
}

#[test]
fn a_ttl_on_a_lock_ends_it() {
    let (server, mut conn) = Server::start_connected();
    take_some(&mut conn);
    for key in ["key", "long", "read"] {
        assert_eq!(int(&cmd!(conn, "PEXPIRE {key} 20")), 1);
    }
    eventually("the keys are gone", || int(&cmd!(conn, "DBSIZE")) == 0);
    assert_all_gone(&server, &mut conn);

    // A command finds the expired key before the server does.
    for (n, command) in ["LOCK.ACQUIRE", "LOCK.RLOCK"].into_iter().enumerate() {
        cmd!(conn, "MULTI");
        cmd!(conn, "LOCK.ACQUIRE key a 60000");
        cmd!(conn, "PEXPIRE key 5");
        cmd!(conn, "EXEC");
        let token = eventually("another owner gets it", || {
            let reply = cmd!(conn, "{command} key b{n} 60000");
            (!is_nil(&reply)).then(|| int(&reply))
        });
        let lock = lock_info(&mut conn, "key").unwrap();
        assert_eq!((lock.holders, lock.holds[0].token), (1, token));
        assert_eq!(int(&cmd!(conn, "PTTL key")), -1);
        cmd!(conn, "DEL key");
    }
}

#[test]
fn a_removed_ttl_changes_nothing() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    cmd!(conn, "EXPIRE key 1000");
    cmd!(conn, "PERSIST key");
    assert_eq!(int(&cmd!(conn, "PTTL key")), -1);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 30_000);
}

#[test]
fn a_lease_ends_a_lock_whose_ttl_is_longer() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60");
    cmd!(conn, "EXPIRE key 1000");
    eventually("the key is gone", || int(&cmd!(conn, "EXISTS key")) == 0);
    assert_eq!(server.gauge("locks"), 0);
}
