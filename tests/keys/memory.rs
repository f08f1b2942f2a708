//! Full memory: which commands still work, and which locks an eviction policy removes.

use mortise_harness::{
    Conn, Server, array, assert_same_data, cmd, eventually, granted, hold_of, int, refused,
    try_cmd, waiter,
};

/// Makes the server refuse every write that it may refuse for lack of memory.
fn fill(server: &Server) {
    cmd!(server.connect(), "CONFIG SET maxmemory 1");
}

/// Leaves `more` bytes of memory free.
fn leave_room(server: &Server, more: u64) {
    let used: u64 = server.info("memory")["used_memory"].parse().unwrap();
    cmd!(server.connect(), "CONFIG", "SET", "maxmemory", used + more);
}

fn evicted_keys(server: &Server) -> u64 {
    server.info("stats")["evicted_keys"].parse().unwrap()
}

fn warnings(server: &Server) -> usize {
    server
        .log()
        .matches("may evict locks that are held")
        .count()
}

#[test]
fn full_memory_refuses_acquires_but_no_command_that_ends_or_keeps_a_hold() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    fill(&server);
    for command in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        for key in ["key", "free"] {
            refused!(conn, "OOM ", "{command} {key} a 60000");
        }
    }
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW key a 70000")), token);
    let fenced = token + 9;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE key a {fenced}")), fenced);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 65_000);
    let passed = int(&cmd!(conn, "LOCK.PASS key a b 70000"));
    assert!(passed > fenced);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key b")), 0);
}

#[test]
fn full_memory_refuses_no_release_in_a_transaction_or_a_script() {
    let (server, mut conn) = Server::start_connected();
    for key in ["one", "two"] {
        cmd!(conn, "LOCK.ACQUIRE {key} a 60000 HOLDS 2");
    }
    // Some servers accept no command into a transaction when memory is full.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.RELEASE one a");
    cmd!(conn, "LOCK.RENEW one a 70000");
    cmd!(conn, "LOCK.RELEASE one a");
    fill(&server);
    assert_eq!(int(&array(&cmd!(conn, "EXEC"))[2]), 0);
    let script = "redis.call('LOCK.RENEW', KEYS[1], 'a', 70000) \
                  return redis.call('LOCK.RELEASE', KEYS[1], 'a', 'ALL')";
    assert_eq!(int(&cmd!(conn, "EVAL", script, 1, "two")), 0);
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
}

#[test]
fn a_lease_ends_while_memory_is_full() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 200");
    fill(&server);
    eventually("the key is gone", || int(&cmd!(conn, "EXISTS key")) == 0);
}

/// Writes keys with a TTL until the server refuses or `enough` have been evicted.
fn press(server: &Server, conn: &mut Conn, enough: u64) {
    let value = "x".repeat(1_000);
    for batch in 0..200 {
        for n in 0..100 {
            let key = format!("plain-{batch}-{n}");
            if let Err(error) = try_cmd!(conn, "SET", key, &value, "EX", 10_000) {
                assert!(error.starts_with("OOM "), "{error}");
                return;
            }
        }
        if evicted_keys(server) >= enough {
            return;
        }
    }
    panic!("nothing was evicted");
}

#[test]
fn no_volatile_policy_evicts_a_lock() {
    for policy in [
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let (server, mut conn) = Server::builder()
            .config("maxmemory-policy", policy)
            .start_connected();
        for n in 0..100 {
            cmd!(conn, "LOCK.ACQUIRE lock-{n} a 600000");
        }
        leave_room(&server, 500_000);
        press(&server, &mut conn, 500);
        // With nothing else to evict, writes are refused and the locks stay.
        fill(&server);
        eventually("all else has been evicted", || {
            // A new key is evicted as well while the server is still evicting.
            let _ = try_cmd!(conn, "SET", "one more", "x", "EX", 10_000);
            int(&cmd!(conn, "DBSIZE")) == 100
        });
        assert_eq!(server.gauge("locks"), 100, "{policy}");
        assert_eq!(server.gauge("evictable"), 0, "{policy}");
        assert_eq!(warnings(&server), 0, "{policy}");
    }
}

#[test]
fn an_allkeys_policy_can_evict_locks_of_which_the_log_warns_once() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let (server, mut conn) = Server::builder()
            .config("maxmemory-policy", policy)
            .config("maxmemory", "1gb")
            .start_connected();
        for n in 0..50 {
            cmd!(conn, "LOCK.ACQUIRE lock-{n} a 600000");
        }
        let mut b = waiter!(server, "LOCK.ACQUIRE lock-7 b 60000 WAIT 0");
        assert_eq!(server.gauge("evictable"), 1);
        // Before a write the server evicts all keys. The hand-off needs no memory.
        fill(&server);
        let mut stored = 0;
        let mut store = |conn: &mut Conn| {
            // Another key each time, because an overwritten key is evicted only once.
            let key = format!("more-{stored}");
            stored += u64::from(try_cmd!(conn, "SET {key} x").is_ok());
        };
        store(&mut conn);
        granted(&mut b);
        eventually("all has been evicted", || {
            store(&mut conn);
            int(&cmd!(conn, "DBSIZE")) == 0
        });
        // 50 locks, one of them twice.
        assert_eq!(evicted_keys(&server), 51 + stored);
        assert_eq!(server.gauge("locks"), 0);
        assert_eq!(warnings(&server), 1);
    }
}

#[test]
fn settings_that_begin_to_allow_evictions_are_noticed_each_time() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    cmd!(conn, "CONFIG SET maxmemory-policy allkeys-random");
    assert_eq!(server.gauge("evictable"), 0, "memory has no limit");
    for times in 1..3 {
        cmd!(conn, "CONFIG SET maxmemory 1gb");
        assert_eq!(server.gauge("evictable"), 1);
        eventually("the log warns", || warnings(&server) == times);
        cmd!(conn, "CONFIG SET maxmemory-policy volatile-lru");
        assert_eq!(server.gauge("evictable"), 0);
        cmd!(conn, "CONFIG SET maxmemory 0");
        cmd!(conn, "CONFIG SET maxmemory-policy allkeys-random");
    }
    assert_eq!(warnings(&server), 2);
}

#[test]
fn an_eviction_and_the_hand_off_after_it_reach_a_replica() {
    let primary = Server::builder()
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 600000 WAIT 0");
    fill(&primary);
    eventually("it has been evicted", || {
        let _ = try_cmd!(conn, "SET", "one more", "x");
        evicted_keys(&primary) > 0
    });
    cmd!(conn, "CONFIG SET maxmemory 0");
    let token = granted(&mut b);
    // The server evicts at once, perhaps even the lock that the waiter was just granted.
    if hold_of(&mut conn, "key", "b").is_none() {
        assert!(int(&cmd!(conn, "LOCK.ACQUIRE key c 600000")) > token);
    }
    assert_same_data(&primary, &replica);
    assert_eq!((primary.gauge("locks"), replica.gauge("locks")), (1, 1));
}
