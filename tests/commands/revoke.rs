//! LOCK.REVOKE: a hold that ends with its current lease.

use mortise_harness::{
    Conn, Hold, Server, array, cmd, error_line, eventually, granted, hold_of, int, is_nil,
    lock_info, try_cmd, waiter,
};

fn hold(conn: &mut Conn, owner: &str) -> Hold {
    hold_of(conn, "key", owner).expect("the owner holds")
}

#[track_caller]
fn assert_refused(reply: Result<mortise_harness::redis::Value, String>) {
    let error = reply.unwrap_err();
    assert!(error.starts_with("REVOKED "), "{error}");
}

#[test]
fn a_revocation_replies_the_rest_of_the_lease_and_changes_only_the_mark() {
    let server = Server::start();
    let mut conn = server.connect();
    for acquire in ["LOCK.WLOCK", "LOCK.RLOCK"] {
        cmd!(conn, acquire, "key", "a", 60_000, "HOLDS", 3);
        let before = hold(&mut conn, "a");
        assert!(!before.revoked);
        let left = int(&cmd!(conn, "LOCK.REVOKE", "key", "a"));
        let after = hold(&mut conn, "a");
        assert!(after.revoked);
        assert_eq!(after.facts(), before.facts());
        assert_eq!(after.client, before.client);
        assert!(
            after.lease <= left && left <= before.lease,
            "{left}: {after:?}"
        );
        assert_eq!(int(&cmd!(conn, "PTTL", "key")), -1);
        cmd!(conn, "LOCK.RELEASE", "key", "a", "ALL");
    }
    assert_eq!(server.gauge("total_revocations"), 2);
}

#[test]
fn revoking_an_owner_without_a_hold_is_null() {
    let server = Server::start();
    let mut conn = server.connect();
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE", "key", "a")));
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE", "key", "b")));
    for wrong in [1, token - 1, token + 1, (1 << 53) - 1] {
        assert!(is_nil(&cmd!(conn, "LOCK.REVOKE key a TOKEN {wrong}")));
    }
    // Late requests of an owner that has left change nothing.
    cmd!(conn, "LOCK.RLOCK", "left", "c", 60_000);
    cmd!(conn, "COPY", "left", "copy");
    cmd!(conn, "LOCK.LEAVE", "left", "c", "FOR", 60_000);
    cmd!(conn, "RENAME", "copy", "left");
    assert!(is_nil(&cmd!(conn, "LOCK.REVOKE", "left", "c")));
    assert!(!hold_of(&mut conn, "left", "c").unwrap().revoked);
    assert!(!hold(&mut conn, "a").revoked);
    assert_eq!(server.gauge("total_revocations"), 0);
    let left = cmd!(conn, "LOCK.REVOKE", "key", "a", "token", token);
    assert!(int(&left) > 30_000);
    assert!(hold(&mut conn, "a").revoked);
}

#[test]
fn revoking_a_hold_whose_lease_is_over_is_null() {
    let server = Server::start();
    let mut conn = server.connect();
    // In one transaction, so that no timer runs in between.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 5);
    cmd!(conn, "DEBUG", "SLEEP", "0.006");
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    cmd!(conn, "EXISTS", "key");
    let replies = cmd!(conn, "EXEC");
    let [_, _, revoked, exists] = array(&replies) else {
        panic!("{replies:?}")
    };
    assert!(is_nil(revoked));
    assert_eq!(int(exists), 0);
}

#[test]
fn a_renewal_of_a_revoked_hold_is_null_and_adds_nothing_to_its_lease() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 600_000)));
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 600000 TOKEN {token}")));
    let after = hold(&mut conn, "a");
    assert!((30_000..=60_000).contains(&after.lease), "{after:?}");
}

#[test]
fn a_revoked_hold_ends_with_its_lease_though_its_owner_goes_on_renewing() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 500);
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    eventually("the lock is b's", || {
        assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
        hold_of(&mut conn, "key", "b").is_some()
    });
    granted(&mut b);
}

#[test]
fn every_acquire_of_the_owner_of_a_revoked_hold_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000, "HOLDS", 3));
    cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000);
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    let (older, newer) = ((token - 1).to_string(), (token + 1).to_string());
    let cases: &[&[&str]] = &[
        &["1"],
        &["60000"],
        &["86400000"],
        &["1000", "HOLDS", "1"],
        &["1000", "HOLDS", "2147483647"],
        &["1000", "TOKEN", &older],
        &["1000", "TOKEN", &newer],
        &["1000", "FENCE", &newer],
        &["1000", "WAIT", "0"],
        &["1000", "WAIT", "0", "MAIL", "box", "HOLDS", "1"],
    ];
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        for options in cases {
            let words = [&[acquire, "key", "a"], *options].concat();
            assert_refused(conn.try_cmd(&words));
        }
        let script = format!("return redis.pcall('{acquire}', KEYS[1], 'a', 1000)");
        assert_refused(try_cmd!(conn, "EVAL", script, 1, "key"));
        cmd!(conn, "MULTI");
        cmd!(conn, acquire, "key", "a", 1_000);
        let error = error_line(&array(&cmd!(conn, "EXEC"))[0]).expect("an error");
        assert!(error.starts_with("REVOKED "), "{error}");
    }
    let info = lock_info(&mut conn, "key").unwrap();
    assert_eq!((info.waiters, info.holds[0].counts()), (0, (0, 3)));
    assert!(info.holds[0].lease <= 60_000);
    // The other holders of this key are not affected, nor is the owner at other keys.
    assert!(!info.holds[1].revoked);
    int(&cmd!(conn, "LOCK.RLOCK", "key", "b", 600_000));
    int(&cmd!(conn, "LOCK.RENEW", "key", "b", 600_000));
    int(&cmd!(conn, "LOCK.RLOCK", "other", "a", 60_000));
    int(&cmd!(conn, "LOCK.RENEW", "other", "a", 60_000));
    assert_eq!(server.gauge("boxes"), 0);
}

#[test]
fn the_owner_of_a_revoked_hold_may_still_fence_guard_and_release() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.WLOCK", "key", "a", 60_000, "HOLDS", 2);
    let token = int(&cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000, "HOLDS", 2));
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    assert_eq!(
        int(&cmd!(conn, "LOCK.FENCE", "key", "a", token + 5)),
        token + 5
    );
    cmd!(
        conn,
        "LOCK.GUARD",
        "key",
        "a",
        token + 5,
        "SET",
        "data",
        "written"
    );
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "WRITE")), 3);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "WRITE")), 2);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 1);
    let rest = hold(&mut conn, "a");
    assert_eq!((rest.counts(), rest.revoked), ((0, 1), true));
    assert_refused(try_cmd!(conn, "LOCK.RLOCK", "key", "a", 1_000));
    assert_eq!(int(&cmd!(conn, "LOCK.LEAVE", "key", "a")), 1);
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn once_a_revoked_hold_has_ended_its_owner_may_acquire_again() {
    let server = Server::start();
    let mut conn = server.connect();
    let mut last = 0;
    for end in [
        &["LOCK.RELEASE", "key", "a"][..],
        &["LOCK.LEAVE", "key", "a"],
        &["DEL", "key"],
    ] {
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
        cmd!(conn, "LOCK.REVOKE", "key", "a");
        assert!(hold(&mut conn, "a").revoked);
        conn.cmd(end);
        let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
        assert!(token > last);
        last = token;
        assert!(!hold(&mut conn, "a").revoked);
        assert_eq!(int(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)), token);
        cmd!(conn, "LOCK.RELEASE", "key", "a");
    }
    // The end of the lease, before any timer.
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.RLOCK", "key", "b", 60_000);
    cmd!(conn, "LOCK.RLOCK", "key", "a", 5);
    cmd!(conn, "LOCK.REVOKE", "key", "a");
    cmd!(conn, "DEBUG", "SLEEP", "0.006");
    cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000);
    assert!(int(&array(&cmd!(conn, "EXEC"))[4]) > last);
    assert!(!hold(&mut conn, "a").revoked);
}

#[test]
fn revoking_a_hold_again_changes_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let first = int(&cmd!(conn, "LOCK.REVOKE", "key", "a"));
    let again = int(&cmd!(conn, "LOCK.REVOKE", "key", "a"));
    assert!((1..=first).contains(&again), "{again} after {first}");
    assert_eq!(server.gauge("total_revocations"), 1);
}

#[test]
fn a_hold_can_be_revoked_when_memory_is_full() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    cmd!(conn, "CONFIG", "SET", "maxmemory", 1);
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000).unwrap_err();
    assert!(error.starts_with("OOM "), "{error}");
    assert!(int(&cmd!(conn, "LOCK.REVOKE", "key", "a")) > 0);
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
}

#[test]
fn invalid_options_of_a_revocation_are_errors_and_revoke_nothing() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)).to_string();
    let cases: &[&[&str]] = &[
        &["TOKEN"],
        &["TOKEN", &token, "TOKEN", &token],
        &["TOKEN", &token, "more"],
        &["60000"],
        &["FOR", "1"],
        &["ALL"],
    ];
    for options in cases {
        let words = [&["LOCK.REVOKE", "key", "a"], *options].concat();
        let error = conn.try_cmd(&words).unwrap_err();
        assert!(error.starts_with("ERR "), "{words:?}: {error}");
    }
    assert!(!hold(&mut conn, "a").revoked);
}
